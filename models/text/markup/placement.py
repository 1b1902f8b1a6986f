"""Where inline elements stand in a translation, by the links between words.

Each element gets the words of the translation that are linked with its own, within its parent and apart from its
siblings. Numbers, names and addresses that both texts have once are linked with each other, whatever the model says.
"""

import heapq
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from models.text.words import Span, words_of

__all__ = ["Aligned", "Placed", "placed", "spaces_behind"]

_CERTAIN = 3.0
"""Weight of a word that both texts have once."""
_OF_SIBLING = 3.0
"""Weight of a word that belongs to a sibling, relative to one that belongs to no element."""
_UNLINKED = -0.05
_EXACT = 100.0
"""Score of an element whose whole text is in the translation."""
_BEFORE = 5
"""Words before a point that are looked at for a link."""
_MARK = re.compile(r"[^\w\s]+")
_NUMBER = re.compile(r"\d+(?:[.,:'’]\d+)*")


class Inline(Protocol):
    """A span of the source to be placed, with elements within it."""

    @property
    def span(self) -> Span: ...
    @property
    def children(self) -> "tuple[Self, ...]": ...
    @property
    def is_point(self) -> bool: ...
    @property
    def is_break(self) -> bool: ...
    @property
    def is_atom(self) -> bool: ...


ElementT = TypeVar("ElementT", bound=Inline)


@dataclass(frozen=True, slots=True)
class Aligned:
    """A text and its translation."""

    source: str
    text: str
    sentences: Sequence[tuple[Span, Span]]
    """Each translated sentence in both, in order; the text between them is the same in both."""
    links: Sequence[tuple[Span, Span]]
    """Words of both that are linked."""


@dataclass(frozen=True, slots=True)
class Placed(Generic[ElementT]):
    """An element and the characters of the translation that it encloses."""

    element: ElementT
    span: Span
    children: "tuple[Placed[ElementT], ...]" = ()


def placed(elements: Sequence[ElementT], found: Aligned) -> tuple[Placed[ElementT], ...]:
    """Return elements with their places in a translation, in the order of the translation.

    Siblings do not overlap, and children are within their parents. An element none of whose words is in the translation
    is empty, behind the translation of the word before it.
    """
    if not elements:
        return ()
    return _Placement(found).placed(elements, (0, len(found.source)), (0, len(found.text)))


