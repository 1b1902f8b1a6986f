"""Cache of results by text prefix, so that a text that continues or repeats an earlier one is not read anew.

Entries are found by their tokens, whatever the spelling, and by one spelling, so that of a longer text only the added
part is tokenized.
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
"""Largest number of prefixes that a lookup tries, which bounds the time of a miss."""
_OVERHEAD = 700
"""Bytes of an entry in addition to its value, tokens and text."""
_WORD_OVERHEAD = 80
"""Bytes of a word in addition to its letters."""


def packed(tokens: Iterable[int]) -> bytes:
    """Return packed ids, the form of cache keys; packed ids can be concatenated."""
    return array("I", tokens).tobytes()


def unpacked(tokens: bytes, start: int = 0) -> tuple[int, ...]:
    """Return the ids from position `start` on."""
    return tuple(array("I", tokens[_WIDTH * start :]))


def count(tokens: bytes) -> int:
    """Return the number of packed ids."""
    return len(tokens) // _WIDTH


class PrefixCache(Generic[T]):
    """A thread-safe LRU cache of values by packed tokens."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """Rough size of keys and values, in bytes."""
        self._entries: OrderedDict[bytes, tuple[T, int, str | None]] = OrderedDict()
        self._texts: dict[str, tuple[bytes, tuple[str, ...]]] = {}
        self._lengths: Counter[int] = Counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, tokens: bytes) -> T | None:
        """Return the value of exactly these tokens."""
        with self._lock:
            return self._get(tokens)

    def longest(self, tokens: bytes) -> tuple[int, T] | None:
        """Return number of tokens and value of the longest cached proper prefix."""
        with self._lock:
            lengths = (length for length in range(count(tokens) - 1, 0, -1) if length in self._lengths)
            for _, length in zip(range(_TRIES), lengths, strict=False):
                found = self._get(tokens[: _WIDTH * length])
                if found is not None:
                    return length, found
        return None

    def beginning(self, text: str) -> tuple[int, bytes, tuple[str, ...]] | None:
        """Return length, tokens and unknown words of the longest cached text that this one is, or begins with before a
        space.
        """
        with self._lock:
            for _, length in zip(range(_TRIES), _ends(text), strict=False):
                found = self._texts.get(text[:length])
                if found is not None:
                    return length, *found
        return None

    def put(self, tokens: bytes, value: T, size: int, text: str | None = None, unknown: tuple[str, ...] = ()) -> None:
        """Store a value of `size` bytes, unless it alone exceeds the cache.

        `text` is the text of these tokens, whose trailing spaces must have no tokens, and `unknown` are its words that
        all have the token of unknown words.
        """
        size += len(tokens) + _OVERHEAD + sum(_WORD_OVERHEAD + 4 * len(word) for word in unknown)
        if text is not None:
            text = text.rstrip(" ")
            size += len(text) if text.isascii() else 8 * len(text)  # as characters and, once encoded, as UTF-8
        with self._lock:
            self._drop(tokens)
            if size > self.max_bytes:
                return
            if text is not None and text in self._texts:
                self._drop(self._texts[text][0])
            self._entries[tokens] = value, size, text
            self._lengths[count(tokens)] += 1
            if text is not None:
                self._texts[text] = tokens, unknown
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
    """Yield the ends of the prefixes of a text, longest first: before trailing spaces, then before each space."""
    end = len(text.rstrip(" "))
    while end >= 0:
        yield end
        end = text.rfind(" ", 0, end)
