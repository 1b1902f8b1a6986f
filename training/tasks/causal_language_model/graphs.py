"""The graphs that a causal language model is exported as.

The network and the output layer are a graph each, so that the weights of both are loaded once, and scores of the whole
vocabulary are computed for as many positions at a time as their memory allows, and only for those that are asked for.

A run reads the same number of tokens of each of several texts, after the keys and values of those before. Or it reads
one tree, whose nodes are tokens after those of their path: what several texts begin with is read once.

Shapes: `B` texts or trees, `T` tokens or nodes, `P` tokens of the paths before them, `K` tokens whose keys and values
are asked for, `N` positions of texts, `V` tokens of the vocabulary, `m` groups of tokens, `d` hidden size, `L` layers,
`G` key-value heads, `s` head size, `M` targets, `k` tokens asked for.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from models.decoding.token_tree import layer_inputs
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
    """Computes the hidden state after each token of texts, or after each node of a part of a tree."""

    def __init__(self, network: CausalTransformer) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, tokens: Tensor, positions: Tensor, visible: Tensor, kept: Tensor, *prefix: Tensor
    ) -> tuple[Tensor, Tensor]:
        """tokens and positions `[B, T]`, visible `[B, T, P + T]`, kept `[K]`, keys and values of each layer.

        -> hidden states `[B, T, d]`, and the keys and values of the tokens `kept`, `[L, 2, B, G, K, s]`; see
        `CausalTransformer.read`.
        """
        layers = [(keys, values) for keys, values in zip(prefix[::2], prefix[1::2], strict=True)]
        hidden, found = self.network.read(tokens, positions, visible, layers)
        chosen = [torch.stack([each.index_select(2, kept) for each in layer]) for layer in found]
        return hidden, torch.stack(chosen)


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
    hidden, heads, size = settings.hidden_size, settings.key_value_heads, settings.head_size
    layers, vocabulary = len(settings.layers), settings.vocab_size
    prefix = [name for layer in range(layers) for name in layer_inputs(layer)]
    read = contract(
        {
            "tokens": ("int64", ("texts", "nodes")),
            "positions": ("int64", ("texts", "nodes")),
            "visible": ("bool", ("texts", "nodes", "seen")),
            "kept": ("int64", ("kept",)),
            **dict.fromkeys(prefix, ("float32", ("texts", heads, "path", size))),
        },
        {
            "hidden_states": ("float32", ("texts", "nodes", hidden)),
            "keys_values": ("float32", (layers, 2, "texts", heads, "kept", size)),
        },
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
    texts, path = 2, min(3, settings.positions - 1)
    nodes = min(7, settings.positions - path)
    tokens = torch.randint(vocabulary, (texts, nodes), generator=generator)
    targets = torch.randint(vocabulary, (7,), generator=generator)
    positions = torch.arange(path, path + nodes).expand(texts, -1)
    visible = torch.ones(texts, nodes, path + nodes, dtype=torch.bool).tril(path)
    before = [torch.randn(texts, heads, path, size, generator=generator) for _ in prefix]
    groups = (torch.rand(vocabulary, 2, generator=generator) < 0.5).float()
    vectors, k = torch.randn(5, hidden, generator=generator), torch.tensor(min(2, vocabulary))
    kept, rows = torch.tensor([0, nodes - 1]), torch.arange(7) % 5
    return {
        "read": ExportGraph(ReadGraph(network), read, (tokens, positions, visible, kept, *before)),
        "predict": ExportGraph(PredictGraph(head), predict, (vectors, rows, targets, groups, k)),
    }
