"""A text with markup: the pieces of it that stay as they are, and blocks of text that are translated.

A block is a plain text in which inline elements are spans. Its translation is markup again, with the tags at the places
that word alignment gives them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from models.text.markup.entities import Spelling
from models.text.markup.placement import Aligned, Placed, placed, spaces_behind
from models.text.words import Span

__all__ = ["ATOMS", "Block", "Document", "Element", "Piece", "filled"]

Piece = str | int
"""Markup, or the number of a block that stands there."""

_LONGEST_NAME = 40
"""Characters of the text of an element that may be a name."""

ATOMS = range(0xF8000, 0xF8000 + 200)
"""Characters for private use, each of which stands for an element that is carried along as it is."""


@dataclass(frozen=True, slots=True)
class Element:
    """An inline element, or a tag or comment without content, which is one point of the text."""

    span: Span
    """Characters of the block's text."""
    opening: tuple[Piece, ...]
    closing: tuple[Piece, ...] = ()
    children: tuple["Element", ...] = ()
    is_point: bool = False
    is_break: bool = False
    """Whether it is a line break, for which the text has one."""
    is_atom: bool = False
    """Whether it is an element that is carried along, for which the text has a mark."""
    space_before: bool = False
    space_after: bool = False

    needs_content: bool = False
    """Whether it is left out where it encloses nothing, as the emphasis of Markdown."""

    @property
    def is_single(self) -> bool:
        """Whether it encloses nothing that is translated."""
        return self.is_point or self.is_break or self.is_atom


@dataclass(frozen=True, slots=True)
class Block:
    """A text that is translated as a whole, sentence by sentence."""

    text: str
    """The text without markup and references, its white space as single spaces, with marks for `atoms`."""
    markup: tuple[Piece, ...]
    """The block as it stands in the document, for a text without anything to translate."""
    spelling: Spelling = field(default_factory=Spelling)
    quote: str = ""
    """The quotation mark around the value of an attribute."""
    is_bare: bool = False
    """Whether the value of an attribute has no quotation marks, which its translation needs."""
    elements: tuple[Element, ...] = ()
    atoms: frozenset[str] = frozenset()
    """The marks."""
    kept_together: tuple[int, ...] = ()
    """Places of spaces that are no-break spaces in the document."""

    @property
    def needs_links(self) -> bool:
        """Whether tags or no-break spaces must be placed."""
        return bool(self.kept_together) or not all(each.is_atom for each in self.elements)

    @property
    def enclosed(self) -> list[str]:
        """The texts of elements that may be numbers or names, which a translation is likely to have too."""
        return list(_names(self.text, self.elements))

    @property
    def protected(self) -> list[Span]:
        """The spans of the marks."""
        return [(index, index + 1) for index, letter in enumerate(self.text) if letter in self.atoms]

    def translated(self, found: Aligned, done: Sequence[str]) -> str:
        """Return a translation as markup; `done` are the earlier blocks, as markup.

        A block stays as it is where its translation would be read as other blocks.
        """
        letters = self.spelling.letters(found.text, self.quote)
        if self.atoms:
            letters = [
                "" if letter in self.atoms else written for letter, written in zip(found.text, letters, strict=True)
            ]
        for place in spaces_behind(found, self.kept_together):
            letters[place] = self.spelling.references.get("\u00a0", "\u00a0")
        places = placed(self.elements, found)
        markup = self.spelling.block("".join(_rendered(letters, found.text, (0, len(letters)), places, done)))
        if markup is None:
            return filled(self.markup, done)
        return f"{self.quote}{markup}{self.quote}" if self.is_bare else markup


@dataclass(frozen=True, slots=True)
class Document:
    """A text with markup, taken apart."""

    pieces: tuple[Piece, ...]
    blocks: tuple[Block, ...]
    """In the order of the text. The attributes of a block's tags are blocks before it."""

    def joined(self, blocks: Sequence[str]) -> str:
        """Return the document with markup in place of its blocks."""
        return filled(self.pieces, blocks)

    def part(self, number: int) -> "Document":
        """Return the document of one block alone, and of the attributes of its tags."""
        block = self.blocks[number]
        attributes = [piece for piece in block.markup if isinstance(piece, int)]
        numbers = {piece: place for place, piece in enumerate(attributes)}
        return Document((len(attributes),), (*(self.blocks[each] for each in attributes), _renumbered(block, numbers)))


def filled(pieces: Sequence[Piece], blocks: Sequence[str]) -> str:
    """Return pieces with markup in place of the blocks."""
    return "".join(piece if isinstance(piece, str) else blocks[piece] for piece in pieces)


def _renumbered(block: Block, numbers: Mapping[int, int]) -> Block:
    """Return a block in whose markup other blocks have other numbers."""

    def pieces(markup: Sequence[Piece]) -> tuple[Piece, ...]:
        return tuple(piece if isinstance(piece, str) else numbers[piece] for piece in markup)

    def elements(those: Sequence[Element]) -> tuple[Element, ...]:
        return tuple(
            replace(each, opening=pieces(each.opening), closing=pieces(each.closing), children=elements(each.children))
            for each in those
        )

    return replace(block, markup=pieces(block.markup), elements=elements(block.elements)) if numbers else block


def _names(text: str, elements: Sequence[Element]) -> Iterator[str]:
    for element in elements:
        part = text[slice(*element.span)].strip()
        if not element.is_single and len(part) <= _LONGEST_NAME and any(map(_is_of_name, part)):
            yield part
        yield from _names(text, element.children)


def _is_of_name(letter: str) -> bool:
    return letter.isupper() or letter.isdigit()


def _rendered(
    letters: Sequence[str], text: str, span: Span, places: Sequence[Placed[Element]], done: Sequence[str]
) -> list[str]:
    pieces: list[str] = []
    at, last = span
    for place in places:
        element, (start, end) = place.element, place.span
        before, after = ("", "")
        if start == end and element.is_single:
            start, before, after = _spaced(element, text, start, last)
            end = start
        elif element.is_break:
            before, after = " " * element.space_before, " " * element.space_after
        start = max(start, at)
        is_kept = start < end or not element.needs_content
        pieces += [*letters[at:start], before, filled(element.opening, done) * is_kept]
        if not element.is_single:
            pieces += _rendered(letters, text, (start, max(start, end)), place.children, done)
        pieces += [filled(element.closing, done) * is_kept, after]
        at = max(start, end)
    return [*pieces, *letters[at:last]]


def _spaced(element: Element, text: str, place: int, last: int) -> tuple[int, str, str]:
    """Return where a point is put, and the spaces before and after it that it has in the source."""
    spaced = text[place : place + 1] == " "
    if element.space_before and not element.space_after and spaced and place < last:
        return place + 1, "", ""
    before = element.space_before and place > 0 and not text[place - 1].isspace()
    following = text[place : place + 1]
    after = element.space_after and (following.isalnum() or following >= chr(ATOMS[0]))
    return place, " " * before, " " * after
