"""What follows the tokens of texts that are read as a tree: log-probabilities, ranks, entropies, most probable tokens.

Shapes: `T` nodes of a tree, `N` hidden states, `M` targets, `V` tokens of the vocabulary, `m` groups of tokens, `d`
hidden size, `k` tokens asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.backend import Array, Backend
from models.decoding.token_tree import TokenTree, TreeReader

__all__ = ["Asked", "Predictions", "Predictor"]

_RUN_BYTES = 1 << 26
"""The scores of the vocabulary that are computed at a time take so many bytes at most, or are those of one position."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The values to compute of the distributions in a tree."""

    explain: int = 0
    """Most probable tokens after each node, with the rank of each node and the entropy before it."""
    groups: Array | None = None
    """Groups of tokens whose probability to come next is asked for, `[V, m]` of 0 and 1."""


class Predictions:
    """What follows the nodes of a tree. Values of nodes that were not asked for are not numbers."""

    def __init__(self, nodes: int, asked: Asked) -> None:
        self.log_probabilities = np.full(nodes, np.nan, np.float32)
        """Log-probability of each node after those before it, `[T]`."""
        explained = nodes if asked.explain else 0
        self.ranks = np.zeros(explained, np.int64)
        """Rank of each node among the tokens there, 1 for the most probable one, `[T]`."""
        self.entropy = np.full(explained, np.nan, np.float32)
        """Entropy of the distribution after each node, in nats, `[T]`."""
        self.best: dict[int, tuple[Array, Array]] = {}
        """Log-probabilities and ids of the most probable tokens after a node, two of `[k]`."""
        groups = 0 if asked.groups is None else asked.groups.shape[1]
        self.groups = np.full((nodes, groups), np.nan, np.float32)
        """Log-probability that a token of each group follows a node, `[T, m]`."""


class Predictor:
    """Runs the graph `predict` of a causal language model."""

    def __init__(self, backend: Backend, reader: TreeReader, vocab_size: int, components: int) -> None:
        """`components` is the number of matrices of scores that the output layer computes."""
        self._backend, self._reader, self._vocab_size = backend, reader, vocab_size
        self.most_positions = max(1, _RUN_BYTES // (4 * vocab_size * components))
        """Largest number of hidden states, and of targets, of a run."""

    def outputs(self, states: Array, names: Sequence[str], top_k: int = 1) -> list[Array]:
        """Return outputs for hidden states `[N, d]`; each output has a row for each of them."""
        parts = [
            self._run(states[first : first + self.most_positions], names, top_k=top_k)
            for first in range(0, len(states), self.most_positions)
        ]
        return [np.concatenate(each) for each in zip(*parts, strict=True)]

    def predictions(self, tree: TokenTree, nodes: Array, asked: Asked) -> Predictions:
        """Read nodes of a tree, in order and with each node those before it; return what follows them."""
        found = Predictions(len(tree), asked)
        names = ["log_probabilities"]
        names += ["ranks", "entropy", "best_log_probabilities", "best_tokens"] if asked.explain else []
        names += ["group_log_probabilities"] if asked.groups is not None else []
        targets = np.argsort(tree.parents, kind="stable")
        targets = targets[tree.parents[targets] >= 0]
        before = tree.parents[targets]
        for part, hidden in self._reader.read(tree, nodes):
            for rows, chosen in self._runs(part, before):
                after = targets[chosen]
                places = np.searchsorted(part[rows], before[chosen])
                outputs = self._run(hidden[rows], names, places, tree.tokens[after], asked.groups, asked.explain)
                values = dict(zip(names, outputs, strict=True))
                found.log_probabilities[after] = values["log_probabilities"][: len(after)]
                if asked.explain:
                    found.ranks[after] = values["ranks"][: len(after)]
                    found.entropy[part[rows]] = values["entropy"]
                    best = zip(values["best_log_probabilities"], values["best_tokens"], strict=True)
                    found.best.update(zip(part[rows].tolist(), best, strict=True))
                if asked.groups is not None:
                    found.groups[part[rows]] = values["group_log_probabilities"]
        return found

    def _runs(self, part: Array, before: Array) -> Iterator[tuple[slice, slice]]:
        """Yield rows of a part, and the targets after them, as many as a run may have.

        `before` has the node before each target, in order; a node with more targets than a run may have is computed
        several times.
        """
        most = self.most_positions
        for first in range(0, len(part), most):
            rows = slice(first, min(first + most, len(part)))
            start, stop = np.searchsorted(before, [part[rows.start], part[rows.stop - 1] + 1]).tolist()
            for begin in range(start, max(stop, start + 1), most):
                yield rows, slice(begin, min(begin + most, stop))

    def _run(
        self,
        states: Array,
        names: Sequence[str],
        rows: Array | None = None,
        targets: Array | None = None,
        groups: Array | None = None,
        top_k: int = 1,
    ) -> list[Array]:
        """Return outputs of the output layer for hidden states `[N, d]`, of which there are few enough for a run.

        Without targets there is one value of those that targets have, which means nothing.
        """
        if rows is None or targets is None or not len(rows):
            rows = targets = np.zeros(1, np.int64)  # ONNX Runtime reduces arrays without rows to a wrong shape
        inputs = {
            "hidden_states": states,
            "rows": rows,
            "targets": targets,
            "groups": np.zeros((self._vocab_size, 0), np.float32) if groups is None else groups,
            "k": np.array(max(1, top_k)),
        }
        return self._backend.run("predict", inputs, names)
