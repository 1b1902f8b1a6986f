"""The import of MarianMT models, against transformers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers

from models import QueryError
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.reading import load_manifest, parse_manifest, sha256_of, validate
from models.store import load_bundle
from models.tasks.translation import Translator
from models.text.protection import Protection
from tests.fixtures.marian import LANGUAGES, import_tiny
from tests.support.marian_directory import SENTENCES
from training.bundling.attention_output import contract_with_attention, with_attention
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions
from training.importing.marian import MarianImporter
from training.importing.source import open_source

LIMIT = 40
"""Longest outputs of searches that are compared."""


@pytest.fixture(scope="module")
def reference(marian_directory: Path) -> Any:
    return transformers.MarianMTModel.from_pretrained(marian_directory).eval()


@pytest.fixture(scope="module")
def translator(marian_bundle: Path) -> Translator:
    model = load_bundle(marian_bundle)
    assert isinstance(model, Translator)
    return model


def sources(
    translator: Translator, count: int = 12, options: SearchOptions | None = None, beam: int = 1
) -> list[SourceSequence]:
    """Return searches for random sources of several lengths."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 20, count)
    tokens = [tuple(generator.integers(2, translator.config.vocab_size - 1, length).tolist()) for length in lengths]
    return [SourceSequence(each, beam, options or SearchOptions(), LIMIT) for each in tokens]


