"""What was computed after recent texts, so that a text that goes on, or comes again, is not read anew."""

import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Generic, TypeVar

__all__ = ["PrefixCache"]

T = TypeVar("T")

_WIDTH = array("L").itemsize
_TRIES = 64
"""Lengths at which a prefix is looked for, so that an answer that nothing is known comes soon."""
_OVERHEAD = 500
"""Bytes of an entry besides its value and tokens."""


class PrefixCache(Generic[T]):
    """Values by token sequences; the ones that were not used for longest go first. Safe to use from several threads."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """Of keys and values, roughly."""
        self._entries: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._lengths: Counter[int] = Counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, tokens: Sequence[int]) -> T | None:
        """What was put for exactly these tokens."""
        with self._lock:
            return self._get(_key(tokens))

    def longest(self, tokens: Sequence[int]) -> tuple[int, T] | None:
        """The longest proper prefix for which something was put: its length, and that."""
        key = _key(tokens)
        with self._lock:
            lengths = (length for length in range(len(tokens) - 1, 0, -1) if length in self._lengths)
            for _, length in zip(range(_TRIES), lengths, strict=False):
                found = self._get(key[: _WIDTH * length])
                if found is not None:
                    return length, found
        return None

    def put(self, tokens: Sequence[int], value: T, size: int) -> None:
        """Keeps a value of so many bytes, unless it alone is more than the cache holds."""
        key = _key(tokens)
        size += len(key) + _OVERHEAD
        with self._lock:
            self._drop(key)
            if size > self.max_bytes:
                return
            self._entries[key] = value, size
            self._lengths[len(tokens)] += 1
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
        _, size = self._entries.pop(key)
        length = len(key) // _WIDTH
        self.bytes -= size
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]


def _key(tokens: Sequence[int]) -> bytes:
    return array("L", tokens).tobytes()
