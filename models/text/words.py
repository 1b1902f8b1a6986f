"""Words of texts and of token sequences, by the characters that they take.

Shapes: `T` tokens.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

__all__ = ["Span", "moved", "positions_in", "words_of"]

Span = tuple[int, int]
"""The first character, and the one after the last."""

_WORD = re.compile(r"\w+(?:[-'’.,:/@_]\w+)*|[^\w\s]+")
"""Words with the marks within them; a run of other marks is one word."""
_REMOVABLE = frozenset({"Cc", "Cf", "Mn", "Pd", "Zl", "Zp", "Zs"})
"""Categories of characters that a normalization of texts may remove."""


def words_of(text: str) -> list[Span]:
    """Return the words of a text, punctuation marks included."""
    return [found.span() for found in _WORD.finditer(text)]


def positions_in(original: str, changed: str) -> list[int]:
    """Return for each character of a changed text the position in the original one that it comes from.

    A change may remove white space, hyphens and invisible characters and replace characters by others, in order. There
    is one position more, that of the end. The result is exact for compatibility forms (NFKC) and a guess for others.
    """
    if original == changed:
        return list(range(len(original) + 1))
    source = list(_expanded(original))
    found, place = [], 0
    for letter, _ in _expanded(changed, whole=True):
        ahead = place
        while ahead < len(source) and source[ahead][0] != letter and _is_removable(source[ahead][0]):
            ahead += 1
        if ahead < len(source) and (source[ahead][0] == letter or not letter.isspace()):
            place = ahead
        found.append(source[place][1] if place < len(source) else len(original))
        if place < len(source) and (source[place][0] == letter or not letter.isspace()):
            place += 1
    return [*found, len(original)]


def _expanded(text: str, *, whole: bool = False) -> Iterator[tuple[str, int]]:
    """Yield the characters of a text's compatibility forms, with their positions; one for each if `whole`."""
    for position, letter in enumerate(text):
        form = letter if letter < "\x80" else unicodedata.normalize("NFKC", letter) or letter
        if whole:
            yield form[0], position
        else:
            yield from ((each, position) for each in form)


def _is_removable(letter: str) -> bool:
    return unicodedata.category(letter) in _REMOVABLE


def moved(spans: Sequence[Span], positions: Sequence[int]) -> list[Span]:
    """Return spans of a changed text as those of the original one, by `positions_in`."""
    return [
        (positions[start], max(positions[start], positions[end - 1] + 1) if end > start else positions[start])
        for start, end in spans
    ]
