"""Reading texts as a tree, in which beginnings that several texts share are read once.

A node is a token after those of its path. The nodes are in depth-first order, and are read part by part: what the nodes
of a part see before it is all on the path to its first node, so that keys and values of this path alone are kept. A
part holds tokens of one long text, or of many short ones, without padding.

Texts that go on from different paths are read together, too. Where each goes on by one token, it has a row with its
path; else each sees its own path of those in the run.

Shapes: `B` texts, `T` nodes of a tree, `n` nodes of a part, or tokens of a run, `P` tokens of the paths before them,
`L` layers, `G` key-value heads, `s` head size, `d` hidden size.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.backend import Array, Backend
from models.decoding.path_rows import PathRows
from models.decoding.read_paths import Path, Segment

__all__ = ["TokenTree", "TreeReader", "layer_inputs"]

_PATHS_TOKENS = 1 << 12
"""Paths that are read together have so many tokens at most, of which each sees its own alone."""
_TOGETHER_SCORES = 1 << 15
"""Tokens of different paths that are read together have so many attention scores in a head at most."""
_SHARING = 8
"""Texts whose rows would have so many times as many tokens as their paths have together are not read in rows."""


def layer_inputs(layer: int) -> tuple[str, str]:
    """Return the names of the graph's inputs for keys and values of a layer."""
    return f"keys_{layer}", f"values_{layer}"


