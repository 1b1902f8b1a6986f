"""Reading texts as a tree, in which beginnings that several texts share are read once.

A node is a token after those of its path. The nodes are in depth-first order, and are read part by part: what the nodes
of a part see before it is all on the path to its first node, so that keys and values of this path alone are kept. A
part holds tokens of one long text, or of many short ones, without padding.

Shapes: `T` nodes of a tree, `n` nodes of a part, `P` tokens of the path before them, `L` layers, `w` size of all keys
of a token, `d` hidden size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.backend import Array, Backend

__all__ = ["Path", "TokenTree", "TreeReader"]


@dataclass(frozen=True, slots=True)
class Path:
    """Tokens that have been read."""

    tokens: tuple[int, ...]
    keys_values: Array
    """Their keys and values, `[L, 2, P, w]`."""

    def before_last(self) -> "Path":
        """Return the path without its last token."""
        return Path(self.tokens[:-1], self.keys_values[:, :, :-1])


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


class TreeReader:
    """Runs the graph `read` of a causal language model over trees."""

    def __init__(self, backend: Backend, layers: int, width: int, most_nodes: int) -> None:
        """`width` is the size of all keys of a token in a layer, `most_nodes` the largest number of nodes of a run."""
        self._backend = backend
        self._shape = layers, 2, 0, width
        self._most_nodes = most_nodes

    @property
    def token_bytes(self) -> int:
        """Size of the keys and values of a token."""
        return 8 * self._shape[0] * self._shape[3]

    @property
    def no_path(self) -> Path:
        """The path before the first token of a text."""
        return Path((), np.zeros(self._shape, np.float32))

    def follow(self, path: Path, tokens: Sequence[int]) -> tuple[Path, Array]:
        """Read tokens after a path; return the path with them, and the last hidden state `[d]`.

        Raises `ValueError` without tokens.
        """
        if not tokens:
            raise ValueError("there is no token to read")
        for first in range(0, len(tokens), self._most_nodes):
            part = np.array(tokens[first : first + self._most_nodes], np.int64)
            before, count = len(path.tokens), len(part)
            visible = np.tri(count, before + count, before, dtype=bool)
            positions = np.arange(before, before + count)
            hidden, found = self._run(part, positions, visible, path.keys_values, np.arange(count))
            path = Path((*path.tokens, *part.tolist()), np.concatenate([path.keys_values, found], axis=2))
        return path, hidden[-1]

    def read(self, tree: TokenTree, nodes: Array, path: Path | None = None) -> Iterator[tuple[Array, Array]]:
        """Yield nodes and their hidden states, part by part: `[n]` and `[n, d]`.

        `nodes` are those to read, in order, and with each node those before it. `path` is what the sequences of the
        tree go on from.
        """
        keys_values = (self.no_path if path is None else path).keys_values
        for first in range(0, len(nodes), self._most_nodes):
            part, following = nodes[first : first + self._most_nodes], nodes[first + self._most_nodes :][:1]
            kept, shared = _next_path(tree, part, following)
            visible = _visible(tree, part, keys_values.shape[2])
            hidden, found = self._run(tree.tokens[part], tree.positions[part], visible, keys_values, kept)
            keys_values = np.concatenate([keys_values[:, :, :shared], found], axis=2)
            yield part, hidden

    def _run(self, tokens: Array, positions: Array, visible: Array, prefix: Array, kept: Array) -> tuple[Array, Array]:
        inputs = {"tokens": tokens, "positions": positions, "visible": visible, "prefix": prefix, "kept": kept}
        hidden, keys_values = self._backend.run("read", inputs, ["hidden_states", "keys_values"])
        return hidden, keys_values


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