def generated(reference: Any, query: SourceSequence, **options: Any) -> list[tuple[list[int], float | None]]:
    """Return token ids without start and end of what transformers generates, best first, and their scores."""
    start, end = reference.config.decoder_start_token_id, reference.config.eos_token_id
    found = reference.generate(
        torch.tensor([[*query.tokens, end]]),
        num_beams=query.beam_size,
        num_return_sequences=query.options.n_best,
        do_sample=False,
        max_length=LIMIT + 2,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    scores = found.sequences_scores.tolist() if query.beam_size > 1 else [None] * len(found.sequences)
    rows = [row[1:] for row in found.sequences.tolist()]
    return [
        ([token for token in (row[: row.index(end)] if end in row else row) if token != start], score)
        for row, score in zip(rows, scores, strict=True)
    ]


# ---- search ----


def test_greedy_search_finds_what_transformers_does(translator, reference):
    queries = sources(translator)
    found = [list(each[0].tokens) for each in translator.decoder.search(queries)]
    assert found == [generated(reference, query)[0][0] for query in queries]
    assert len(set(map(tuple, found))) > len(found) / 2  # outputs depend on the source
    assert np.mean([len(set(tokens)) for tokens in found]) > 3  # and on the position
    assert sum(len(tokens) < LIMIT for tokens in found) > len(found) / 4  # and some end by themselves


@pytest.mark.parametrize(("beam", "stop", "early"), [(2, "exact", "never"), (4, "exact", "never"), (4, "full", True)])
def test_beam_search_finds_what_transformers_does(translator, reference, beam, stop, early):
    queries = sources(translator, 24, SearchOptions(n_best=beam, stop=stop), beam)
    compared = 0
    for query, found in zip(queries, translator.decoder.search(queries), strict=True):
        expected = generated(reference, query, early_stopping=early, length_penalty=1.0)
        if any(len(tokens) >= LIMIT for tokens in [*(each.tokens for each in found), *(some for some, _ in expected)]):
            continue  # what the limit cuts off ranks behind what ended, here alone
        assert [list(each.tokens) for each in found] == [tokens for tokens, _ in expected]
        assert [each.score for each in found] == pytest.approx([score for _, score in expected], abs=1e-4)
        compared += 1
    assert compared >= 4


def test_texts_have_the_tokens_and_translations_of_transformers(translator, reference, marian_directory, recwarn):
    tokenizer = transformers.MarianTokenizer.from_pretrained(marian_directory)
    for text in SENTENCES[:5]:
        (translation,) = translator.translate([text], 1, protection=Protection(()))[0].translations
        (part,) = translator.query(text, 1, protection=Protection(())).parts()
        inputs = tokenizer(text, return_tensors="pt")
        assert inputs["input_ids"][0].tolist() == [*part.tokens, 0]
        output = reference.generate(**inputs, num_beams=1, do_sample=False, max_length=part.max_tokens + 2)
        assert translation.text == tokenizer.decode(output[0][: part.max_tokens + 1], skip_special_tokens=True)


# ---- the bundle ----


def test_the_bundle_is_sound_and_says_what_it_is(marian_bundle, marian_directory):
    manifest = load_manifest(marian_bundle)
    assert validate(marian_bundle) == []
    assert manifest.softmax.bias
    assert manifest.config.network.model_dump() == {
        "kind": "transformer",
        "hidden_size": 32,
        "inner_size": 64,
        "heads": 4,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "norm": "post",
        "activation": "silu",
        "positions": 96,
    }
    assert manifest.config.special_tokens.model_dump() == {"unknown": 1, "end": 0, "start": 419}
    assert manifest.config.limits.max_tokens == 95
    assert manifest.config.languages.model_dump(exclude_defaults=True) == {"source": "de", "target": "en"}
    assert manifest.provenance.source.largest_difference <= 1e-4
    used = {"config.json", "generation_config.json", "model.safetensors", "source.spm", "vocab.json"}
    assert used < set(manifest.provenance.source.files) <= {file.name for file in marian_directory.iterdir()}


def test_padding_is_never_generated(translator):
    """The padding token has probability 0 even where a beam asks for every token."""
    (found,) = translator.decoder.search([SourceSequence((5, 6), 32, SearchOptions(n_best=32), 3)])
    assert len(found) == 32
    assert all(419 not in each.tokens and each.log_probability > -1e4 for each in found)


def test_int8_translates_much_as_float32(marian_directory, marian_bundle, tmp_path):
    bundle = import_tiny(marian_directory, tmp_path, int8=True)
    manifest = load_manifest(bundle)
    assert (manifest.quantization.kind, manifest.quantization.metric) == ("int8-static", "equal greedy translations")
    sizes = [sum(file.stat().st_size for file in path.glob("weights.bin")) for path in (bundle, marian_bundle)]
    assert sizes[0] < sizes[1]
    queries = sources(load_bundle(bundle), 4)
    firsts = [
        [each[0].log_probability / (len(each[0].tokens) + 1) for each in load_bundle(path).decoder.search(queries)]
        for path in (bundle, marian_bundle)
    ]
    assert firsts[0] == pytest.approx(firsts[1], abs=0.3)


# ---- several target languages ----


def test_a_token_before_each_sentence_names_the_target_language(many_languages_bundle):
    model = load_bundle(many_languages_bundle)
    vocabulary = model.config.languages.targets
    assert tuple(vocabulary) == LANGUAGES
    assert model.config.summary()["languages"] == {"source": "de", "target": "spa", "targets": list(LANGUAGES)}
    text = f"{SENTENCES[0]} {SENTENCES[1]}"
    for code, wanted in ((None, "spa"), ("fra", "fra"), ("fr", "fra"), ("srp_Cyrl", "srp_Cyrl")):
        parts = model.query(text, target_language=code).parts()
        assert [part.tokens[0] for part in parts] == [vocabulary[wanted]] * 2
    texts = {code: model.translate([text], 1, target_language=code)[0].translations[0].text for code in LANGUAGES}
    assert len(set(texts.values())) == len(LANGUAGES)
    with pytest.raises(QueryError, match="must be one of fra, spa, srp_Cyrl, not 'ja'"):
        model.query(text, target_language="ja")


def test_a_text_that_spells_a_language_is_text(many_languages_bundle):
    model = load_bundle(many_languages_bundle)
    (part,) = model.query(">>fra<< Haus").parts()
    assert part.tokens[0] == model.config.languages.targets["spa"]
    assert model.config.languages.targets["fra"] not in part.tokens


def test_a_model_with_one_target_knows_no_other(translator):
    assert translator.query("Haus", target_language="en") == translator.query("Haus")
    with pytest.raises(QueryError, match="must be one of en, not 'de'"):
        translator.query("Haus", target_language="de")


def test_the_default_language_must_be_chosen(shared_marian):
    source = open_source(str(shared_marian("marian-de-mul", languages=LANGUAGES)))
    with pytest.raises(ImportRefused, match=r"--languages de-CODE, CODE being one of fra, spa, srp_Cyrl$"):
        MarianImporter(source, ImportOptions())


# ---- refusals ----


@pytest.fixture
def changed(marian_directory: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that copies a directory with other fields in a JSON file, None to remove one."""

    def change(file: str, **fields: object) -> Path:
        copy = tmp_path / "copy"
        shutil.copytree(marian_directory, copy)
        content = json.loads((copy / file).read_text())
        content |= fields
        (copy / file).write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
        return copy

    return change


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        ("config.json", {"model_type": "bart"}, "model_type"),
        ("config.json", {"normalize_before": True}, "normalize_before"),
        ("config.json", {"activation_function": "tanh"}, "activation_function"),
        ("config.json", {"decoder_ffn_dim": 128}, "equal heads and feed-forward sizes"),
        ("config.json", {"encoder_layers": 2}, "lack model.encoder.layers.1"),
        ("config.json", {"decoder_layers": 0}, "decoder_layers: "),
        ("config.json", {"vocab_size": 419, "decoder_vocab_size": 419}, "special tokens must be below"),
        ("config.json", {"eos_token_id": 7}, "</s> is not token 7"),
        ("generation_config.json", {"bad_words_ids": [[0]]}, "eos_token_id must not be one of bad_words_ids"),
        ("vocab.json", {"<unk>": None}, "vocab.json lacks <unk>"),
        ("vocab.json", {"<pad>": 5}, "used twice"),
        ("vocab.json", {"▁new": 420}, "not below vocab_size"),
        ("vocab.json", {"▁new": "5"}, "does not map pieces to ids"),
        ("tokenizer_config.json", {"source_lang": "German"}, "languages: "),
        ("tokenizer_config.json", {"source_lang": None}, "say so by --languages"),
    ],
)
def test_directories_that_are_not_understood_are_refused(changed, tmp_path, file, fields, message):
    with pytest.raises(ImportRefused, match=message):
        import_tiny(changed(file, **fields), tmp_path / "models")
    assert not list((tmp_path / "models").glob("*"))


@pytest.mark.parametrize("file", ["source.spm", "vocab.json", "model.safetensors"])
def test_a_missing_or_damaged_file_is_named(changed, tmp_path, file):
    copy = changed("config.json")
    (copy / file).write_bytes(b"\xff\xfe damaged")
    with pytest.raises(ImportRefused, match=file):
        import_tiny(copy, tmp_path / "models")
    (copy / file).unlink()
    with pytest.raises(ImportRefused, match=file):
        import_tiny(copy, tmp_path / "models")


@pytest.mark.parametrize(
    ("fields", "directory"), [({"scale_embedding": False}, "a"), ({"tie_word_embeddings": False}, "b")]
)
def test_weights_that_do_something_else_are_noticed(changed, tmp_path, fields, directory):
    """A configuration that is not that of the weights gives other log-probabilities, or weights that are missing."""
    copy = changed("config.json", **fields)
    importer = MarianImporter(open_source(str(copy)), ImportOptions())
    if directory == "b":
        with pytest.raises(ImportRefused, match="lm_head"):
            importer.read_model()
    else:
        assert importer.read_model().network.embedding_scale == 1.0


@pytest.mark.parametrize(("wanted", "found"), [("fr-de", ("fr", "de")), ("de", None), ("-en", None), ("x1-en", None)])
def test_languages_of_the_caller_go_first(marian_directory, wanted, found):
    source = open_source(str(marian_directory))
    if found is None:
        with pytest.raises(ImportRefused, match="languages"):
            MarianImporter(source, ImportOptions(languages=wanted))
    else:
        languages = MarianImporter(source, ImportOptions(languages=wanted)).languages
        assert (languages.source, languages.target) == found


@pytest.mark.parametrize("wanted", [0, 96])
def test_the_longest_sentence_fits_the_positions(marian_directory, wanted):
    source = open_source(str(marian_directory))
    assert MarianImporter(source, ImportOptions(max_tokens=50)).config()["limits"] == {"max_tokens": 50}
    with pytest.raises(ImportRefused, match="--max-tokens must lie between 1 and 95"):
        MarianImporter(source, ImportOptions(max_tokens=wanted))


# ---- words ----


def test_the_words_of_an_imported_model_are_aligned(marian_bundle, tmp_path):
    """Its heads are chosen by hand: outputs of random weights have no known links."""
    bundle = tmp_path / "tiny-marian" / "1"
    shutil.copytree(marian_bundle, bundle)
    manifest = load_manifest(bundle)
    content, step = manifest.model_dump(mode="json"), contract_with_attention(manifest.graphs["step"])
    graph = onnx.load(bundle / "step.onnx", load_external_data=False)
    onnx.save_model(with_attention(graph, [(0, 0), (0, 3)]), bundle / "step.onnx")
    content["graphs"]["step"] = step.model_dump(mode="json")
    content["config"]["alignment"] = {"heads": [[0, 0], [0, 3]], "offset": 0, "accuracy": 1.0, "words": 1}
    content["files"]["step.onnx"] = sha256_of(bundle / "step.onnx")
    (bundle / "manifest.json").write_text(parse_manifest(content).model_dump_json(), encoding="utf-8")
    model = load_bundle(bundle)
    text = "Der  ﬁnale {a} Hund   beißt."
    (found,) = model.translate([text], 2, alignment=True)
    (best,) = found.translations
    assert best.text.count("{a}") == 1
    assert best.alignment
    for link in best.alignment:
        assert text[slice(*link.source)] in {"Der", "ﬁnale", "{a}", "Hund", "beißt", "."}
        assert best.text[slice(*link.target)].strip()
