"""The graphs that a causal language model is exported as.

The network and the output layer are a graph each, so that the weights of both are loaded once, and scores of the whole
vocabulary are computed for as many positions at a time as their memory allows, and only for those that are asked for.

Shapes: `B` texts, `T` tokens, `N` positions of texts, `V` tokens of the vocabulary, `d` hidden size, `k` tokens asked
for.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.bundling.graphs import ExportGraph, contract
from training.bundling.topk import top_k
from training.importing.causal_transformer import CausalHead, CausalTransformer

__all__ = ["PredictGraph", "ReadGraph", "causal_graphs"]


class ReadGraph(nn.Module):
    """Computes the hidden state after each token."""

    def __init__(self, network: CausalTransformer) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> tuple[Tensor]:
        """tokens `[B, T]` -> hidden states `[B, T, d]`."""
        return (self.network(tokens),)


class PredictGraph(nn.Module):
    """Computes the distribution of the next token from hidden states, without handing it out."""

    def __init__(self, head: CausalHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: Tensor, targets: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """hidden `[N, d]`, targets `[N]`, k `[]`.

        -> log-probabilities of the targets `[N]`, their ranks `[N]`, 1 being that of the most probable token, entropy
        `[N]` in nats, log-probabilities and ids of the k most probable tokens, two of `[N, k]`.
        """
        scores = self.head(hidden)
        log_probabilities = scores - scores.logsumexp(-1, keepdim=True)
        chosen = log_probabilities.gather(1, targets[:, None])
        ranks = 1 + (log_probabilities > chosen).long().sum(-1)
        entropy = -(log_probabilities.exp() * log_probabilities).sum(-1)
        values, ids = top_k(log_probabilities, k)
        return chosen[:, 0], ranks, entropy, values, ids


def causal_graphs(network: CausalTransformer, head: CausalHead) -> Mapping[str, ExportGraph]:
    """Return the graphs `read` and `predict` of a model."""
    settings, generator = network.settings, torch.Generator().manual_seed(0)
    hidden = settings.hidden_size
    read = contract(
        {"tokens": ("int64", ("batch", "steps"))}, {"hidden_states": ("float32", ("batch", "steps", hidden))}
    )
    predict = contract(
        {
            "hidden_states": ("float32", ("positions", hidden)),
            "targets": ("int64", ("positions",)),
            "k": ("int64", ()),
        },
        {
            "log_probabilities": ("float32", ("positions",)),
            "ranks": ("int64", ("positions",)),
            "entropy": ("float32", ("positions",)),
            "best_log_probabilities": ("float32", ("positions", "k")),
            "best_tokens": ("int64", ("positions", "k")),
        },
    )
    tokens = torch.randint(settings.vocab_size, (3, min(7, settings.positions)), generator=generator)
    vectors = torch.randn(5, hidden, generator=generator)
    targets = torch.randint(settings.vocab_size, (5,), generator=generator)
    examples = vectors, targets, torch.tensor(min(2, settings.vocab_size))
    return {
        "read": ExportGraph(ReadGraph(network), read, (tokens,)),
        "predict": ExportGraph(PredictGraph(head), predict, examples),
    }