def spaces_behind(found: Aligned, places: Sequence[int]) -> list[int]:
    """Return the spaces of a translation behind the words before some places of the source, where there are such."""
    if not places:
        return []
    placement = _Placement(found)
    ends = [placement.end_of_word_before(place) for place in places]
    return [end for end in ends if end is not None and found.text[end : end + 1] == " "]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A sentence, or the copied text between two."""

    source: Span
    target: Span
    is_copied: bool


@dataclass(slots=True)
class _Word:
    """A word of the translation."""

    span: Span
    piece: int
    sources: list[Span]
    is_certain: bool = False


class _Placement:
    def __init__(self, found: Aligned) -> None:
        self._found = found
        self._pieces = _pieces(found)
        self._piece_starts = [piece.source[0] for piece in self._pieces]
        self._sources = _words(found.source)
        self._source_starts = [start for start, _ in self._sources]
        self._words = self._target_words()
        self._starts = [word.span[0] for word in self._words]
        self._add_links()
        self._add_certain()
        self._targets: dict[Span, list[_Word]] = {}
        for word in self._words:
            for source in word.sources:
                self._targets.setdefault(source, []).append(word)

    def _target_words(self) -> list[_Word]:
        words, piece = [], 0
        for span in _words(self._found.text):
            while piece + 1 < len(self._pieces) and self._pieces[piece].target[1] <= span[0]:
                piece += 1
            words.append(_Word(span, piece, []))
        return words

    def _add_links(self) -> None:
        for source, target in self._found.links:
            for word in self._overlapping(target):
                word.sources += _within(self._sources, self._source_starts, source)
        for word in self._words:
            piece = self._pieces[word.piece]
            if piece.is_copied:
                shift = piece.source[0] - piece.target[0]
                word.sources = [(word.span[0] + shift, word.span[1] + shift)]
                word.is_certain = True

    def _overlapping(self, span: Span) -> list[_Word]:
        first = max(0, bisect_right(self._starts, span[0]) - 1)
        last = bisect_left(self._starts, span[1])
        return [word for word in self._words[first:last] if word.span[1] > span[0]]

    def _add_certain(self) -> None:
        """Link words that a sentence and its translation have once."""
        words: dict[int, list[_Word]] = {}
        for word in self._words:
            words.setdefault(word.piece, []).append(word)
        for index, piece in enumerate(self._pieces):
            if piece.is_copied:
                continue
            ours: dict[str, list[Span]] = {}
            for span in _within(self._sources, self._source_starts, piece.source):
                if key := _key(self._found.source[slice(*span)]):
                    ours.setdefault(key, []).append(span)
            theirs = Counter(_key(self._found.text[slice(*word.span)]) for word in words.get(index, ()))
            for word in words.get(index, ()):
                key = _key(self._found.text[slice(*word.span)])
                if key and theirs[key] == 1 and len(ours.get(key, ())) == 1:
                    word.sources, word.is_certain = list(ours[key]), True

    def placed(self, elements: Sequence[ElementT], parent: Span, bounds: Span) -> tuple[Placed[ElementT], ...]:
        spans = self._spans(elements, parent, bounds)
        order = sorted(range(len(elements)), key=lambda index: (*spans[index], index))
        return tuple(
            Placed(
                elements[index],
                spans[index],
                self.placed(elements[index].children, elements[index].span, spans[index]),
            )
            for index in order
        )

    def _spans(self, elements: Sequence[ElementT], parent: Span, bounds: Span) -> list[Span]:
        spans: list[Span | None] = [self._fixed(each, parent, bounds) for each in elements]
        taken = sorted(span for span in spans if span is not None and span[0] < span[1])
        siblings = sorted(each.span for each in elements if each.span[0] < each.span[1])
        open_elements = [
            index
            for index, (each, span) in enumerate(zip(elements, spans, strict=True))
            if span is None and not (each.is_point or each.is_break or each.is_atom)
        ]
        queue = [
            (-score, index, span)
            for index in open_elements
            for score, span in [self._best(elements[index].span, siblings, bounds, taken)]
        ]
        heapq.heapify(queue)
        while queue:
            _, index, span = heapq.heappop(queue)
            if span is None:
                continue
            if any(span[0] < end and start < span[1] for start, end in taken):
                other, span = self._best(elements[index].span, siblings, bounds, taken)
                heapq.heappush(queue, (-other, index, span))
                continue
            spans[index] = span
            taken.append(span)
            taken.sort()
        return [
            self._point(each.span, parent, bounds, taken) if span is None else span
            for each, span in zip(elements, spans, strict=True)
        ]

    def _fixed(self, element: ElementT, parent: Span, bounds: Span) -> Span | None:
        """Return the place of an element that is known without links."""
        start, end = element.span
        source = self._found.source
        if element.is_break:
            return self._break(start, bounds)
        if element.is_atom:
            place = self._found.text.find(source[start])
            return (place, place + 1) if bounds[0] <= place < bounds[1] else None
        around = source[parent[0] : start] + source[end : parent[1]]
        if start < end and not around.strip() and source[start:end].strip():
            return self._trimmed(bounds)
        return None

    def _break(self, start: int, bounds: Span) -> Span | None:
        """Return the line break of the translation that is that of the source."""
        source, text = self._found.source, self._found.text
        place = -1
        for _ in range(source.count("\n", 0, start) + 1):
            place = text.find("\n", place + 1)
            if place < 0:
                return None
        return (place, place + 1) if bounds[0] <= place < bounds[1] else None

    def _trimmed(self, span: Span) -> Span:
        start, end = span
        text = self._found.text
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        return start, end

    def _best(
        self, span: Span, siblings: Sequence[Span], bounds: Span, taken: Sequence[Span]
    ) -> tuple[float, Span | None]:
        """Return the best place of an element that is free, and its score; none where no word is its own."""
        first = max(0, bisect_right(self._piece_starts, span[0]) - 1)
        last = bisect_left(self._piece_starts, span[1])
        pieces = [index for index in range(first, last) if _overlap(self._pieces[index].source, span)]
        if not pieces:
            return 0.0, None
        exact = self._exact(span, pieces, bounds)
        if exact is not None and not any(_overlap(exact, each) for each in taken):
            return _EXACT, exact
        covered = {index for index in pieces if self._is_covered(self._pieces[index], span)}
        has_marks = _MARK.search(self._found.source, *span) is not None
        best: tuple[float, Span | None] = (0.0, None)
        score, start, others = 0.0, -1, iter([*taken, (len(self._found.text) + 1,) * 2])
        other = next(others)
        low = max(bounds[0], self._pieces[pieces[0]].target[0])
        high = min(bounds[1], self._pieces[pieces[-1]].target[1])
        for word in self._words[bisect_left(self._starts, low) : bisect_left(self._starts, high)]:
            while other[1] <= word.span[0]:
                other, score = next(others), 0.0
            if other[0] < word.span[1] or word.span[1] > high:
                score = 0.0
                continue
            weight = 1.0 if word.piece in covered else _weight(word, span, siblings)
            if not has_marks and _MARK.match(self._found.text, *word.span):
                weight = min(weight, _UNLINKED)
            if score <= 0:
                score, start = 0.0, word.span[0]
            score += weight
            if score > best[0] and weight > 0:
                best = (score, (start, word.span[1]))
        return best

    def _is_covered(self, piece: _Piece, span: Span) -> bool:
        source = self._found.source
        return not (source[piece.source[0] : span[0]] + source[span[1] : piece.source[1]]).strip()

    def _exact(self, span: Span, pieces: Sequence[int], bounds: Span) -> Span | None:
        """Return the one place of the translation that has the text of an element, a number or a name."""
        source = self._found.source[slice(*span)].strip()
        if not _key(source) or len(source) > 200:
            return None
        first, last = self._pieces[pieces[0]], self._pieces[pieces[-1]]
        here = (max(bounds[0], first.target[0]), min(bounds[1], last.target[1]))
        number = _NUMBER.fullmatch(source) is not None
        ours = _places(self._found.source, source, (first.source[0], last.source[1]), number=number)
        theirs = _places(self._found.text, source, here, number=number)
        return theirs[0] if len(ours) == len(theirs) == 1 else None

    def end_of_word_before(self, place: int) -> int | None:
        """Return the end of the translation of the word before a place of the source, where it has one."""
        last = bisect_left(self._source_starts, place)
        linked = self._targets.get(self._sources[last - 1], ()) if last else ()
        return max((word.span[1] for word in linked), default=None)

    def _point(self, span: Span, parent: Span, bounds: Span, taken: Sequence[Span]) -> Span:
        """Return the place behind the translation of the word before a point, or else before that of the next."""
        last = bisect_left(self._source_starts, max(span[0], parent[0]))
        for source in reversed(self._sources[max(0, last - _BEFORE) : last]):
            if source[0] < parent[0] or source[1] > span[0]:
                continue
            if linked := [word.span for word in self._targets.get(source, ()) if _is_in(word.span, bounds)]:
                place = max(linked)[1]
                return (next((end for start, end in taken if start < place <= end), place),) * 2
        is_first = not self._found.source[parent[0] : span[0]].strip()
        place = bounds[0] if is_first else bounds[1]
        if not is_first:
            return (next((end for start, end in taken if start < place <= end), place),) * 2
        return (place, place)


def _pieces(found: Aligned) -> list[_Piece]:
    pieces: list[_Piece] = []
    source, target = 0, 0
    for ours, theirs in found.sentences:
        pieces += [_Piece((source, ours[0]), (target, theirs[0]), True), _Piece(ours, theirs, False)]
        source, target = ours[1], theirs[1]
    return [*pieces, _Piece((source, len(found.source)), (target, len(found.text)), True)]


def _words(text: str) -> list[Span]:
    """Return the words of a text; characters for private use are words of their own."""
    found: list[Span] = []
    for start, end in words_of(text):
        begun = start
        for place in range(start, end):
            if text[place] >= "\U000f0000":
                found += [(begun, place), (place, place + 1)]
                begun = place + 1
        found.append((begun, end))
    return [span for span in found if span[0] < span[1]]


def _within(spans: Sequence[Span], starts: Sequence[int], span: Span) -> list[Span]:
    """Return those spans, ordered and apart, that overlap one."""
    first = max(0, bisect_right(starts, span[0]) - 1)
    return [each for each in spans[first : bisect_left(starts, span[1])] if each[1] > span[0]]


def _key(word: str) -> str:
    """Return the part of a number or a name that is the same in both languages; nothing for other words."""
    if _NUMBER.fullmatch(word):
        return "".join(filter(str.isdigit, word))
    return word if any(letter.isupper() or letter.isdigit() or letter >= "\U000f0000" for letter in word) else ""


def _places(text: str, part: str, span: Span, *, number: bool) -> list[Span]:
    """Return where a text has a number, perhaps with other separators, or another part."""
    if number:
        return [found.span() for found in _NUMBER.finditer(text, *span) if _key(found[0]) == _key(part)]
    pattern = rf"(?<!\w){re.escape(part)}(?!\w)" if part[0].isalnum() and part[-1].isalnum() else re.escape(part)
    return [found.span() for found in re.compile(pattern).finditer(text, *span)]


def _weight(word: _Word, span: Span, siblings: Sequence[Span]) -> float:
    """Return how far a word of the translation belongs to a span of the source, at most 1 where it is not certain."""
    if not word.sources:
        return _UNLINKED
    inside = _share(word.sources, [span])
    weight = 2 * inside - 1
    if weight < 0 and _share(word.sources, _near(siblings, word.sources)) > inside:
        weight *= _OF_SIBLING
    return weight * (_CERTAIN if word.is_certain else 1.0)


def _near(siblings: Sequence[Span], sources: Sequence[Span]) -> Sequence[Span]:
    first = bisect_right(siblings, (min(sources)[0],) * 2)
    return siblings[max(0, first - 1) : first + len(sources) + 1]


def _share(sources: Sequence[Span], spans: Iterable[Span]) -> float:
    """Return the fraction of some words' characters that are in spans, which are apart."""
    spans = list(spans)
    covered = sum(max(0, min(end, stop) - max(start, begin)) for start, end in sources for begin, stop in spans)
    return covered / sum(end - start for start, end in sources)


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _is_in(one: Span, other: Span) -> bool:
    return other[0] <= one[0] and one[1] <= other[1]
