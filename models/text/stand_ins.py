"""Words in place of protected parts while a sentence is translated, and the parts again in its translation.

A part is read as a number, which the bundled model copies in more sentences than names, codes or signs
(`benchmarks.protected --stand-ins`), and which no language inflects. Where a translation has the number once, the part
takes its place; where it is lost, changed or repeated, the part is put once where the words that attend to it stand.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from models.text.capitals import in_capitals, sentence_case
from models.text.words import Span, words_of

__all__ = ["Edit", "StandIns", "edited", "moved_by"]

_STAND_INS = tuple(f"{number}" for number in (1284, 5397, 6071, 3850, 7426, 9163, 2608, 4739, 8152, 1945))
"""Numbers of four digits, of which no two share a beginning. Further ones are counted from the last."""
_MORE = range(2001, 9999, 17)
_CERTAIN = 0.3
"""Least attention by which a word is taken for that of a stand-in."""
_CLOSING = re.compile(r"[\s.,:;!?…)\]}'\"”“»«]*$")


@dataclass(frozen=True, slots=True)
class Edit:
    """A part of a text, and what stands in its place in another."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class StandIns:
    """A sentence with stand-ins, and the part of each."""

    text: str
    """The sentence as a model reads it."""
    edits: tuple[Edit, ...]
    """The parts, in the order of the sentence, at the spans of their stand-ins."""
    targets: tuple[str, ...]
    """What the translation has for each part."""
    capitals: bool = False
    """Whether the sentence is in capitals: it is read in lower case, and its translation written in capitals."""

    @classmethod
    def of(
        cls,
        marked: str,
        parts: Mapping[str, str],
        targets: Mapping[str, str] | None = None,
        *,
        capitals: bool = False,
    ) -> "StandIns":
        """Return a sentence with stand-ins in place of its marks, which stand for parts.

        `targets` is what the translation has for each mark, the part itself by default. A sentence in
        `capitals` is read in lower case.
        """
        pieces, edits, length = [], [], 0
        left = _unused(marked)
        for letter in marked:
            part = parts.get(letter)
            piece = letter if part is None else next(left)
            if part is not None:
                edits.append(Edit((length, length + len(piece)), part))
            pieces.append(piece)
            length += len(piece)
        written = parts if targets is None else targets
        text = "".join(pieces)
        return cls(
            sentence_case(text) if capitals else text,
            tuple(edits),
            tuple(written[letter] for letter in marked if letter in parts),
            capitals,
        )

    def restored(self, text: str, edits: Iterable[Edit]) -> str:
        """Return a translation with its parts, by the edits of `target_edits`."""
        return edited(in_capitals(text) if self.capitals else text, edits)

    def misses(self, text: str) -> int:
        """Return how many stand-ins a translation does not have exactly once."""
        return sum(len(_places(text, self._word(edit))) != 1 for edit in self.edits)

    def target_edits(self, text: str, linked: Callable[[Span], Sequence[tuple[Span, float]]]) -> tuple[Edit, ...]:
        """Return the edits that put each part once into a translation.

        `linked` returns the words of the translation with their weights of attention to characters of what the model
        reads; none are known without attention.
        """
        found: list[Edit] = []
        taken: set[Span] = set()
        words = words_of(text)
        for edit, target in zip(self.edits, self.targets, strict=True):
            places = _places(text, self._word(edit))
            if places:
                weights = dict(linked(edit.span)) if len(places) > 1 else {}
                best = max(places, key=lambda place: (weights.get(place, 0.0), -place[0]))
                taken |= set(places)
                found.append(Edit(best, target))
                found += [Edit(_with_space(text, place), "") for place in places if place != best]
        for edit, target in zip(self.edits, self.targets, strict=True):
            if not _places(text, self._word(edit)):
                place = self._place(edit, text, words, taken, linked)
                taken.add(place)
                first = not any(each.span == place for each in found)
                inserted = _spaced(text, place[0], target) if first else f" {target}"
                found.append(Edit(place, target if place[0] < place[1] else inserted))
        return tuple(sorted(found, key=lambda each: each.span))

    def _place(
        self,
        edit: Edit,
        text: str,
        words: Sequence[Span],
        taken: Iterable[Span],
        linked: Callable[[Span], Sequence[tuple[Span, float]]],
    ) -> Span:
        """Return the word that a lost part replaces, or where it is inserted."""
        free = [word for word in words if word not in set(taken)]
        own = [(weight, span) for span, weight in linked(edit.span) if span in free and _is_changed(text[slice(*span)])]
        if own and max(own)[0] > _CERTAIN:
            return max(own)[1]
        before = [word for word in words_of(self.text) if word[1] <= edit.span[0]]
        for word in reversed(before[-3:]):
            near = [(weight, span) for span, weight in linked(word) if weight > _CERTAIN]
            if near:
                return (max(near)[1][1],) * 2
        if before or not words:
            closing = _CLOSING.search(text)
            assert closing is not None
            return (closing.start(),) * 2
        return (words[0][0],) * 2

    def _word(self, edit: Edit) -> str:
        return self.text[slice(*edit.span)]


def _is_changed(word: str) -> bool:
    """Return whether a word may be a changed stand-in: it has digits."""
    return any(map(str.isdigit, word))


def _unused(text: str) -> Iterator[str]:
    """Yield stand-ins that a text does not have, first those that are measured."""
    for word in (*_STAND_INS, *map(str, _MORE)):
        if word not in text:
            yield word


def _places(text: str, word: str) -> list[Span]:
    """Return where a translation has a stand-in, also with a separator of thousands."""
    pattern = rf"(?<![\d.,])(?:{word}|{word[0]}[.,]{word[1:]})(?![\d]|[.,]\d)"
    return [found.span() for found in re.finditer(pattern, text)]


def _with_space(text: str, span: Span) -> Span:
    start, end = span
    return (start - 1, end) if start and text[start - 1] == " " else span


def _spaced(text: str, place: int, part: str) -> str:
    before = " " if place and not text[place - 1].isspace() and text[place - 1] not in "([{" else ""
    after = " " if text[place : place + 1].isalnum() else ""
    return f"{before}{part}{after}"


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits, which are in order and do not overlap."""
    pieces, done = [], 0
    for edit in edits:
        start, end = edit.span
        pieces += [text[done:start], edit.text]
        done = end
    return "".join([*pieces, text[done:]])


def moved_by(edits: Sequence[Edit], span: Span) -> Span:
    """Return a span of a text as it is after edits."""
    start, end = (_moved(edits, place, is_end=is_end) for place, is_end in zip(span, (False, True), strict=True))
    return (start, max(start, end))


def _moved(edits: Sequence[Edit], place: int, *, is_end: bool) -> int:
    shift = 0
    for edit in edits:
        start, end = edit.span
        if end <= place and (start < end or not is_end or end < place):
            shift += len(edit.text) - (end - start)
        elif start < place < end:
            return start + shift + (len(edit.text) if is_end else 0)
    return place + shift
