"""Compare words' surprisals of an imported model of GPT-2's size with those of minicons and surprisal.

    pip install --no-deps minicons wonderwords surprisal
    python -m benchmarks.word_probabilities --data-dir DIR

`--no-deps` keeps pip from replacing torch. The model has GPT-2's configuration, random weights and a byte-level BPE of
50,257 tokens, which is learnt from the training sets of Tatoeba and WikiText-2. It is imported, and scores sentences of
Tatoeba's test set; the others read the directory of transformers that was imported. The columns are the largest
absolute differences of a word's surprisal, in bits:

* `sum of tokens`: the words of `/v1/score` by their tokens' log-probabilities alone, from minicons without correction.
* `surprisal`: the same from surprisal 0.1, which has no correction and gives the end of the text the probability 0.
* `corrected`: from minicons with `bow_correction` (Pimentel and Meister 2024; Oh and Schuler 2024), for which only
  tokens that begin with a space begin a word, and the end of the text ends none. So `score_rows` divides the text
  at spaces alone, and the end has the probability 0 on both sides.
* `/v1/score`: the words of `/v1/score` as they are, from minicons with the tokens that begin a word there, which are
  those that begin with white space or a punctuation mark, and the end of the text. minicons has one set of such tokens,
  whatever the word before is, so that this reads the text without its punctuation marks.
* `correction`: the words of `/v1/score` from the sums of their tokens, without marks: how large the correction is.
* `definitions`: the same words from minicons as it is: what the two definitions of a word's end amount to.
"""

import importlib
import math
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from benchmarks.causal_equality import PUBLISHED, import_directory, write_published
from models.backend import Array
from models.decoding.read_paths import Path as ReadPath
from models.decoding.token_tree import TreeReader
from models.decoding.word_probabilities import score_rows, word_begins
from models.store import load_bundle
from models.tasks.causal_language_model import CausalLanguageModel
from models.text.word_vocabulary import PUNCTUATION, State, WordBoundaries, WordVocabulary
from training.data.corpora import get_corpus
from training.importing.importer import need

__all__ = ["byte_level_tokenizer"]

transformers = need("transformers")

_END = "<|endoftext|>"
_MODEL = "gpt2"
_SHOWN = 40
"""Characters of a text in the table."""
_RUN_NODES = 512
_COLUMNS = ("sum of tokens", "surprisal", "corrected", "/v1/score", "correction", "definitions")
_TO_BITS = 1 / math.log(2)


def byte_level_tokenizer(texts: Sequence[str], vocab_size: int) -> Any:
    """Return a byte-level BPE as GPT-2 has it, in which the end has the id 0.

    Raises `ValueError` for texts that have too few different words for so many tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[_END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    if (found := tokenizer.get_vocab_size()) < vocab_size:
        raise ValueError(f"the corpus makes {found} tokens only, not {vocab_size}")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=_END, eos_token=_END)


class Ours:
    """The imported model."""

    def __init__(self, bundle: Path) -> None:
        model = load_bundle(bundle)
        assert isinstance(model, CausalLanguageModel)
        network, special = model.config.network, model.config.special_tokens
        assert special.start is not None
        self.model, self.start, self.end = model, special.start, special.end
        shape = network.layers, network.key_value_heads, network.head_size
        reader = TreeReader(model.backend, shape, _RUN_NODES)
        [(path, hidden)] = reader.follow([(ReadPath(), (self.start,))])
        self._start = path.joined(), hidden

    def vocabulary(self, boundaries: WordBoundaries) -> WordVocabulary:
        """Return what the model's tokens do to words."""
        return WordVocabulary(self.model.tokenizer.pieces(self.model.vocab_size), boundaries)

    def rows(self, tokens: Sequence[int]) -> Array:
        """Return the log-probabilities after the start, and after each token, if no text ends: `[T + 1, V]`."""
        prefixes = [tuple(tokens[:count]) for count in range(len(tokens) + 1)]
        rows = self.model.following(*self._start, prefixes).astype(np.float64)
        rows -= np.log1p(-np.exp(rows[:, [self.end]]))
        rows[:, self.end] = -np.inf
        return rows


class Minicons:
    """minicons with the same weights."""

    def __init__(self, directory: Path) -> None:
        self._model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        self._end = tokenizer.eos_token_id
        self._scorer: Any = importlib.import_module("minicons.scorer").IncrementalLMScorer(
            self._model, "cpu", tokenizer=tokenizer
        )

    def values(self, text: str, *, corrected: bool) -> Array:
        """Return the log-probability of each token, with the corrections of words' ends, `[T]`."""
        (found,) = self._scorer.compute_stats(
            self._scorer.prepare_text([text], bos_token=True), bow_correction=corrected
        )
        values: Array = np.array(found)
        return values

    @contextmanager
    def without_end(self) -> Iterator[None]:
        """Let the end of the text have the probability 0."""

        def remove(module: torch.nn.Module, args: object, output: Any) -> Any:
            output.logits[..., self._end] = -1e9
            return output

        hook = self._model.register_forward_hook(remove)
        yield
        hook.remove()

    @contextmanager
    def beginnings(self, tokens: Array) -> Iterator[None]:
        """Let those tokens begin a word for which `tokens` `[V]` is true."""
        scorer, own = self._scorer, (self._scorer.bow_subwords, self._scorer.bow_subword_idx)
        scorer.bow_subwords = dict(enumerate(tokens.tolist()))
        scorer.bow_subword_idx = np.flatnonzero(tokens).tolist()
        yield
        scorer.bow_subwords, scorer.bow_subword_idx = own


