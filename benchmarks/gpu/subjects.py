"""The models that are measured, their inputs, and the computation of a batch."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.made_models import BERT, GENERATOR, MINILM, OPUS
from benchmarks.gpu.results import Context
from benchmarks.load.workload import texts_of
from benchmarks.peers.texts import make_texts
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.store import BUNDLED, load_bundle
from tests.support.marian_directory import made_up_word

__all__ = ["SUBJECTS", "Subject", "computation", "subjects", "texts"]

_TEXTS = Path(__file__).parents[1] / "load" / "texts"
_LONG_TOKENS = 128
"""Tokens of each text of `BERT`, `[CLS]` and `[SEP]` included."""
_LETTERS = "abcdefghijklmnoprstuvwz"


def _letters(first: int) -> Iterator[str]:
    return (_LETTERS[number % len(_LETTERS)] for number in itertools.count(first))


def _made_up(first: int) -> Iterator[str]:
    return (made_up_word(number % 100) for number in itertools.count(first))


_WORDS: Mapping[str, tuple[Callable[[int], Iterator[str]], int]] = {
    BERT: (_letters, _LONG_TOKENS - 2),
    GENERATOR: (_letters, 16),
    OPUS: (_made_up, 8),
}
"""An endless sequence of words from a number on, each of which is a token, and the words of a text."""
_SOURCE_TOKENS = 8, 24
"""Least and largest number of random tokens of a source of a model with random weights."""
_OUTPUT_TOKENS = 24
"""Tokens of the outputs of such a model."""
_SMALL_OUTPUT_TOKENS = 4


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model and how it is measured."""

    name: str
    made: bool = False
    """Whether it is one of true size with random weights, not a bundled one."""
    beam: int | None = None
    """Beam size of a model that decodes."""
    in_small: bool = True
    """Whether all parts of a small run measure it; bundled models are measured in process in any case."""

    def bundle(self, context: Context) -> Path:
        """Return the directory of its newest version; raises `FileNotFoundError` where it was not made."""
        directory = (context.work / "models" if self.made else BUNDLED) / self.name
        versions = [path for path in directory.glob("*") if path.name.isdecimal()]
        if not versions:
            raise FileNotFoundError(f"{directory} has no version: the model was not made")
        return max(versions, key=lambda path: int(path.name))

    def load(self, context: Context) -> Any:
        """Return the loaded model."""
        return load_bundle(self.bundle(context), device=context.device)


SUBJECTS = (
    Subject(name="intents"),
    Subject(name=BERT, made=True, in_small=False),
    Subject(name=OPUS, made=True, beam=4),
    Subject(name="de-en", beam=5, in_small=False),
    Subject(name=MINILM, made=True),
    Subject(name="next-word", in_small=False),
    Subject(name=GENERATOR, made=True, beam=1, in_small=False),
)
"""All models, those first that goals are stated for."""


def subjects(context: Context) -> list[Subject]:
    """Return the models of a run."""
    if not context.small:
        return list(SUBJECTS)
    return [each for each in SUBJECTS if each.in_small or (context.part == "process" and not each.made)]


def texts(name: str, count: int) -> list[str]:
    """Return inputs of a model, of made models such as their small vocabularies have tokens for."""
    if name in _WORDS:
        words, each = _WORDS[name]
        return [" ".join(itertools.islice(words(number), each)) for number in range(count)]
    if name in ("intents", MINILM):
        return make_texts(count)
    return list(
        itertools.islice(itertools.cycle(texts_of(_TEXTS / ("de.txt" if name == "de-en" else "en.txt"))), count)
    )


def computation(subject: Subject, model: Any, operation: str, batch: int, *, small: bool) -> Callable[[], int]:
    """Return a computation of a batch from texts to results, which returns the number of its texts.

    Of a model that decodes, it is the decoding of tokenized sources, and the number that of the generated tokens, ends
    included.
    """
    if subject.beam is not None:
        sources = _sources(subject, model, batch, small=small)

        def decode() -> int:
            return sum(len(found[0].tokens) + 1 for found in model.decoder.search(sources, batch))

        return decode
    given = texts(subject.name, batch)
    method = getattr(model, {"classify": "classify", "next-word": "next_words", "score": "score"}[operation])
    return lambda: len(method(given, truncate=True))


def _sources(subject: Subject, model: Any, batch: int, *, small: bool) -> Sequence[SourceSequence]:
    assert subject.beam is not None
    if not subject.made:
        queries = [model.query(text, subject.beam) for text in texts(subject.name, batch)]
        return list(itertools.islice((part for query in queries for part in query.parts()), batch))
    generator = np.random.default_rng(0)
    lengths = generator.integers(*_SOURCE_TOKENS, batch)
    drawn = [tuple(generator.integers(5, model.config.vocab_size - 1, length).tolist()) for length in lengths]
    longest = _SMALL_OUTPUT_TOKENS if small else _OUTPUT_TOKENS
    return [SourceSequence(tokens, subject.beam, SearchOptions(stop="full"), longest) for tokens in drawn]
