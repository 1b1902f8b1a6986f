"""The import of causal language models, against transformers, and what they answer."""

import csv
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from fastapi.testclient import TestClient

from models.decoding.next_words import next_words
from models.decoding.word_probabilities import score_rows, score_words
from models.errors import QueryError, TextTooLongError
from models.operations.language import SCORE
from models.reading import read_manifest
from models.store import load_bundle
from models.tasks.causal_language_model import CausalLanguageModel
from models.tasks.causal_results import ScoreTextQuery
from models.tasks.language_sampling import DrawQuery
from models.text.utf8 import byte_level_pieces
from models.text.word_vocabulary import PUNCTUATION, State, WordBoundaries, WordVocabulary
from service.offline.command import command_of
from service.offline.options import FileOptions, ModelOptions
from service.server.app import create_app
from service.settings import Settings
from tests.support.causal_directory import FAMILIES, write_causal
from tests.support.marian_directory import SENTENCES
from tests.support.ranks import are_best, is_rank
from tests.support.waiting import wait_until
from tests.training.importing.conftest import import_directory, set_config
from training.importing.causal import CausalImporter
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions
from training.importing.samples import Samples
from training.importing.source import open_source

BYTES, LLAMA = "GPT2LMHeadModel", "LlamaForCausalLM"
TEXTS = ("Where is the station?", "I", "naïve 🙂 Straße  你好", "We will go to the museum tomorrow if it rains. " * 3)
SAMPLES = Samples(SENTENCES, "")

Written = Callable[..., Path]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Return a function that makes a directory, or returns the one that was made, which is not to be changed."""
    made: dict[str, Path] = {}

    def make(architecture: str, name: str = "", **settings: Any) -> Path:
        if (key := name or architecture) not in made:
            made[key] = write_causal(tmp_path_factory.mktemp("hub") / key.lower(), architecture, **settings)
        return made[key]

    return make


@pytest.fixture(scope="module")
def bundles(written: Written, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The bundles of one model of bytes and one of pieces."""
    output = tmp_path_factory.mktemp("imported")
    return {
        name: import_directory(written(name), output, SAMPLES, name=name.lower(), description="").path
        for name in (BYTES, LLAMA)
    }


@pytest.fixture(scope="module")
def loaded(bundles: dict[str, Path]) -> dict[str, CausalLanguageModel]:
    return {name: load_bundle(path, threads=1) for name, path in bundles.items()}


