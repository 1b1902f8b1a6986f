"""From probabilities of tokens to entities, as transformers' `TokenClassificationPipeline` makes them.

Shapes: `T` tokens, `C` labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.backend import Array
from models.operations.tagging import Aggregation
from models.text.words import Span

__all__ = ["Entity", "aggregated", "continuations", "merged"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A labelled part of a text."""

    label: str
    """The label; without `B-` or `I-` where tokens are joined."""
    start: int
    """Its first character."""
    end: int
    """The character after its last one."""
    text: str
    """These characters."""
    score: float
    """Probability of the label: of a token, or the mean over the tokens or words."""


class _Labelled(NamedTuple):
    """A token or a word with its label."""

    label: str
    start: int
    end: int
    score: float


def continuations(
    text: str, spans: Sequence[Span], pieces: Sequence[str] | None, unknown: Sequence[bool]
) -> tuple[bool, ...]:
    """Return whether each token continues the word of the token before it, by the rules of transformers' pipeline.

    `spans` are the characters of each token, `pieces` the spellings of tokens in a vocabulary whose spellings say it,
    such as WordPiece's with `##`: a token continues a word where its spelling has another length than its characters.
    Without pieces, it does where it does not begin at or after a space. An `unknown` token continues no word.
    """
    if pieces is not None:
        found = [len(piece) != len(text[start:end]) for piece, (start, end) in zip(pieces, spans, strict=True)]
    else:
        found = [start > 0 and " " not in text[start - 1 : start + 1] for start, _ in spans]
    return tuple(each and not odd for each, odd in zip(found, unknown, strict=True))


def aggregated(
    text: str,
    spans: Sequence[Span],
    continues: Sequence[bool],
    probabilities: Array,
    labels: Sequence[str],
    aggregation: Aggregation,
) -> list[Entity]:
    """Return the entities of a text, those of all labels, from the probabilities of its tokens `[T, C]`.

    `spans` and `continues` are of the tokens, without those that the tokenizer adds.
    """
    if not spans:
        return []
    words = [[place] for place in range(len(spans))]
    if aggregation not in ("none", "simple"):
        words = _words(continues)
    labelled = [_word(word, spans, probabilities, labels, aggregation) for word in words]
    if aggregation != "none":
        labelled = [_joined(group) for group in _groups(labelled)]
    return [Entity(label, start, end, text[start:end], score) for label, start, end, score in labelled]


def merged(windows: Sequence[Sequence[Entity]]) -> list[Entity]:
    """Return the entities of windows of a text; of two that overlap, the longer or else the more probable one."""
    if len(windows) < 2:
        return [entity for window in windows for entity in window]
    entities = sorted((entity for window in windows for entity in window), key=lambda entity: entity.start)
    if not entities:
        return []
    found, last = [], entities[0]
    for entity in entities[1:]:
        if not last.start <= entity.start < last.end:
            found.append(last)
            last = entity
        elif (entity.end - entity.start, entity.score) > (last.end - last.start, last.score):
            last = entity
    return [*found, last]


def _words(continues: Sequence[bool]) -> list[list[int]]:
    """Return the places of the tokens of each word."""
    words: list[list[int]] = []
    for place, inside in enumerate(continues):
        if inside and words:
            words[-1].append(place)
        else:
            words.append([place])
    return words


def _word(
    places: Sequence[int], spans: Sequence[Span], probabilities: Array, labels: Sequence[str], aggregation: Aggregation
) -> _Labelled:
    """Return the label of a token, or of the tokens of a word."""
    rows = probabilities[places]
    if aggregation == "average":
        row = rows.mean(0)
    elif aggregation == "max":
        row = rows[rows.max(1).argmax()]
    else:
        row = rows[0]
    best = int(row.argmax())
    return _Labelled(labels[best], spans[places[0]][0], spans[places[-1]][1], float(row[best]))


def _groups(labelled: Sequence[_Labelled]) -> list[list[_Labelled]]:
    """Return adjacent tokens or words of the same label; one with `B-` begins another group."""
    groups: list[list[_Labelled]] = []
    last = None
    for each in labelled:
        begins, name = _split(each.label)
        if begins or name != last:
            groups.append([])
        groups[-1].append(each)
        last = name
    return groups


def _split(label: str) -> tuple[bool, str]:
    """Return whether a label begins an entity, and the label without `B-` or `I-`."""
    return label.startswith("B-"), label[2:] if label.startswith(("B-", "I-")) else label


def _joined(group: Sequence[_Labelled]) -> _Labelled:
    """Return a group as one, whose label is what follows the first hyphen, whatever stands before it."""
    label = group[0].label.split("-", 1)[-1]
    return _Labelled(label, group[0].start, group[-1].end, float(np.mean([each.score for each in group])))
