"""The graphs that a causal language model is exported as.

The network and the output layer are a graph each, so that the weights of both are loaded once, and scores of the whole
vocabulary are computed for as many positions at a time as their memory allows, and only for those that are asked for.

Texts are read as a tree, whose nodes are tokens after those of their path: what several texts begin with is read once.
A run reads some nodes, and goes on from the keys and values of the path to the first of them.

Shapes: `T` nodes, `P` tokens of the path before them, `K` nodes whose keys and values are asked for, `N` positions of
texts, `V` tokens of the vocabulary, `m` groups of tokens, `d` hidden size, `L` layers, `w` size of all keys of a token,
`M` targets, `k` tokens asked for.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from training.bundling.graphs import ExportGraph, contract
from training.bundling.topk import top_k
from training.networks.causal_transformer import CausalSettings, CausalTransformer

__all__ = ["Head", "PredictGraph", "ReadGraph", "causal_graphs", "network_section"]


class Head(Protocol):
    """An output layer, a module: that of an imported model, or the folded one of a trained model."""

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Return the finite log-probabilities of all tokens: hidden `[N, d]` -> `[N, V]`."""
        ...


class ReadGraph(nn.Module):
    """Computes the hidden state after each token of a part of a tree."""

    def __init__(self, network: CausalTransformer) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, tokens: Tensor, positions: Tensor, visible: Tensor, prefix: Tensor, kept: Tensor
    ) -> tuple[Tensor, Tensor]:
        """tokens and positions `[T]`, visible `[T, P + T]`, prefix `[L, 2, P, w]`, kept `[K]`.

        -> hidden states `[T, d]`, and the keys and values of the nodes `kept`, `[L, 2, K, w]`; see
        `CausalTransformer.read`.
        """
        hidden, found = self.network.read(tokens[None], positions[None], visible[None], prefix)
        layers = [torch.stack([each[0].index_select(0, kept) for each in layer]) for layer in found]
        return hidden[0], torch.stack(layers)


class PredictGraph(nn.Module):
    """Computes the distribution of the next token from hidden states, and values of it."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: Tensor, rows: Tensor, targets: Tensor, groups: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        """hidden `[N, d]`, rows and targets `[M]`, groups `[V, m]` of 0 and 1, k `[]`.

        -> log-probabilities of the targets after the positions `rows`, `[M]`, their ranks `[M]`, 1 being that of the
        most probable token, entropy `[N]` in nats, log-probabilities and ids of the k most probable tokens, two of
        `[N, k]`, log-probabilities of the groups, `[N, m]`, and of all tokens, `[N, V]`.
        """
        log_probabilities = self.head.log_prob(hidden)
        chosen = log_probabilities.flatten().index_select(0, rows * log_probabilities.shape[1] + targets)
        ranks = 1 + (log_probabilities.index_select(0, rows) > chosen[:, None]).long().sum(-1)
        probabilities = log_probabilities.exp()
        entropy = -(probabilities * log_probabilities).sum(-1)
        values, ids = top_k(log_probabilities, k)
        return chosen, ranks, entropy, values, ids, (probabilities @ groups).log(), log_probabilities


def network_section(architecture: str, settings: CausalSettings) -> Mapping[str, object]:
    """Return the description of a network in a manifest."""
    windows = [layer.window for layer in settings.layers if layer.window is not None]
    return {
        "kind": "causal-transformer",
        "architecture": architecture,
        "layers": len(settings.layers),
        "hidden_size": settings.hidden_size,
        "inner_size": settings.inner_size,
        "heads": settings.heads,
        "key_value_heads": settings.key_value_heads,
        "head_size": settings.head_size,
        "positions": settings.positions,
        "sliding_window": windows[0] if windows else None,
        "outputs": settings.vocab_size,
    }


def causal_graphs(network: CausalTransformer, head: Head) -> Mapping[str, ExportGraph]:
    """Return the graphs `read` and `predict` of a model."""
    settings, generator = network.settings, torch.Generator().manual_seed(0)
    hidden, width, vocabulary = settings.hidden_size, settings.key_value_heads * settings.head_size, settings.vocab_size
    layers = len(settings.layers)
    read = contract(
        {
            "tokens": ("int64", ("nodes",)),
            "positions": ("int64", ("nodes",)),
            "visible": ("bool", ("nodes", "seen")),
            "prefix": ("float32", (layers, 2, "path", width)),
            "kept": ("int64", ("kept",)),
        },
        {"hidden_states": ("float32", ("nodes", hidden)), "keys_values": ("float32", (layers, 2, "kept", width))},
    )
    predict = contract(
        {
            "hidden_states": ("float32", ("positions", hidden)),
            "rows": ("int64", ("targets",)),
            "targets": ("int64", ("targets",)),
            "groups": ("float32", (vocabulary, "groups")),
            "k": ("int64", ()),
        },
        {
            "log_probabilities": ("float32", ("targets",)),
            "ranks": ("int64", ("targets",)),
            "entropy": ("float32", ("positions",)),
            "best_log_probabilities": ("float32", ("positions", "k")),
            "best_tokens": ("int64", ("positions", "k")),
            "group_log_probabilities": ("float32", ("positions", "groups")),
            "all_log_probabilities": ("float32", ("positions", vocabulary)),
        },
    )
    path = min(3, settings.positions - 1)
    nodes = min(7, settings.positions - path)
    tokens, targets = (torch.randint(vocabulary, (count,), generator=generator) for count in (nodes, 7))
    visible = torch.ones(nodes, path + nodes, dtype=torch.bool).tril(path)
    keys_values = torch.randn(layers, 2, path, width, generator=generator)
    groups = (torch.rand(vocabulary, 2, generator=generator) < 0.5).float()
    vectors, k = torch.randn(5, hidden, generator=generator), torch.tensor(min(2, vocabulary))
    positions, kept, rows = torch.arange(path, path + nodes), torch.tensor([0, nodes - 1]), torch.arange(7) % 5
    return {
        "read": ExportGraph(ReadGraph(network), read, (tokens, positions, visible, keys_values, kept)),
        "predict": ExportGraph(PredictGraph(head), predict, (vectors, rows, targets, groups, k)),
    }
