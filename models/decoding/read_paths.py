"""Keys and values of tokens that a causal language model has read, which texts that begin alike share.

A path is a text up to one of its tokens. It is a row of segments, each of which holds keys and values of some tokens,
so that a text goes on without a copy of the tokens before, and that several texts can go on from the same tokens. A
cache finds segments by the tokens that they hold.

Shapes: `n` tokens that a path goes on by, `P` tokens of a path, `L` layers, `G` key-value heads, `s` head size.
"""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from models.backend import Array

__all__ = ["Path", "PathCache", "Segment", "with_room"]

_ROOM = 16
"""Tokens that a new segment has room for where a path goes on by a token at a time."""
_OVERHEAD = 1024
"""Bytes of a segment in addition to its keys and values."""
_TOKEN_OVERHEAD = 40
"""Bytes of a token in addition to its keys and values."""


@dataclass(eq=False, slots=True)
class Segment:
    """Some tokens in a row, and what follows them in the cache."""

    tokens: list[int]
    keys_values: Array
    """Their keys and values, `[L, 2, G, room, s]` with room for as many tokens or more."""
    parent: "Segment | None" = None
    """The segment before."""
    after: int = 0
    """So many tokens of the parent are before this segment."""
    children: "dict[tuple[int, int], Segment]" = field(default_factory=dict)
    """Those that go on after so many tokens of this segment, with this token."""
    number: int = field(default_factory=itertools.count().__next__)
    """No other segment has this number."""

    @property
    def room(self) -> int:
        """Number of tokens that it can hold."""
        room: int = self.keys_values.shape[-2]
        return room

    @property
    def bytes(self) -> int:
        """Size in bytes, roughly."""
        return self.keys_values.nbytes + _OVERHEAD + _TOKEN_OVERHEAD * self.room


@dataclass(frozen=True, slots=True)
class Path:
    """Tokens that have been read; none at first."""

    pieces: tuple[tuple[Segment, int], ...] = ()
    """Segments, and how many tokens of each belong to the path. Segments may get more tokens behind these."""
    salt: str = ""
    """The part of the cache that the path belongs to."""

    def __len__(self) -> int:
        """Return the number of tokens, `P`."""
        return sum(count for _, count in self.pieces)

    @property
    def tokens(self) -> list[int]:
        """The tokens, in order."""
        return [token for segment, count in self.pieces for token in segment.tokens[:count]]

    def extended(self, tokens: Sequence[int], keys_values: Array) -> "Path":
        """Return the path with `n` more tokens, whose keys and values are `[L, 2, G, n, s]`."""
        return replace(self, pieces=(*self.pieces, (Segment(list(tokens), keys_values), len(tokens))))

    def joined(self) -> "Path":
        """Return the path as one segment, which is faster to go on from several times. It has at least one token."""
        arrays = [segment.keys_values[..., :count, :] for segment, count in self.pieces]
        return Path((), self.salt).extended(
            self.tokens, arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-2)
        )


class PathCache:
    """Segments by their tokens, as many as fit in some bytes: those that were used last. Safe to use from several
    threads.

    Paths are found only with the salt that they were stored with, so that callers that do not trust each other cannot
    find out by timing what others have asked.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """Rough size of all segments."""
        self._roots: dict[str, Segment] = {}
        """A segment without tokens for each salt."""
        self._used: OrderedDict[Segment, str] = OrderedDict()
        """The salt of each segment, in the order of their last use. A segment is behind all that follow it, so that the
        first one is the end of its paths."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._used)

    def longest(self, tokens: Sequence[int], salt: str = "") -> Path:
        """Return the longest path that is known and that the tokens begin with; it has fewer tokens than these."""
        pieces: list[tuple[Segment, int]] = []
        most, first = len(tokens) - 1, 0
        with self._lock:
            segment, count = self._roots.get(salt), 0
            while segment is not None and first < most:
                segment = segment.children.get((count, tokens[first]))
                if segment is None:
                    break
                count = _common(segment.tokens, tokens, first, most)
                pieces.append((segment, count))
                first += count
            path = Path(tuple(pieces), salt)
            self._touch(path)
        return path

    def extended(self, path: Path, tokens: Sequence[int], keys_values: Array) -> Path:
        """Return a path with `n` more tokens, which are kept if the path itself still is.

        `keys_values` `[L, 2, G, n, s]` are theirs, and may become part of the cache. A caller can go on from a path
        whether it is kept or not.
        """
        with self._lock:
            last, count = path.pieces[-1] if path.pieces else (self._root(path.salt), 0)
            kept = not path.pieces or last in self._used
            read = 0  # tokens that another text has brought in the meantime
            while kept and read < len(tokens) and (child := last.children.get((count, tokens[read]))) is not None:
                last, count = child, _common(child.tokens, tokens, read, len(tokens))
                path = replace(path, pieces=(*path.pieces, (last, count)))
                read += count
            if read:
                tokens, keys_values = tokens[read:], keys_values[..., read:, :].copy()
            end = count + len(tokens)
            if not tokens:
                found = path
            elif count == len(last.tokens) and end <= last.room:
                last.keys_values[..., count:end, :] = keys_values
                last.tokens.extend(tokens)
                found = replace(path, pieces=(*path.pieces[:-1], (last, end)))
            else:
                found = path.extended(tokens, _roomy(keys_values))
                if kept:
                    self._keep(found, last, count)
            self._touch(found)
            while self.bytes > self.max_bytes:
                self._drop()
        return found

    def _root(self, salt: str) -> Segment:
        return self._roots.setdefault(salt, Segment([], np.zeros((0, 0, 0, 0, 0), np.float32)))

    def _keep(self, path: Path, parent: Segment, after: int) -> None:
        """Add the last segment of a path, which follows so many tokens of the one before."""
        segment, _ = path.pieces[-1]
        segment.parent, segment.after = parent, after
        parent.children[after, segment.tokens[0]] = segment
        self._used[segment] = path.salt
        self.bytes += segment.bytes

    def _touch(self, path: Path) -> None:
        for segment, _ in reversed(path.pieces):
            if segment in self._used:
                self._used.move_to_end(segment)

    def _drop(self) -> None:
        segment, salt = self._used.popitem(last=False)
        self.bytes -= segment.bytes
        parent = segment.parent
        if parent is not None:
            del parent.children[segment.after, segment.tokens[0]]
            if parent is self._roots.get(salt) and not parent.children:
                del self._roots[salt]


def with_room(written: int) -> int:
    """Return for how many tokens a path has room once it went on by so many, one at a time."""
    return -(-written // _ROOM) * _ROOM


def _roomy(keys_values: Array) -> Array:
    """Return keys and values with room for more tokens where they are of one: a text that is written grows by one at a
    time.
    """
    *before, count, size = keys_values.shape
    if count != 1:
        return keys_values
    room = np.empty((*before, _ROOM, size), keys_values.dtype)
    room[..., :1, :] = keys_values
    return room


def _common(known: Sequence[int], tokens: Sequence[int], first: int, end: int) -> int:
    """Return how many of the known tokens are those from `first` on, before `end`."""
    most = min(len(known), end - first)
    if list(known[:most]) == list(tokens[first : first + most]):
        return most
    return next(place for place in range(most) if known[place] != tokens[first + place])