def _largest(found: Sequence[float], expected: Sequence[float]) -> float:
    pairs = zip(found, expected, strict=True)
    return max(abs(one - other) for one, other in pairs) * _TO_BITS


class Comparison:
    """The three sides, which read the same weights."""

    def __init__(self, directory: Path, bundle: Path) -> None:
        self._ours, self._minicons = Ours(bundle), Minicons(directory)
        self._surprisal: Any = importlib.import_module("surprisal").CausalHuggingFaceModel(str(directory))
        self._spaces = self._ours.vocabulary(WordBoundaries(" "))
        begins = word_begins(self._ours.vocabulary(WordBoundaries(punctuation=PUNCTUATION)), State.AFTER_LETTERS)
        assert begins is not None
        self._begins = begins

    def differences(self, text: str) -> tuple[int, list[float]]:
        """Return the number of words of a text, and the largest difference of each of `_COLUMNS`, in bits."""
        (score,) = self._ours.model.score([text], unit="word")
        assert score.words is not None
        plain = self._minicons.values(text, corrected=False)
        own = np.array([token.log_probability for token in score.tokens])
        tokens = [slice(*word.tokens) for word in score.words]
        found = [_largest([own[each].sum() for each in tokens], [plain[each].sum() for each in tokens])]

        ids = self._ours.model.tokenizer.encode(text)
        rows = self._ours.rows(ids)
        endless = rows[np.arange(len(ids)), ids]
        (theirs,) = self._surprisal.surprise(text)
        sums = [float(theirs[word.start : word.end, "char"]) for word in score.words]
        found.append(_largest([-endless[each].sum() for each in tokens], sums))

        words = score_rows(self._spaces, (self._ours.start,), ids, rows).words
        with self._minicons.without_end():
            corrected = self._minicons.values(text, corrected=True)
        sums = [corrected[slice(*word.tokens)].sum() for word in words]
        found.append(_largest([word.log_probability for word in words], sums))
        return len(score.words), [*found, *self._without_marks(text)]

    def _without_marks(self, text: str) -> list[float]:
        """Return the last three of `_COLUMNS`."""
        text = " ".join("".join(" " if each in PUNCTUATION else each for each in text).split())
        (score,) = self._ours.model.score([text], unit="word")
        assert score.words is not None
        own = [word.log_probability for word in score.words if word.log_probability is not None]
        with self._minicons.beginnings(self._begins):
            same = self._minicons.values(text, corrected=True)
        plain, other = (self._minicons.values(text, corrected=corrected) for corrected in (False, True))
        tokens = [slice(*word.tokens) for word in score.words]
        return [_largest(own, [values[each].sum() for each in tokens]) for values in (same, plain, other)]


def main(data_dir: Path = Path("data"), texts: int = 20, least: int = 40, threads: int = 2) -> None:
    """Print a row for each text, and one for all of them.

    Args:
        data_dir: Directory that holds the corpora.
        texts: Number of texts that are compared, at equal distances in the test set.
        least: Shorter texts are left out, in characters.
        threads: Threads of torch.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    published = PUBLISHED[_MODEL]
    sentences = get_corpus("tatoeba-de-en")
    known = dict.fromkeys(text for text in sentences.texts("test", data_dir, "en") if len(text) >= least)
    lines = list(known)[:: max(1, len(known) // texts)][:texts]
    learnt = [*sentences.texts("train", data_dir, "en"), *get_corpus("wikitext-2").texts("train", data_dir, "text")]
    tokenizer = byte_level_tokenizer(learnt, published.config["vocab_size"])
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / _MODEL
        write_published(directory, published, tokenizer)
        _, bundle = import_directory(directory, Path(folder) / "bundles")
        comparison = Comparison(directory, bundle)
        results = [comparison.differences(line) for line in lines]
    print("|", " | ".join(["text", "words", *_COLUMNS]), "|")
    print("|", " | ".join("---" for _ in range(2 + len(_COLUMNS))), "|")
    for line, (words, found) in zip(lines, results, strict=True):
        shown = line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
        print("|", " | ".join([shown, str(words), *(f"{each:.1e}" for each in found)]), "|")
    largest = [max(each) for each in zip(*(found for _, found in results), strict=True)]
    words = sum(words for words, _ in results)
    print("|", " | ".join([f"all {len(lines)}", str(words), *(f"{each:.1e}" for each in largest)]), "|")


if __name__ == "__main__":
    tyro.cli(main)
