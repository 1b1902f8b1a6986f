"""Calibration examples of sets of next words: the word that follows a beginning of a validation text.

A text is one example, from a place that is drawn, so that examples are independent. Sets and their guarantee are those
of `models.tasks.word_sets`.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import QueryError, TextTooLongError
from models.operations.language import MOST_SET_WORDS, Unit
from models.tasks.causal_language_model import CausalLanguageModel
from models.tasks.language_model import LanguageModel
from models.tasks.prediction_sets import Penalty, Rows, SetPredictor
from models.tasks.word_sets import UnitSets
from models.text.tokenization import END
from training.tasks.task import Refitted

__all__ = [
    "FEWEST",
    "Followed",
    "answers",
    "candidates",
    "followed",
    "refitted_sets",
    "set_rows",
    "units_of",
    "word_sets",
]

FEWEST = 100
"""Texts below which there are no sets."""
_MOST, _MOST_SEARCHED = 4000, 500
"""Texts that are used, the first ones; fewer where words are searched for among subwords, in a fifth of a second."""
_SEARCHED = 300
"""Candidates where words are searched for."""
_BATCH = 32


@dataclass(frozen=True, slots=True)
class Followed:
    """A beginning of a text, and what follows it."""

    context: str
    follows: Callable[[Any], bool]
    """Whether a candidate is what follows."""


def word_sets(model: Any, texts: Sequence[str]) -> tuple[dict[str, object], dict[str, bytes]] | None:
    """Return the field `sets` of a bundle's section and its files, fitted on texts that the model was not trained on.

    None where there are fewer than `FEWEST` texts that the model reads.
    """
    sections: dict[str, object] = {}
    files: dict[str, bytes] = {}
    for unit in units_of(model):
        examples = list(followed(model, texts, unit))
        if len(examples) < FEWEST:
            continue
        listed, file = candidates(model, unit), f"next_{unit}_scores.bin"
        rows = set_rows(model, examples, unit, listed)
        section = UnitSets(file=file, examples=len(rows), penalty=Penalty(), listed=listed)
        sections[unit], files[file] = section.model_dump(), SetPredictor.written(rows)
    return (sections, files) if sections else None


def refitted_sets(model: Any, validation: Callable[[], Sequence[str]] | None, texts: Path | None) -> Refitted:
    """Return the sets of a finished bundle; `texts` has a text on each line, in place of those of the validation split.

    `validation` returns these; it is None for an imported bundle. Raises `ValueError` where there are no texts, or too
    few.
    """
    if texts is not None:
        lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    elif validation is not None:
        lines = list(validation())
    else:
        raise ValueError("the bundle was imported: give texts, one on each line, by --texts")
    found = word_sets(model, lines)
    if found is None:
        raise ValueError(f"sets of next words need at least {FEWEST} texts that the model reads")
    sections, files = found
    return Refitted({"sets": sections}, files)


def units_of(model: Any) -> tuple[Unit, ...]:
    """Return the units of a model's next words."""
    return ("word", "token") if isinstance(model, CausalLanguageModel) else ("word",)


def candidates(model: Any, unit: Unit) -> int:
    """Return the number of candidates of a set."""
    most: int = model.most_words
    return min(_SEARCHED if _searches(model, unit) else MOST_SET_WORDS, most)


def _searches(model: Any, unit: Unit) -> bool:
    return isinstance(model, CausalLanguageModel) and unit == "word"


def set_rows(model: Any, examples: Sequence[Followed], unit: Unit, listed: int) -> Rows:
    """Return class 0, rank, probability of the candidates before it and own probability `[N, 4]` of what follows.

    The own probability is 0 where it is not among the `listed` most probable candidates.
    """
    return np.array([_row(*each) for each in zip(examples, answers(model, examples, unit, listed), strict=True)])


def answers(model: Any, examples: Sequence[Followed], unit: Unit, listed: int) -> Iterator[Sequence[Any]]:
    """Yield the candidates after each beginning of a text, most probable first."""
    options = {"unit": unit} if isinstance(model, CausalLanguageModel) else {}
    for start in range(0, len(examples), _BATCH):
        contexts = [each.context for each in examples[start : start + _BATCH]]
        yield from (result.words for result in model.next_words(contexts, listed, **options))


def _row(example: Followed, words: Sequence[Any]) -> tuple[float, float, float, float]:
    before = 0.0
    for place, word in enumerate(words):
        if example.follows(word):
            return 0.0, place + 1.0, before, word.probability
        before += word.probability
    return 0.0, len(words) + 1.0, before, 0.0


def followed(model: Any, texts: Sequence[str], unit: Unit) -> Iterator[Followed]:
    """Yield an example of each text that the model reads, of as many as are used, always the same."""
    generator, left = random.Random(0), _MOST_SEARCHED if _searches(model, unit) else _MOST
    places = _followed_word if isinstance(model, LanguageModel) else _FOLLOWED[unit]
    for text in texts:
        if not left:
            return
        try:
            example = places(model, text, generator)
        except (QueryError, TextTooLongError):
            continue
        if example is not None:
            left -= 1
            yield example


def _followed_word(model: LanguageModel, text: str, generator: random.Random) -> Followed | None:
    """Return an example of a word of the vocabulary, or of the sentence end."""
    words = model.spelled(model.token_ids(text))
    if len(words) > model.longest_input:
        return None
    place = generator.randint(0, len(words))
    word, ends = (END, True) if place == len(words) else (words[place], False)
    return Followed(" ".join(words[:place]), lambda each: each.word == word and each.sentence_end == ends)


def _followed_spelled_word(model: CausalLanguageModel, text: str, generator: random.Random) -> Followed | None:
    """Return an example of a word, whatever tokens spell it."""
    words = model.score([text], unit="word")[0].words or ()
    first = 0 if model.config.special_tokens.start is not None else 1
    if len(words) <= first:
        return None
    word = words[generator.randrange(first, len(words))]
    return Followed(text[: word.start], lambda each: each.word == word.word and not each.sentence_end)


def _followed_token(model: CausalLanguageModel, text: str, generator: random.Random) -> Followed | None:
    """Return an example of a token."""
    tokens, spans = model.tokenizer.split(text)
    first = 0 if model.config.special_tokens.start is not None else 1
    if len(tokens) <= first or len(tokens) > model.longest_input:
        return None
    place = generator.randrange(first, len(tokens))
    return Followed(text[: spans[place][0]], lambda each: each.token == tokens[place])


_FOLLOWED: Mapping[Unit, Callable[[Any, str, random.Random], Followed | None]] = {
    "word": _followed_spelled_word,
    "token": _followed_token,
}