@pytest.fixture(scope="module")
def startless(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> CausalLanguageModel:
    """A model without a start token."""
    directory = tmp_path_factory.mktemp("startless") / BYTES.lower() / "1"
    bundle = Path(shutil.copytree(bundles[BYTES], directory))
    path = bundle / "manifest.json"
    content = json.loads(path.read_text())
    content["config"]["special_tokens"]["start"] = None
    path.write_text(json.dumps(content))
    return load_bundle(bundle, threads=1)


@torch.no_grad()
def reference(directory: Path, ids: list[int]) -> torch.Tensor:
    """Return the log-probabilities of what follows each token, `[T, V]`, by transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()
    found: torch.Tensor = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return found


def tokens_of(directory: Path, text: str) -> list[int]:
    """Return the start token, and the tokens of a text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    return [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]


def importer(directory: Path, **options: Any) -> CausalImporter:
    return CausalImporter(open_source(str(directory)), ImportOptions(samples=SAMPLES, **options))


# ---- networks ----


@pytest.mark.parametrize("architecture", FAMILIES)
def test_each_family_computes_what_transformers_does(architecture: str, written: Written) -> None:
    directory = written(architecture)
    made = importer(directory)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(made.causal.settings.vocab_size, (40,), generator=generator).tolist()
    expected = reference(directory, ids)
    with torch.no_grad():
        found = made.head(made.network(torch.tensor([ids]))[0]).log_softmax(-1)
    assert float(expected.exp().amax(-1).mean()) > 0.03  # 1 / 408 where distributions are flat
    assert float((found - expected).abs().max()) < 1e-4


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        (BYTES, {"tie_word_embeddings": False, "activation_function": "relu"}),
        (LLAMA, {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
        ("GPTNeoXForCausalLM", {"use_parallel_residual": False, "attention_bias": False}),
        ("Gemma3ForCausalLM", {"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]}),
        ("Qwen2ForCausalLM", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    ],
)
def test_variants_within_a_family(architecture: str, settings: dict[str, Any], tmp_path: Path) -> None:
    directory = write_causal(tmp_path / "it", architecture, **settings)
    made, ids = importer(directory), list(range(30, 60))
    with torch.no_grad():
        found = made.head(made.network(torch.tensor([ids]))[0]).log_softmax(-1)
    assert float((found - reference(directory, ids)).abs().max()) < 1e-4


# ---- scores and next tokens of bundles ----


@pytest.mark.parametrize("name", [BYTES, LLAMA])
def test_scores_are_those_of_transformers_alone_and_in_a_batch(name, loaded, written):
    directory, model = written(name), loaded[name]
    together = model.score(TEXTS, explain=3, truncate=True)
    for text, batched in zip(TEXTS, together, strict=True):
        ids = tokens_of(directory, text)[:64]
        expected = reference(directory, ids)
        for score in (batched, model.score([text], explain=3, truncate=True)[0]):
            assert len(score.tokens) == len(ids) - 1
            for place, (token, ident) in enumerate(zip(score.tokens, ids[1:], strict=True)):
                wanted = expected[place]
                assert token.log_probability == pytest.approx(float(wanted[ident]), abs=1e-4)
                assert token.entropy == pytest.approx(float(-(wanted.exp() * wanted).sum()), abs=1e-3)
                assert is_rank(token.rank, wanted, ident)
                assert are_best([each.token for each in token.alternatives], wanted, 3)
            assert score.log_probability == math.fsum(each.log_probability for each in score.tokens)
            assert score.perplexity == pytest.approx(math.exp(-score.log_probability / len(score.tokens)))


@pytest.mark.parametrize("name", [BYTES, LLAMA])
def test_next_tokens_are_those_of_transformers_alone_and_in_a_batch(name, loaded, written):
    directory, model = written(name), loaded[name]
    contexts = ("", *TEXTS)
    together = model.next_words(contexts, 7, truncate=True, unit="token")
    for context, batched in zip(contexts, together, strict=True):
        start, *ids = tokens_of(directory, context)
        wanted = reference(directory, [start, *ids[-63:]])[-1].topk(7)
        for found in (batched, model.next_words([context], 7, truncate=True, unit="token")[0]):
            assert [each.token for each in found.words] == wanted.indices.tolist()
            values = [each.log_probability for each in found.words]
            assert values == pytest.approx(wanted.values.tolist(), abs=1e-4)
    assert len(model.next_words(["a"], 10_000, unit="token")[0].words) == model.vocab_size


@pytest.mark.parametrize("name", [BYTES, LLAMA])
def test_tokens_have_their_places_in_the_text(name, loaded):
    text = "I  went <s> to</s> München. <|endoftext|>"
    (score,) = loaded[name].score([text])
    assert "".join(text[each.start : each.end] for each in score.tokens) == text
    spelled = "".join(each.word for each in score.tokens)
    assert spelled == ("" if name == BYTES else " ") + text
    (score,) = loaded[name].score(["a🙂"])  # four tokens, each a byte of one character
    assert [(each.word, each.start, each.end) for each in score.tokens[-4:]] == [
        ("\N{REPLACEMENT CHARACTER}", 1, 2)
    ] * 4


def test_truncation_and_errors(loaded):
    model = loaded[BYTES]
    long = "I " * 100
    with pytest.raises(TextTooLongError, match="tokens; the model's limit is 63"):
        model.score([long])
    with pytest.raises(TextTooLongError):
        model.next_words([long])
    (score,), (following,) = model.score([long], truncate=True), model.next_words([long], truncate=True, unit="token")
    assert len(score.tokens) == 63
    assert score.tokens[0].start == 0
    assert score.truncated == following.truncated > 0
    with pytest.raises(QueryError, match="the text is empty"):
        model.score([""])
    with pytest.raises(QueryError, match="top_k must be at least 1"):
        model.next_words(["a"], 0)
    with pytest.raises(QueryError, match="token ids must be from 0 to 407"):
        model.score_token_query([408])
    (ids,) = model.run_score([model.score_token_query([80, 81])])
    assert [each.start for each in ids.tokens] == [None, None]


def test_without_a_start_token_the_first_token_is_not_scored(loaded, startless):
    model = startless
    texts = ["to the station", "a", "to the"]
    found = model.score(texts, explain=2)
    for text, score in zip(texts, found, strict=True):
        first, *others = score.tokens
        assert (first.scored, first.log_probability, first.rank, first.alternatives) == (False, None, None, ())
        assert all(each.scored for each in others)
        assert model.score([text], explain=2)[0].log_probability == pytest.approx(score.log_probability, abs=1e-4)
    assert (found[1].log_probability, found[1].perplexity) == (0.0, math.inf)
    assert found[0].tokens[1].log_probability != loaded[BYTES].score(["to the station"])[0].tokens[1].log_probability
    with pytest.raises(QueryError, match="no start token"):
        model.next_words([""])


# ---- words ----


class Reference:
    """A causal model by transformers."""

    def __init__(self, directory: Path) -> None:
        self.model = transformers.AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()

    @torch.no_grad()
    def log_probabilities(self, prefixes):
        rows = [self.model(torch.tensor([prefix])).logits[0, -1].double().log_softmax(-1) for prefix in prefixes]
        return torch.stack(rows).numpy()


@pytest.fixture(scope="module")
def vocabularies(loaded: dict[str, CausalLanguageModel]) -> dict[str, WordVocabulary]:
    boundaries = WordBoundaries(punctuation=PUNCTUATION)
    made = {}
    for name, model in loaded.items():
        tokenizer = model.tokenizer
        special = {*range(3 if name == LLAMA else 1), *range(tokenizer.vocab_size, 408)}
        pieces = [None if token in special else tokenizer.word(token) for token in range(408)]
        make = WordVocabulary.of_sentence_pieces if name == LLAMA else WordVocabulary.of_byte_level
        made[name] = make(pieces, boundaries)
    return made


@pytest.mark.parametrize("name", [BYTES, LLAMA])
def test_words_of_texts_have_the_values_of_their_tokens(name, loaded, vocabularies, written):
    model, directory = loaded[name], written(name)
    texts = ["Where is the station?", " I  know,  it's late. ", "naïve 🙂 Straße", "the the"]
    together = model.score(texts, explain=1, unit="word")
    for text, batched in zip(texts, together, strict=True):
        start, *ids = tokens_of(directory, text)
        wanted = score_words(Reference(directory), vocabularies[name], (start,), ids)
        for score in (batched, model.score([text], unit="word")[0]):
            assert [each.word for each in score.words] == [each.text for each in wanted.words]
            assert [text[each.start : each.end] for each in score.words] == [each.text for each in wanted.words]
            assert [each.tokens for each in score.words] == [each.tokens for each in wanted.words]
            values = [each.log_probability for each in score.words]
            assert values == pytest.approx([each.log_probability for each in wanted.words], abs=1e-4)
            assert score.words[0].surprisal == pytest.approx(-values[0] / math.log(2))
    assert model.score(["the"])[0].words is None
    assert [each.word for each in together[1].words] == ["I", "know", ",", "it's", "late", "."]


@pytest.mark.parametrize("name", [BYTES, LLAMA])
def test_next_words_are_those_of_a_search_with_transformers(name, loaded, vocabularies, written):
    model, directory = loaded[name], written(name)
    contexts = ["", "Where is the ", "I know"]
    for context, found in zip(contexts, model.next_words(contexts, 6), strict=True):
        prefix = tokens_of(directory, context.rstrip())
        wanted = next_words(
            Reference(directory), vocabularies[name], prefix, 6, max_prefixes=256, negligible=1e-5, longest=64
        )
        words = [(each.word, each.probability) for each in wanted.words]
        ours = [(each.word, each.probability) for each in found.words if not each.sentence_end]
        assert [word for word, _ in ours] == [word for word, _ in words][: len(ours)]
        assert [value for _, value in ours] == pytest.approx([value for _, value in words][: len(ours)], abs=1e-4)
        assert len(ours) >= 5
        assert found.certain == wanted.certain
        assert found.probability_left == pytest.approx(wanted.left, abs=1e-3)
        assert found.entropy is None
        masses = [each.probability for each in found.words]
        assert masses == sorted(masses, reverse=True)
        assert all(each.probability <= each.upper_bound for each in found.words)


def test_words_after_the_longest_context(loaded):
    model = loaded[BYTES]
    long = "I " * 100
    (found,) = model.next_words([long], 3, truncate=True)
    (tokens,) = model.next_words([long.rstrip()], 3, truncate=True, unit="token")
    assert (found.unit, tokens.unit) == ("word", "token")
    assert found.truncated == tokens.truncated > 0
    assert found.probability_left > 0  # no token can follow the first one of a word


def test_the_first_word_is_not_scored_without_a_start_token(startless):
    model = startless
    (found,) = model.score(["Where is the station?"], unit="word")
    first, *others = found.words
    assert (first.word, first.log_probability, first.surprisal) == ("Where", None, None)
    assert [each.word for each in others] == ["is", "the", "station", "?"]
    assert all(each.log_probability < 0 for each in others)
    with pytest.raises(QueryError, match="no start token"):
        model.next_words([" "])


LONG = "Where is the museum, naïve 🙂 Straße?  I know the station. " * 5


@torch.no_grad()
def strided_rows(directory: Path, before: list[int], ids: list[int], limit: int, stride: int) -> torch.Tensor:
    """Return the log-probabilities of each token and of what follows the last one, each read in its window.

    A window has `limit` tokens after those `before`, and scores those that no window before has, as in "Perplexity of
    fixed-length models" of transformers' documentation. Where nothing is read before the first token, its row is zero.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()
    rows = []
    for place in range(len(ids) + 1):
        scored = min(place, len(ids) - 1)
        begin = stride * max(0, math.ceil((scored + 1 - limit) / stride))
        read = [*before, *ids[begin:place]]
        rows.append(model(torch.tensor([read])).logits[0, -1].log_softmax(-1) if read else torch.zeros(408))
    return torch.stack(rows)


@pytest.mark.parametrize("name", [BYTES, LLAMA, ""])
@pytest.mark.parametrize("stride", [1, 20, 62])
def test_long_texts_are_scored_in_windows(name, stride, loaded, startless, vocabularies, written):
    model, name = (loaded[name], name) if name else (startless, BYTES)
    first, *ids = tokens_of(written(name), LONG)
    before = [first] if model is not startless else []
    rows = strided_rows(written(name), before, ids, 63, stride)
    (found,) = model.score([LONG], explain=2, unit="word", stride=stride)
    unscored = 0 if before else 1
    assert len(ids) > 3 * 63
    assert [each.scored for each in found.tokens] == [False] * unscored + [True] * (len(ids) - unscored)
    scored = list(zip(found.tokens, ids, rows[:-1], strict=True))[unscored:]
    for token, ident, row in scored:
        assert token.log_probability == pytest.approx(float(row[ident]), abs=1e-4)
        assert token.entropy == pytest.approx(float(-(row.exp() * row).sum()), abs=1e-3)
        assert is_rank(token.rank, row, ident)
        assert are_best([each.token for each in token.alternatives], row, 2)
    total = sum(float(row[ident]) for _, ident, row in scored)
    size = len(LONG.encode()) - (len("Wh") if unscored else 0)
    assert before or found.tokens[0].word == "Wh"
    assert found.bits_per_byte == pytest.approx(-total / math.log(2) / size, rel=1e-5)
    wanted = score_rows(vocabularies[name], before, ids, rows.double().numpy())
    assert [each.word for each in found.words] == [each.text for each in wanted.words]
    assert [LONG[each.start : each.end] for each in found.words] == [each.text for each in wanted.words]
    values = [each.log_probability for each in found.words[unscored:]]
    assert values == pytest.approx([each.log_probability for each in wanted.words[unscored:]], abs=2e-4)
    for word in found.words:
        assert word.entropy == found.tokens[word.tokens[0]].entropy
        assert word.token_count == len(found.tokens[slice(*word.tokens)])
    (again,) = model.score([LONG], stride=stride)
    assert again.log_probability == pytest.approx(found.log_probability, abs=1e-3)
    assert again.words is None


def test_short_texts_are_the_same_with_a_stride(loaded):
    model = loaded[LLAMA]
    found, wanted = model.score(["I know", LONG], stride=8), model.score(["I know"])
    assert found[0].log_probability == pytest.approx(wanted[0].log_probability, abs=1e-4)
    assert isinstance(model.score_query("I know", stride=8), ScoreTextQuery)
    query = model.score_query(LONG, stride=8, explain=2)
    assert query.result_items == 3 * query.text.length == sum(each.result_items for each in query.parts())


def test_strides_that_are_refused(loaded, startless):
    for stride in (0, 64):
        with pytest.raises(QueryError, match="stride must be from 1 to 63"):
            loaded[BYTES].score(["a"], stride=stride)
    with pytest.raises(QueryError, match="stride must be from 1 to 62"):
        startless.score(["a"], stride=63)
    with pytest.raises(QueryError, match="either stride or truncate"):
        loaded[BYTES].score(["a"], stride=8, truncate=True)
    with pytest.raises(TextTooLongError, match="tokens with this stride; the model's limit is 79"):
        loaded[BYTES].score_query(LONG, stride=8, max_windows=3)
    with pytest.raises(TextTooLongError, match="characters with this stride"):
        loaded[BYTES].score_query("a" * 64 * 80, stride=8, max_windows=3)


def test_bits_per_byte_are_those_of_the_text_that_was_read(loaded, startless):
    for model, text in ((loaded[BYTES], "naïve 🙂"), (loaded[LLAMA], "naïve 🙂"), (startless, "the 🙂")):
        (score,) = model.score([text])
        unscored = 0 if model is not startless else score.tokens[0].end
        size = len(text[unscored:].encode())
        assert score.bits_per_byte == pytest.approx(-score.log_probability / math.log(2) / size)
    (score,) = loaded[BYTES].score(["I " * 100], truncate=True)
    assert score.scored_bytes == score.tokens[-1].end < 200
    assert startless.score(["a"])[0].bits_per_byte is None
    assert loaded[BYTES].run_score([loaded[BYTES].score_token_query([80, 81])])[0].bits_per_byte is None


def test_words_outside_the_vocabulary_have_no_probability(loaded, monkeypatch):
    model = loaded[LLAMA]
    monkeypatch.setattr(model.tokenizer, "split", lambda text: ([model.config.special_tokens.unknown], [(0, 1)]))
    assert model.score(["☃"])[0].tokens[0].unknown
    with pytest.raises(QueryError, match="'☃' is outside the vocabulary"):
        model.score(["☃"], unit="word")


def test_a_context_whose_word_always_goes_on_harms_no_other(loaded, monkeypatch):
    model = loaded[BYTES]
    (expected,) = model.next_words(["I know"], 3)
    following, words = model.following, model._words

    def going_on(path, hidden, tokens):
        rows = following(path, hidden, tokens)
        if path.tokens[-1] == model.tokenizer.encode("station")[-1]:
            rows[:, ~words.continuation(State.AFTER_LETTERS).excluded] = -math.inf
        return rows

    monkeypatch.setattr(model, "following", going_on)
    found, other = model.next_words(["station", "I know"], 3)
    assert (found.words, found.probability_left, found.certain) == ((), 1.0, False)
    assert [each.word for each in other.words] == [each.word for each in expected.words]


@pytest.mark.parametrize("name", [BYTES, LLAMA])
def test_texts_that_share_beginnings_are_read_in_parts(name, loaded, monkeypatch):
    """Whatever fits into a run of the network, and whatever texts are together, scores are the same."""
    model = loaded[name]
    texts = [
        f"{start}{end}" for start in ("Where is the", "Where are", "I") for end in ("", " station?", " stations", "s")
    ]
    alone = [model.score([text], explain=2, unit="word")[0] for text in texts]
    following = [model.next_words([text], 3, unit="token")[0] for text in texts]
    counts, read, run = [], [], model._reader._run

    def counted(tokens, *others):
        read.append(tokens.size)
        return run(tokens, *others)

    monkeypatch.setattr(model._reader, "_run", counted)
    for nodes, positions in ((1, 1), (3, 2), (7, 1000), (1000, 5)):
        monkeypatch.setattr(model._reader, "_most_nodes", nodes)
        monkeypatch.setattr(model._predictor, "most_positions", positions)
        read.clear()
        for wanted, found in zip(alone, model.score(texts, explain=2, unit="word"), strict=True):
            ours, theirs = ([each.log_probability for each in one.tokens] for one in (found, wanted))
            assert ours == pytest.approx(theirs, abs=1e-4)
            assert [each.rank for each in found.tokens] == [each.rank for each in wanted.tokens]
            assert [each.entropy for each in found.tokens] == pytest.approx(
                [each.entropy for each in wanted.tokens], abs=1e-4
            )
            assert [each.log_probability for each in found.words] == pytest.approx(
                [each.log_probability for each in wanted.words], abs=1e-4
            )
        counts.append(sum(read))
        assert max(read) <= nodes
        for wanted, found in zip(following, model.next_words(texts, 3, unit="token"), strict=True):
            assert [each.token for each in found.words] == [each.token for each in wanted.words]
    assert len(set(counts)) == 1
    assert counts[0] < sum(1 + len(each.tokens) for each in alone) / 2


# ---- imports ----


def test_the_manifest_describes_the_network(bundles):
    manifest = read_manifest(bundles[LLAMA])
    assert manifest.task == "causal-language-model"
    assert manifest.config.network.model_dump() == {
        "kind": "causal-transformer",
        "architecture": LLAMA,
        "layers": 2,
        "hidden_size": 48,
        "inner_size": 96,
        "heads": 4,
        "key_value_heads": 2,
        "head_size": 12,
        "positions": 64,
        "sliding_window": None,
        "outputs": 408,
    }
    assert manifest.config.special_tokens.model_dump() == {"unknown": 0, "start": 1, "end": 2}
    assert manifest.config.limits.max_tokens == 63
    assert manifest.provenance.source.largest_difference < 1e-4


def test_a_start_token_is_that_of_the_tokenizer(written):
    assert importer(written(BYTES)).special_tokens.start == 0
    assert importer(written("Qwen2ForCausalLM", "no-start", start=False)).special_tokens.start is None
    assert importer(written(LLAMA), max_tokens=10).max_tokens == 10
    with pytest.raises(ImportRefused, match="--max-tokens must lie between 1 and 63, not 64"):
        importer(written(LLAMA), max_tokens=64)


ROPE = FAMILIES[LLAMA]["rope_parameters"]


@pytest.mark.parametrize(
    ("architecture", "fields", "message"),
    [
        (LLAMA, {"rope_parameters": {**ROPE, "rope_type": "yarn"}}, "rope_type 'yarn' is not supported"),
        (LLAMA, {"unheard_of": 5}, "fields that no import understands: unheard_of"),
        (LLAMA, {"hidden_act": "mish"}, "hidden_act must be one of"),
        (BYTES, {"scale_attn_by_inverse_layer_idx": True}, "is not supported"),
        (LLAMA, {"num_hidden_layers": 3}, "describes .* parameters, the weights have"),
        (LLAMA, {"num_hidden_layers": 1}, "weights that no LlamaForCausalLM has: model.layers.1"),
        (LLAMA, {"vocab_size": 300}, "the tokenizer has a token"),
        (LLAMA, {"intermediate_size": 95}, "gate_proj.weight has shape"),
    ],
)
def test_what_is_not_understood_is_refused(architecture, fields, message, written, tmp_path):
    directory = Path(shutil.copytree(written(architecture), tmp_path / "it"))
    with pytest.raises(ImportRefused, match=message):
        importer(set_config(directory, **fields))


def test_int8_weights_keep_most_next_tokens(tmp_path):
    directory = write_causal(tmp_path / "it", BYTES, n_layer=1)
    found = import_directory(directory, tmp_path, SAMPLES, quantization="int8")
    assert found.manifest.quantization.kind == "int8-weights"
    assert found.cost.metric == "same most probable next token as float32"
    assert found.cost.value > 0.9
    assert 0 < found.cost.difference < 0.1
    stored = (found.path / "weights.bin").stat().st_size  # matrices of less than 4,096 weights stay float32
    assert stored < 0.7 * (directory / "model.safetensors").stat().st_size


# ---- over HTTP ----


@pytest.fixture(scope="module")
def client(bundles):
    root = bundles[BYTES].parents[1]
    names = (BYTES.lower(), LLAMA.lower())
    with TestClient(create_app(Settings(model_dirs=(root,), models=names, threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def test_scores_over_http(client, loaded):
    for name in (BYTES, LLAMA):
        body = {"model": name.lower(), "text": list(TEXTS[:3]), "explain": True, "top_k": 2}
        answer = client.post("/v1/score", json=body)
        assert answer.status_code == 200, answer.text
        for found, wanted in zip(answer.json()["results"], loaded[name].score(TEXTS[:3], explain=2), strict=True):
            assert found["log_probability"] == pytest.approx(wanted.log_probability, abs=1e-4)
            for token, theirs in zip(found["tokens"], wanted.tokens, strict=True):
                assert (token["word"], token["start"], token["end"]) == (theirs.word, theirs.start, theirs.end)
                assert abs(token["rank"] - theirs.rank) <= 1  # almost equal ones, in another batch
                assert "scored" not in token
                assert [each["token"] for each in token["alternatives"]] == [each.token for each in theirs.alternatives]
    assert client.post("/v1/score", json={"model": LLAMA.lower(), "text": ""}).status_code == 422


def test_long_texts_over_http_and_by_the_command(client, loaded, bundles, tmp_path, capsys):
    body = {"model": BYTES.lower(), "text": ["I know", LONG], "unit": "word", "explain": True, "stride": 32}
    answer = client.post("/v1/score", json=body)
    assert answer.status_code == 200, answer.text
    wanted = loaded[BYTES].score(body["text"], unit="word", explain=5, stride=32)
    (tmp_path / "in.txt").write_text(f"I know\n{LONG.strip()}\n")
    command = command_of(SCORE)
    model = ModelOptions(model=BYTES.lower(), model_dirs=(bundles[BYTES].parents[1],), threads=1)
    chosen = {"unit": "word", "explain": True, "top_k": 5, "stride": 32}
    for form in ("jsonl", "tsv", "csv"):
        files = FileOptions(output=tmp_path / f"out.{form}", format=form)
        assert command(model, files, file=tmp_path / "in.txt", text=(), **chosen) == 0
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    with (tmp_path / "out.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [int(each["line"]) for each in table] == [1] * len(lines[0]["words"]) + [2] * len(lines[1]["words"])
    for each, word in zip(table, [*lines[0]["words"], *lines[1]["words"]], strict=True):
        assert (each["word"], each["rank"], each["error"]) == (word["word"], "", "")
        for name in ("start", "end", "token_count", "log_probability", "surprisal", "entropy"):
            assert float(each[name]) == pytest.approx(word[name], abs=1e-4)
    for found, theirs, line, row in zip(answer.json()["results"], wanted, lines, rows, strict=True):
        assert found["bits_per_byte"] == pytest.approx(theirs.bits_per_byte, rel=1e-4)
        assert line["bits_per_byte"] == pytest.approx(theirs.bits_per_byte, rel=0.02)  # without the last space
        assert float(row[2]) == pytest.approx(line["bits_per_byte"], abs=1e-4)
        for member in (found, line):
            assert [each["entropy"] for each in member["words"]] == pytest.approx(
                [each.entropy for each in theirs.words], abs=1e-3
            )
            assert [each["token_count"] for each in member["words"]] == [each.token_count for each in theirs.words]
            assert [each["start"] for each in member["words"]] == [each.start for each in theirs.words]
    body = {"model": BYTES.lower(), "text": "I know", "unit": "word"}
    found = client.post("/v1/score", json=body).json()["results"][0]
    assert "entropy" not in found["words"][0]
    assert client.post("/v1/score", json={**body, "text": LONG}).status_code == 422
    assert client.post("/v1/score", json={**body, "stride": 64}).status_code == 422


def test_next_tokens_over_http(client, loaded):
    body = {"model": BYTES.lower(), "context": ["", "We will"], "top_k": 4, "unit": "token"}
    answer = client.post("/v1/next-word", json=body)
    assert answer.status_code == 200, answer.text
    for found, wanted in zip(
        answer.json()["results"], loaded[BYTES].next_words(["", "We will"], 4, unit="token"), strict=True
    ):
        assert found["unit"] == "token"
        assert [(each["word"], each["token"]) for each in found["words"]] == [
            (each.word, each.token) for each in wanted.words
        ]
        assert found["entropy"] == pytest.approx(wanted.entropy, abs=1e-4)
        assert "certain" not in found


def test_words_over_http(client, loaded):
    answer = client.post("/v1/next-word", json={"model": BYTES.lower(), "context": ["", "We will"], "top_k": 4})
    assert answer.status_code == 200, answer.text
    for found, wanted in zip(answer.json()["results"], loaded[BYTES].next_words(["", "We will"], 4), strict=True):
        assert (found["unit"], found["certain"]) == ("word", wanted.certain)
        assert "entropy" not in found
        assert found["probability_left"] == pytest.approx(wanted.probability_left, abs=1e-4)
        assert [each["word"] for each in found["words"]] == [each.word for each in wanted.words]
        for each, theirs in zip(found["words"], wanted.words, strict=True):
            assert each["log_probability"] == pytest.approx(theirs.log_probability, abs=1e-4)
            assert each["upper_bound"] == pytest.approx(theirs.upper_bound, abs=1e-4)
    answer = client.post("/v1/score", json={"model": LLAMA.lower(), "text": "We will go.", "unit": "word"})
    (found,), (wanted,) = answer.json()["results"], loaded[LLAMA].score(["We will go."], unit="word")
    assert [each["word"] for each in found["words"]] == ["We", "will", "go", "."]
    for each, theirs in zip(found["words"], wanted.words, strict=True):
        assert each["tokens"] == list(theirs.tokens)
        assert each["surprisal"] == pytest.approx(theirs.surprisal, abs=1e-4)
    answer = client.post("/v1/score", json={"model": LLAMA.lower(), "text": "We will go."})
    assert "words" not in answer.json()["results"][0]


def test_lists_are_rescored(client, loaded):
    texts = ["Where is the station?", "Where is the stations?", "Wear is the station?"]
    hypotheses = [{"text": text, "score": score} for text, score in zip(texts, (-2.0, -1.0, -3.0), strict=True)]
    body = {"model": LLAMA.lower(), "hypotheses": hypotheses, "lm_weight": 0.5, "length_reward": 1.0}
    answer = client.post("/v1/rescore", json=body)
    assert answer.status_code == 200, answer.text
    scores = [each.log_probability for each in loaded[LLAMA].score(texts)]
    totals = [each["score"] + 0.5 * score + 4.0 for each, score in zip(hypotheses, scores, strict=True)]
    found = answer.json()["results"][0]["hypotheses"]
    assert [each["place"] for each in found] == sorted(range(3), key=lambda place: -totals[place])
    assert [each["total"] for each in found] == pytest.approx(sorted(totals, reverse=True), abs=1e-3)


# ---- completions ----


def greedy(directory: Path, ids: list[int], count: int) -> list[int]:
    """Return the most probable tokens after some tokens, by transformers."""
    found = list(ids)
    for _ in range(count):
        found.append(int(reference(directory, found)[-1].argmax()))
        if found[-1] == transformers.AutoTokenizer.from_pretrained(directory).eos_token_id:
            break
    return found[len(ids) :]


def complete(client, name, **fields):
    answer = client.post("/v1/completions", json={"model": name.lower(), "temperature": 0, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("name", [BYTES, LLAMA])
def test_greedy_completions_are_those_of_transformers(name, client, written):
    directory = written(name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    for prompt in ("Where is the", "naïve 🙂"):
        ids = tokenizer(prompt)["input_ids"]  # with the start token where the tokenizer puts it
        expected = greedy(directory, ids, 6)
        answers = [complete(client, name, prompt=each, max_tokens=6, logprobs=2) for each in (prompt, ids)]
        choices = [answer["choices"][0] for answer in answers]
        for choice in choices:
            logged = choice["logprobs"]
            row = reference(directory, ids)[-1]
            assert logged["token_logprobs"][0] == pytest.approx(float(row.max()), abs=1e-4)
            assert len(logged["tokens"]) == len(expected)
            assert list(logged["top_logprobs"][0].values()) == pytest.approx(row.topk(2).values.tolist(), abs=1e-4)
        pieces = b"".join(bytes_of(tokenizer, token, name) for token in expected)
        assert {choice["text"] for choice in choices} == {pieces.decode(errors="replace")}
        assert [answer["usage"]["prompt_tokens"] for answer in answers] == [len(ids)] * 2


def bytes_of(tokenizer, token, name):
    """Return the bytes of a token by the vocabulary of transformers."""
    if token in tokenizer.all_special_ids or token >= len(tokenizer):
        return b""
    spelled = tokenizer.convert_ids_to_tokens(token)
    if name == LLAMA:
        return bytes.fromhex(spelled[3:5]) if spelled.startswith("<0x") else spelled.replace("▁", " ").encode()
    return byte_level_pieces([spelled])[0]


@pytest.mark.parametrize("name", [BYTES, LLAMA])
def test_penalties_and_biases_change_what_is_drawn_and_not_what_is_reported(name, client, written):
    """Log-probabilities less penalties by OpenAI's formula, plus biases, in numpy."""
    directory = written(name)
    ids = transformers.AutoTokenizer.from_pretrained(directory)("Where is the")["input_ids"]
    favoured, banned = 300, int(reference(directory, ids)[-1].argmax())
    bias = np.zeros(408)
    bias[[favoured, banned]] = 7.0, -100.0
    for frequency, presence in ((0.0, 0.0), (1.25, 0.5), (-0.5, -2.0)):
        counts, expected, values = np.zeros(408), list(ids), []
        for _ in range(8):
            row = reference(directory, expected)[-1].numpy().astype(np.float64)
            token = int(np.argmax(row + bias - frequency * counts - presence * (counts > 0)))
            counts[token] += 1
            expected.append(token)
            values.append(row[token])
        fields = {"frequency_penalty": frequency, "presence_penalty": presence}
        biases = {str(favoured): 7, str(banned): -100}
        found = complete(client, name, prompt=ids, max_tokens=8, logprobs=0, logit_bias=biases, **fields)["choices"][0]
        assert favoured in expected
        assert banned not in expected[len(ids) :]
        assert found["logprobs"]["token_logprobs"] == pytest.approx(values, abs=1e-4)
        pieces = [bytes_of(transformers.AutoTokenizer.from_pretrained(directory), each, name) for each in expected]
        assert found["text"] == b"".join(pieces[len(ids) :]).decode(errors="replace")


@pytest.mark.parametrize("name", [BYTES, LLAMA])
def test_tokens_of_prompts_have_their_ranks(name, client, written):
    directory = written(name)
    ids = transformers.AutoTokenizer.from_pretrained(directory)("Where is 🙂")["input_ids"]
    rows = reference(directory, ids)
    for count in (0, 3):
        found = complete(client, name, prompt=[ids, ids[:1]], max_tokens=1, prompt_logprobs=count)["choices"]
        assert [each["prompt_logprobs"][0] for each in found] == [None, None]
        assert len(found[0]["prompt_logprobs"]) == len(ids)
        assert len(found[1]["prompt_logprobs"]) == 1
        for row, token, entries in zip(rows, ids[1:], found[0]["prompt_logprobs"][1:], strict=False):
            best = row.topk(count).indices.tolist()
            assert list(entries) == list(dict.fromkeys(map(str, [token, *best])))
            for key, entry in entries.items():
                assert entry["logprob"] == pytest.approx(float(row[int(key)]), abs=1e-4)
                assert is_rank(entry["rank"], row, int(key))
    assert found[0]["prompt_logprobs"][-1][str(ids[-1])]["decoded_token"].startswith("bytes:")
    echoed = complete(client, name, prompt=ids, max_tokens=0, echo=True, logprobs=1, prompt_logprobs=3)["choices"][0]
    for logged, entries in zip(echoed["logprobs"]["top_logprobs"][1:], echoed["prompt_logprobs"][1:], strict=True):
        assert len(logged) <= 2
        assert len(entries) >= 3
        assert next(iter(entries.values()))["logprob"] in logged.values()
    assert complete(client, name, prompt="", max_tokens=1, prompt_logprobs=1)["choices"][0]["prompt_logprobs"] == (
        [] if name == BYTES else [None]
    )


def test_the_best_of_several_have_the_largest_log_probability_per_token(client):
    fields = {"prompt": ["Where", "I"], "temperature": 1.5, "seed": 3, "max_tokens": 5, "logprobs": 1}
    every, best = complete(client, BYTES, n=5, **fields), complete(client, BYTES, n=2, best_of=5, **fields)
    for first in (0, 1):
        group = every["choices"][5 * first : 5 * first + 5]
        group.sort(key=lambda each: -np.mean(each["logprobs"]["token_logprobs"]))
        assert [each["text"] for each in best["choices"][2 * first : 2 * first + 2]] == [
            each["text"] for each in group[:2]
        ]
    assert best["usage"] == every["usage"]


@pytest.mark.parametrize("name", [BYTES, LLAMA])
def test_echoed_log_probabilities_are_those_of_transformers(name, client, written):
    """What `lm_eval` asks for: token ids as they are, a token more, and the log-probability of each but the first."""
    directory = written(name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    texts = ["Where is the station?", "a 🙂", "I know"]
    prompts = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    found = complete(client, name, prompt=prompts, max_tokens=1, logprobs=1, echo=True)
    for text, ids, choice in zip(texts, prompts, found["choices"], strict=True):
        rows, logged = reference(directory, ids), choice["logprobs"]
        assert logged["token_logprobs"][0] is None
        wanted = [float(rows[place][token]) for place, token in enumerate(ids[1:])]
        assert logged["token_logprobs"][1:-1] == pytest.approx(wanted, abs=1e-4)
        assert logged["token_logprobs"][-1] == pytest.approx(float(rows[-1].max()), abs=1e-4)
        for place, top in enumerate(logged["top_logprobs"][1:]):
            assert max(top.values()) == pytest.approx(float(rows[place].max()), abs=1e-4)
        assert choice["text"].lstrip().startswith(text)
        spelled = [each for each in logged["tokens"] if each.startswith("bytes:")]
        assert len(spelled) >= (4 if "🙂" in text else 0)
        for offset, token in zip(logged["text_offset"], logged["tokens"], strict=True):
            assert token.startswith("bytes:") or "🙂" in text or choice["text"][offset:].startswith(token)


def test_a_text_is_read_after_the_start_token_that_its_tokenizer_puts_there(client, loaded):
    assert not loaded[BYTES].puts_start
    assert loaded[LLAMA].puts_start
    for name in (BYTES, LLAMA):
        found = complete(client, name, prompt="I know", max_tokens=0, logprobs=0, echo=True)["choices"][0]
        values = found["logprobs"]["token_logprobs"]
        assert found["text"] == "I know"
        if name == LLAMA:
            (score,) = loaded[name].score(["I know"])
            assert values[1:] == pytest.approx([each.log_probability for each in score.tokens], abs=1e-4)
        assert values[0] is None
    assert complete(client, BYTES, prompt="", max_tokens=2)["usage"] == {
        "prompt_tokens": 0,
        "completion_tokens": 2,
        "total_tokens": 2,
    }


def tokens_read(graph, inputs, _):
    """Yield the number of tokens of each text that a run reads."""
    return [inputs["tokens"].shape[1]] if graph == "read" else []


@pytest.mark.parametrize("cache", [0, 1, 1 << 20])
def test_texts_that_are_written_are_the_same_with_any_cache(cache, bundles, loaded, monkeypatch):
    """Whatever is kept of the keys and values, and whatever texts are written together."""
    model = load_bundle(bundles[BYTES], threads=1)
    lookups, runs = [], []
    if cache:
        model.use_cache(cache, lookups.append)
    run = model.backend.run
    monkeypatch.setattr(model.backend, "run", lambda *given: (runs.extend(tokens_read(*given)), run(*given))[1])
    starts = [tuple(model.token_ids(text)) for text in ("Where is", "Where is the", "I", "I")]
    alone = []
    for start in starts:
        text = start
        for _ in range(5):
            text += (loaded[BYTES].run_draws([DrawQuery(text, goes_on=False)])[0].token,)
        alone.append(text)
    read, after, texts = list(starts), [None] * 4, list(starts)
    for step in range(5):
        runs.clear()
        drawn = model.run_draws([DrawQuery(tokens, before) for tokens, before in zip(read, after, strict=True)])
        assert not step or set(runs) == {1}
        read, after = [(each.token,) for each in drawn], [each.prefix for each in drawn]
        texts = [(*text, each.token) for text, each in zip(texts, drawn, strict=True)]
    assert texts == alone
    # A text that is being written needs no cache; another one that begins like it finds it there.
    assert lookups == [False] * 3 * (cache > 0)
    lookups.clear()
    model.run_draws([DrawQuery((*text, 5)) for text in texts[:1]])
    assert lookups == [cache > 1] * (cache > 0)
    assert model._paths.bytes <= cache


def test_a_model_says_what_its_longest_text_takes_in_the_cache(bundles):
    model = load_bundle(bundles[LLAMA], threads=1)
    model.use_cache(1 << 30)
    model.run_next_words([model.next_words_query("Where is the station? " * 100, 1, truncate=True)])
    tokens = 1 + model.config.limits.max_tokens
    keys_values = model._paths.bytes - 40 * tokens
    assert model.longest_cached <= keys_values <= model.longest_cached + 1024 * tokens


def test_a_salt_keeps_paths_apart(bundles):
    model = load_bundle(bundles[BYTES], threads=1)
    lookups = []
    model.use_cache(1 << 20, lookups.append)
    one, other = model.with_cache_salt("one"), model.with_cache_salt("other")
    for each in (one, other, one):
        model.run_next_words([each.next_words_query("Where is the", 1)])
        model.run_next_words([each.next_words_query("Where is the station", 1)])
    assert lookups == [False, True, False, True, True, True]


def test_a_seed_draws_the_same_text_with_others(client):
    one = complete(client, BYTES, prompt="Where", temperature=1.0, seed=3, max_tokens=8, n=2)
    both = complete(client, BYTES, prompt=["Where", "I"], temperature=1.0, seed=3, max_tokens=8, n=2, top_p=0.95)
    again = complete(client, BYTES, prompt="Where", temperature=1.0, seed=3, max_tokens=8, n=2)
    assert [each["text"] for each in one["choices"]] == [each["text"] for each in again["choices"]]
    assert len(both["choices"]) == 4
    assert one["choices"][0]["text"] != one["choices"][1]["text"]


@pytest.mark.parametrize("name", [BYTES, LLAMA])
def test_ids_and_back(name, client, loaded, written):
    tokenizer = transformers.AutoTokenizer.from_pretrained(written(name))
    text = "naïve 🙂  you"
    for special in (True, False):
        body = {"model": name.lower(), "prompt": text, "add_special_tokens": special, "return_token_strs": True}
        found = client.post("/tokenize", json=body).json()
        assert found["tokens"] == tokenizer(text, add_special_tokens=special)["input_ids"]
        assert found["count"] == len(found["token_strs"])
        answer = client.post("/detokenize", json={"model": name.lower(), "tokens": found["tokens"]})
        assert answer.json()["prompt"].lstrip(" ") == text
    end = tokenizer.eos_token
    found = client.post("/tokenize", json={"model": name.lower(), "prompt": end, "add_special_tokens": False}).json()
    assert found["tokens"] == [tokenizer.eos_token_id]
    info = client.get("/tokenizer_info", params={"model": name.lower()}).json()
    assert info["add_bos_token"] == loaded[name].puts_start
    assert info["eos_token"] == tokenizer.eos_token


def test_prompts_that_are_refused(client):
    long = {"model": BYTES.lower(), "prompt": [5] * 60, "max_tokens": 4}
    answer = client.post("/v1/completions", json=long)
    assert answer.status_code == 400
    assert "more than the 63 tokens" in answer.text
    answer = client.post("/v1/completions", json={"model": BYTES.lower(), "prompt": [408], "max_tokens": 4})
    assert answer.status_code == 400
    answer = client.post("/v1/completions", json={"model": BYTES.lower(), "prompt": "a", "logit_bias": {"408": 1}})
    assert answer.status_code == 400
    assert "logit_bias: token ids must be from 0 to 407, not 408" in answer.text
