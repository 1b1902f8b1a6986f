"""Windows of a text that is longer than a model reads: runs of its tokens that overlap."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Self

from models.errors import QueryError
from models.text.limits import TextLimit
from models.text.words import Span

__all__ = ["Windowing", "tokens_before"]

_MOST_TOKENS = 1 << 16
"""Tokens of all windows of a text together, at most, special ones included."""
_OVERLAP = 8
"""Without an overlap that is chosen, windows share one in so many of their tokens."""


@dataclass(frozen=True, slots=True)
class Windowing:
    """How texts are read in windows."""

    room: int
    """Tokens of the text in a window."""
    step: int
    """Tokens from the beginning of a window to that of the next."""

    @classmethod
    def of(cls, limit: TextLimit, overlap: int | None) -> Self:
        """Return windows within a limit that share so many tokens, by default an eighth of them.

        Raises `QueryError` for an overlap that is too large, or where the limit leaves no room for a token.
        """
        room = limit.max_tokens - limit.added_tokens
        if room < 1:
            raise QueryError("the prompt leaves no room for a token of the text")
        shared = room // _OVERLAP if overlap is None else overlap
        if not 0 <= shared < room:
            raise QueryError(f"overlap must be from 0 to {room - 1}, not {shared}")
        return cls(room, room - shared)

    def limit_of(self, limit: TextLimit, max_windows: int | None = None) -> TextLimit:
        """Return the limit of whole texts, where `limit` is that of a window."""
        count = _MOST_TOKENS // limit.max_tokens
        count = max(1, count if max_windows is None else min(count, max_windows))
        return replace(limit, max_tokens=limit.max_tokens + (count - 1) * self.step, noun=" with this overlap")

    def slices(self, count: int) -> list[slice]:
        """Return the tokens of each window of a text of `count` tokens: the last one ends with the text, and there is
        one also of a text without tokens."""
        windows = 1 + max(0, -(-(count - self.room) // self.step))
        return [slice(number * self.step, number * self.step + self.room) for number in range(windows)]


def tokens_before(spans: Sequence[Span], characters: int) -> int:
    """Return the number of first tokens that lie within so many first characters."""
    return sum(1 for _ in takewhile(lambda span: span[1] <= characters, spans))