class TokenTree:
    """The tree of some token sequences that go on from one path."""

    def __init__(self, sequences: Sequence[tuple[int, ...]], begins_at: int = 0) -> None:
        """`begins_at` is the number of tokens of the path that all sequences go on from."""
        order = sorted(range(len(sequences)), key=sequences.__getitem__)
        tokens: list[int] = []
        parents: list[int] = []
        self.places: list[Array] = [np.zeros(0, np.int64)] * len(sequences)
        """The node of each token of each sequence."""
        path: list[int] = []
        before: tuple[int, ...] = ()
        for index in order:
            sequence = sequences[index]
            shared = _common(before, sequence)
            del path[shared:]
            for token in sequence[shared:]:
                parents.append(path[-1] if path else -1)
                path.append(len(tokens))
                tokens.append(token)
            self.places[index] = np.array(path, np.int64)
            before = sequence
        self.tokens: Array = np.array(tokens, np.int64)
        """The token of each node, `[T]`."""
        self.parents: Array = np.array(parents, np.int64)
        """The node before each node, -1 where the path is before it, `[T]`."""
        self.positions: Array = np.full(len(tokens), begins_at, np.int64)
        """Place of each node in its texts, `[T]`."""
        for places in self.places:
            self.positions[places] = np.arange(begins_at, begins_at + len(places))

    def __len__(self) -> int:
        return len(self.tokens)

    def inner(self) -> Array:
        """Return the nodes that a token follows, in order."""
        return np.unique(self.parents[self.parents >= 0])


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common beginning of two sequences."""
    if one == other:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (first, second) in pairs if first != second), min(len(one), len(other)))


_ROOM, _SPARE = 1.25, 4
"""The memory of paths is so many times as large as is needed at first, and at most."""


@dataclass(eq=False, slots=True)
class _Reading:
    """A text that is read."""

    path: Path
    """The tokens that have been read."""
    tokens: Sequence[int]
    """The tokens that are to be read."""
    hidden: Array | None = None
    """The last hidden state, `[d]`."""


@dataclass(slots=True)
class _Together:
    """Texts whose next tokens are read in one run."""

    texts: list[tuple[_Reading, Sequence[int]]] = field(default_factory=list)
    """Texts and their next tokens."""
    tokens: int = 0
    """Number of these tokens."""
    seen: dict[Segment, int] = field(default_factory=dict)
    """The segments of all paths, and how many tokens of each are needed."""

    def needed(self, path: Path) -> int:
        """Return the number of tokens of all paths, with those of one more."""
        more = sum(max(0, count - self.seen.get(segment, 0)) for segment, count in path.pieces)
        return sum(self.seen.values()) + more

    def add(self, text: _Reading, tokens: Sequence[int]) -> None:
        self.texts.append((text, tokens))
        self.tokens += len(tokens)
        for segment, count in text.path.pieces:
            self.seen[segment] = max(count, self.seen.get(segment, 0))


class TreeReader:
    """Runs the graph `read` of a causal language model over trees."""

    def __init__(
        self,
        backend: Backend,
        shape: tuple[int, int, int],
        most_nodes: int,
        *,
        paths_bytes: int = 1 << 26,
        sliding_window: int | None = None,
    ) -> None:
        """`shape` has the numbers of layers and of key-value heads, and the head size; `most_nodes` is the largest
        number of nodes of a run.

        Paths that are read together have keys and values of `paths_bytes` at most, and this is the memory that is kept
        for them. `sliding_window` is the number of tokens that some layers attend to at most.
        """
        self._backend = backend
        self._layers, self._heads, self._head_size = shape
        self._most_nodes = most_nodes
        self._window, self._paths_bytes = sliding_window, paths_bytes
        self.rows_bytes = paths_bytes
        """Size of the rows at most."""
        self._spare: deque[Array] = deque(maxlen=1)
        """The memory of the last prefix: to allocate it anew takes longer than to fill it."""
        self._rows: deque[PathRows] = deque(maxlen=1)
        """The rows of the last step."""

    @property
    def token_bytes(self) -> int:
        """Size of the keys and values of a token."""
        return 8 * self._layers * self._heads * self._head_size

    def follow(
        self,
        texts: Sequence[tuple[Path, Sequence[int]]],
        extended: Callable[[Path, Sequence[int], Array], Path] = Path.extended,
    ) -> list[tuple[Path, Array]]:
        """Read tokens after paths, those of several texts together; return each path with them, and its last hidden
        state `[d]`.

        `extended` makes the path with tokens that were read. Raises `ValueError` for a text without tokens.
        """
        if not all(tokens for _, tokens in texts):
            raise ValueError("there is no token to read")
        reading = [_Reading(path, tokens) for path, tokens in texts]
        while unread := [each for each in reading if each.tokens]:
            stepping = self._stepping(unread)
            if stepping:
                self._step(stepping, extended)
            for together in self._together([each for each in unread if each.tokens and each not in stepping]):
                self._follow(together, extended)
        return [(each.path, each.hidden) for each in reading if each.hidden is not None]

    def _stepping(self, texts: Sequence[_Reading]) -> list[_Reading]:
        """Return the texts that go on by one token and whose paths fit in rows, unless they share most of these."""
        single = [each for each in texts if each.path.pieces and len(each.tokens) == 1]
        single.sort(key=lambda each: len(each.path))
        most = self.rows_bytes // self.token_bytes
        count = min(len(single), self._most_nodes)
        while count and count * len(single[count - 1].path) > most:
            count -= 1
        paths = _Together()
        for each in single[:count]:
            paths.add(each, each.tokens)
        shared = count >= _SHARING and _SHARING * sum(paths.seen.values()) <= count * len(single[count - 1].path)
        return [] if shared else single[:count]

    def _step(self, texts: Sequence[_Reading], extended: Callable[[Path, Sequence[int], Array], Path]) -> None:
        """Read one token of each text."""
        try:
            rows = self._rows.pop()
        except IndexError:
            rows = PathRows(self._layers, self._heads, self._head_size)
        order, keys_values = rows.hold([each.path for each in texts], self.rows_bytes // self.token_bytes)
        room = keys_values.shape[4]
        tokens, positions = np.empty((2, len(texts), 1), np.int64)
        visible = np.zeros((len(texts), 1, room + 1), bool)
        for row, each in zip(order, texts, strict=True):
            tokens[row], positions[row] = each.tokens[0], len(each.path)
            visible[row, 0, : len(each.path)] = visible[row, 0, room] = True
        hidden, found = self._run(tokens, positions, visible, keys_values, np.zeros(1, np.int64))
        for row, each in zip(order, texts, strict=True):
            each.path = extended(each.path, each.tokens, found[:, :, row])
            each.tokens, each.hidden = (), hidden[row, 0]
        if rows.bytes <= self.rows_bytes:
            self._rows.append(rows)

    def _together(self, texts: Sequence[_Reading]) -> Iterator[_Together]:
        """Yield the texts in groups, each with as many of its next tokens as a run may have."""
        most = max(1, min(_PATHS_TOKENS, self._paths_bytes // self.token_bytes))
        found = _Together()
        for text in texts:
            part = text.tokens[: self._most_nodes]
            count, paths = found.tokens + len(part), found.needed(text.path)
            fits = count <= self._most_nodes and paths <= most and count * (paths + count) <= _TOGETHER_SCORES
            if found.texts and not (fits and self._may_join(text, part)):
                yield found
                found = _Together()
            found.add(text, part)
            if not self._may_join(text, part):
                yield found
                found = _Together()
        if found.texts:
            yield found

    def _may_join(self, text: _Reading, part: Sequence[int]) -> bool:
        """Return whether a text can be read with others.

        The graph takes the place of a token in the prefix for its position, by which it leaves out those before a
        window.
        """
        return self._window is None or len(text.path) + len(part) <= self._window

    def _follow(self, together: _Together, extended: Callable[[Path, Sequence[int], Array], Path]) -> None:
        prefix, scratch = self._prefix(together.seen)
        starts = dict(zip(together.seen, np.cumsum([0, *together.seen.values()]).tolist(), strict=False))
        before, count, first = prefix.shape[4], together.tokens, 0
        visible = np.zeros((count, before + count), bool)
        positions = np.empty(count, np.int64)
        for text, part in together.texts:
            rows = slice(first, first + len(part))
            for segment, used in text.path.pieces:
                visible[rows, starts[segment] : starts[segment] + used] = True
            visible[rows, before + first : before + first + len(part)] = np.tri(len(part), dtype=bool)
            positions[rows] = np.arange(len(text.path), len(text.path) + len(part))
            first += len(part)
        tokens = np.array([token for _, part in together.texts for token in part], np.int64)
        hidden, keys_values = self._run_one(tokens, positions, visible, prefix, np.arange(count))
        first = 0
        for text, part in together.texts:
            last = first + len(part)
            own = keys_values if len(part) == count else keys_values[..., first:last, :].copy()
            text.path = extended(text.path, part, own)
            text.tokens, text.hidden = text.tokens[len(part) :], hidden[last - 1]
            first = last
        if scratch.nbytes <= self._paths_bytes:
            self._spare.append(scratch)

    def _prefix(self, segments: Mapping[Segment, int]) -> tuple[Array, Array]:
        """Return keys and values of so many tokens of each segment, one after the other, and the memory they are in."""
        shape = self._layers, 2, 1, self._heads, sum(segments.values()), self._head_size
        size = math.prod(shape)
        try:
            scratch = self._spare.pop()
        except IndexError:
            scratch = np.empty(0, np.float32)
        if not size <= len(scratch) <= _SPARE * size:
            most = max(size, self._paths_bytes // np.dtype(np.float32).itemsize)
            scratch = np.empty(min(int(_ROOM * size), most), np.float32)
        prefix = scratch[:size].reshape(shape)
        if segments:
            arrays = [segment.keys_values[..., :count, :] for segment, count in segments.items()]
            np.concatenate(arrays, axis=-2, out=prefix[:, :, 0])
        return prefix, scratch

    def read(self, tree: TokenTree, nodes: Array, path: Path | None = None) -> Iterator[tuple[Array, Array]]:
        """Yield nodes and their hidden states, part by part: `[n]` and `[n, d]`.

        `nodes` are those to read, in order, and with each node those before it. `path` is what the sequences of the
        tree go on from, in one segment.
        """
        empty = np.zeros((self._layers, 2, self._heads, 0, self._head_size), np.float32)
        keys_values = empty if path is None else path.pieces[0][0].keys_values
        for first in range(0, len(nodes), self._most_nodes):
            part, following = nodes[first : first + self._most_nodes], nodes[first + self._most_nodes :][:1]
            kept, shared = _next_path(tree, part, following)
            visible = _visible(tree, part, keys_values.shape[3])
            prefix = keys_values[:, :, None]
            hidden, found = self._run_one(tree.tokens[part], tree.positions[part], visible, prefix, kept)
            keys_values = np.concatenate([keys_values[..., :shared, :], found], axis=-2)
            yield part, hidden

    def _run_one(
        self, tokens: Array, positions: Array, visible: Array, prefix: Array, kept: Array
    ) -> tuple[Array, Array]:
        """Return hidden states `[n, d]`, and keys and values of the tokens kept, `[L, 2, G, K, s]`, of one tree."""
        hidden, keys_values = self._run(tokens[None], positions[None], visible[None], prefix, kept)
        return hidden[0], keys_values[:, :, 0]

    def _run(self, tokens: Array, positions: Array, visible: Array, prefix: Array, kept: Array) -> tuple[Array, Array]:
        inputs = {"tokens": tokens, "positions": positions, "visible": visible, "kept": kept}
        for layer, keys_values in enumerate(prefix):
            inputs |= dict(zip(layer_inputs(layer), keys_values, strict=True))
        hidden, found = self._backend.run("read", inputs, ["hidden_states", "keys_values"])
        return hidden, found


def _visible(tree: TokenTree, part: Array, before: int) -> Array:
    """Return what each node of a part sees: tokens of the path before the part, and nodes of the part, `[n, P + n]`."""
    rows: dict[int, int] = {}
    visible = np.zeros((len(part), before + len(part)), bool)
    nodes = zip(part.tolist(), tree.parents[part].tolist(), tree.positions[part].tolist(), strict=True)
    for row, (node, parent, position) in enumerate(nodes):
        if (above := rows.get(parent)) is not None:
            visible[row, : before + row] = visible[above, : before + row]
        else:  # all nodes above it are on the path
            visible[row, :position] = True
        visible[row, before + row] = True
        rows[node] = row
    return visible


def _next_path(tree: TokenTree, part: Array, following: Array) -> tuple[Array, int]:
    """Return the rows of a part that are on the path to the next one, and how many tokens of the path before stay."""
    if not len(following):
        return np.zeros(0, np.int64), 0
    first, node, rows = int(part[0]), int(following[0]), []
    while (parent := int(tree.parents[node])) >= first:
        rows.append(int(np.searchsorted(part, parent)))
        node = parent
    return np.array(rows[::-1], np.int64), int(tree.positions[node])
