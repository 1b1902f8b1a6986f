"""Words of texts and of token sequences, by the characters that they take.

Shapes: `T` tokens.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

__all__ = ["Span", "has_word", "moved", "positions_in", "words_of"]

Span = tuple[int, int]
"""The first character, and the one after the last."""

_LETTERS = r"[\w\u0300-\u036f]+"
_WORD = re.compile(rf"{_LETTERS}(?:[-'’.,:/@]{_LETTERS})*|[^\w\s]+")
"""Words with the marks within them; a run of other marks is one word."""
_REMOVABLE = frozenset({"Cc", "Cf", "Mn", "Pd", "Zl", "Zp", "Zs"})
"""Categories of characters that a normalization of texts may remove."""


def words_of(text: str) -> list[Span]:
    """Return the words of a text, punctuation marks included."""
    return [found.span() for found in _WORD.finditer(text)]


def has_word(text: str, word: str) -> bool:
    """Return whether a text has a word, or several, without letters or digits directly before or after."""
    place = text.find(word)
    while place >= 0:
        if (
            not text[max(0, place - 1) : place].isalnum()
            and not text[place + len(word) : place + len(word) + 1].isalnum()
        ):
            return True
        place = text.find(word, place + 1)
    return False


def positions_in(original: str, changed: str) -> list[int]:
    """Return for each character of a changed text the position in the original one that it comes from.

    A change may remove white space, hyphens and invisible characters and replace characters by others, in order. There
    is one position more, that of the end. The result is exact for compatibility forms (NFKC) and a guess for others.
    """
    if original == changed:
        return list(range(len(original) + 1))
    source, place = list(_expanded(original)), 0
    found: list[int] = []
    for letter, position in _expanded(changed):
        ahead = place
        while ahead < len(source) and source[ahead][0] != letter and _is_removable(source[ahead][0]):
            ahead += 1
        same = ahead < len(source) and source[ahead][0] == letter
        if same or not letter.isspace():
            place = min(ahead, len(source))
        if position == len(found):
            found.append(source[place][1] if place < len(source) else len(original))
        if same or not letter.isspace():
            place += 1
    return [*found, len(original)]


def _expanded(text: str) -> Iterator[tuple[str, int]]:
    """Yield the characters of the compatibility form of each character, with its position."""
    for position, letter in enumerate(text):
        form = letter if letter < "\x80" else unicodedata.normalize("NFKC", letter) or letter
        yield from ((each, position) for each in form)


def _is_removable(letter: str) -> bool:
    return unicodedata.category(letter) in _REMOVABLE


def moved(spans: Sequence[Span], positions: Sequence[int]) -> list[Span]:
    """Return spans of a changed text as those of the original one, by `positions_in`."""
    return [
        (positions[start], max(positions[start], positions[end - 1] + 1) if end > start else positions[start])
        for start, end in spans
    ]
