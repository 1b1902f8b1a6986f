"""Cache of results by text prefix, so that a text that continues or repeats an earlier one is not read anew.

Entries are found by their tokens, whatever the spelling, and by one spelling, so that of a longer text only the added
part is tokenized. They are found only with the salt that they were stored with (as with vLLM's `cache_salt`), so that
callers that do not trust each other cannot find out by timing what others have asked. All share one budget of bytes.
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
_OVERHEAD = 780
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
        self._entries: OrderedDict[tuple[str, bytes], tuple[T, int, str | None]] = OrderedDict()
        """Value, size and text by salt and tokens."""
        self._texts: dict[tuple[str, str], tuple[bytes, tuple[str, ...]]] = {}
        self._lengths: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, tokens: bytes, *, salt: str = "") -> T | None:
        """Return the value of exactly these tokens."""
        with self._lock:
            return self._get((salt, tokens))

    def longest(self, tokens: bytes, *, salt: str = "") -> tuple[int, T] | None:
        """Return number of tokens and value of the longest cached proper prefix."""
        with self._lock:
            lengths = (length for length in range(count(tokens) - 1, 0, -1) if (salt, length) in self._lengths)
            for _, length in zip(range(_TRIES), lengths, strict=False):
                found = self._get((salt, tokens[: _WIDTH * length]))
                if found is not None:
                    return length, found
        return None

    def beginning(self, text: str, *, salt: str = "") -> tuple[int, bytes, tuple[str, ...]] | None:
        """Return length, tokens and unknown words of the longest cached text that this one is, or begins with before a
        space.
        """
        with self._lock:
            for _, length in zip(range(_TRIES), _ends(text), strict=False):
                found = self._texts.get((salt, text[:length]))
                if found is not None:
                    return length, *found
        return None

    def put(
        self,
        tokens: bytes,
        value: T,
        size: int,
        text: str | None = None,
        unknown: tuple[str, ...] = (),
        *,
        salt: str = "",
    ) -> None:
        """Store a value of `size` bytes, unless it alone exceeds the cache.

        `text` is the text of these tokens, whose trailing spaces must have no tokens, and `unknown` are its words that
        all have the token of unknown words.
        """
        key = salt, tokens
        size += len(tokens) + _OVERHEAD + sum(_WORD_OVERHEAD + 4 * len(word) for word in unknown)
        if text is not None:
            text = text.rstrip(" ")
            size += len(text) if text.isascii() else 8 * len(text)  # as characters and, once encoded, as UTF-8
        with self._lock:
            self._drop(key)
            if size > self.max_bytes:
                return
            if text is not None and (salt, text) in self._texts:
                self._drop((salt, self._texts[salt, text][0]))
            self._entries[key] = value, size, text
            self._lengths[salt, count(tokens)] += 1
            if text is not None:
                self._texts[salt, text] = tokens, unknown
            self.bytes += size
            while self.bytes > self.max_bytes:
                self._drop(next(iter(self._entries)))

    def _get(self, key: tuple[str, bytes]) -> T | None:
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def _drop(self, key: tuple[str, bytes]) -> None:
        if key not in self._entries:
            return
        _, size, text = self._entries.pop(key)
        salt, length = key[0], (key[0], count(key[1]))
        self.bytes -= size
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]
        if text is not None:
            del self._texts[salt, text]


def _ends(text: str) -> Iterator[int]:
    """Yield the ends of the prefixes of a text, longest first: before trailing spaces, then before each space."""
    end = len(text.rstrip(" "))
    while end >= 0:
        yield end
        end = text.rfind(" ", 0, end)
