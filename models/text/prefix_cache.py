"""What was computed after recent texts, so that a text that goes on, or comes again, is not read anew.

What was read is known by its tokens, however it was spelled, and by one spelling, so that of a text that goes on only
what was added is tokenized.
"""

import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["PrefixCache", "count", "packed", "unpacked"]

T = TypeVar("T")

_WIDTH = array("I").itemsize
_TRIES = 64
"""Beginnings that are looked for, so that an answer that nothing is known comes soon."""
_OVERHEAD = 700
"""Bytes of an entry besides its value, tokens and text."""


def packed(tokens: Iterable[int]) -> bytes:
    """Ids as a cache takes them; packed ids can be joined."""
    return array("I", tokens).tobytes()


def unpacked(tokens: bytes, start: int = 0) -> tuple[int, ...]:
    """Packed ids from the one at `start`."""
    return tuple(array("I", tokens[_WIDTH * start :]))


def count(tokens: bytes) -> int:
    """How many ids are packed."""
    return len(tokens) // _WIDTH


class PrefixCache(Generic[T]):
    """Values by packed tokens; the ones that were not used for longest go first. Safe to use from several threads."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """Of keys and values, roughly."""
        self._entries: OrderedDict[bytes, tuple[T, int, str | None]] = OrderedDict()
        self._texts: dict[str, bytes] = {}
        self._lengths: Counter[int] = Counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, tokens: bytes) -> T | None:
        """What was put for exactly these tokens."""
        with self._lock:
            return self._get(tokens)

    def longest(self, tokens: bytes) -> tuple[int, T] | None:
        """The longest proper prefix for which something was put: how many tokens it has, and that."""
        with self._lock:
            lengths = (length for length in range(count(tokens) - 1, 0, -1) if length in self._lengths)
            for _, length in zip(range(_TRIES), lengths, strict=False):
                found = self._get(tokens[: _WIDTH * length])
                if found is not None:
                    return length, found
        return None

    def beginning(self, text: str) -> tuple[int, bytes] | None:
        """The longest text that was put and is this one or stands in it before a space: its length and tokens."""
        with self._lock:
            for _, length in zip(range(_TRIES), _ends(text), strict=False):
                found = self._texts.get(text[:length])
                if found is not None:
                    return length, found
        return None

    def put(self, tokens: bytes, value: T, size: int, text: str | None = None) -> None:
        """Keeps a value of so many bytes, unless it alone is more than the cache holds.

        `text` is what has these tokens; its last spaces must be without any.
        """
        size += len(tokens) + _OVERHEAD
        if text is not None:
            text = text.rstrip(" ")
            size += len(text) if text.isascii() else 8 * len(text)  # as characters and, once encoded, as UTF-8
        with self._lock:
            self._drop(tokens)
            if size > self.max_bytes:
                return
            if text is not None and text in self._texts:
                self._drop(self._texts[text])
            self._entries[tokens] = value, size, text
            self._lengths[count(tokens)] += 1
            if text is not None:
                self._texts[text] = tokens
            self.bytes += size
            while self.bytes > self.max_bytes:
                self._drop(next(iter(self._entries)))

    def _get(self, key: bytes) -> T | None:
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def _drop(self, key: bytes) -> None:
        if key not in self._entries:
            return
        _, size, text = self._entries.pop(key)
        length = count(key)
        self.bytes -= size
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]
        if text is not None:
            del self._texts[text]


def _ends(text: str) -> Iterator[int]:
    """Where beginnings of a text end, from the last: before its last spaces, then before each space."""
    end = len(text.rstrip(" "))
    while end >= 0:
        yield end
        end = text.rfind(" ", 0, end)
