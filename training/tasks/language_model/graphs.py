"""The graphs a language model is exported as: plain tensors in, plain tensors out.

Shapes: `B` sequences, `T` time steps, `V` words, `d` hidden size, `L` layers, `K` mixture components, `k` words
asked for.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.bundling.folding import FoldedSoftmax
from training.bundling.graphs import ExportGraph, contract, random_sequences
from training.bundling.topk import top_k
from training.networks.language_model import RecurrentLanguageModel

__all__ = ["NextWordsGraph", "ScoreGraph", "example_inputs", "language_model_graphs"]


class _StatefulGraph(nn.Module):
    """The common part of both graphs: the network, and the output layer for inference."""

    def __init__(self, model: RecurrentLanguageModel) -> None:
        super().__init__()
        self.model = model
        self.output_layer = FoldedSoftmax(model.output_layer)


class NextWordsGraph(_StatefulGraph):
    """The most probable words after each sequence, without handing out the distribution over all `V`."""

    def __init__(self, model: RecurrentLanguageModel, unknown: int) -> None:
        super().__init__(model)
        self._unknown = unknown

    def forward(
        self, tokens: Tensor, lengths: Tensor, hidden: Tensor, cell: Tensor, k: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """tokens `[B, T]`, lengths `[B]`, hidden and cell `[L, B, d]`, k `[]`.

        -> log-probabilities `[B, k]` and ids `[B, k]` of the k best words, entropy `[B]` in nats, mixture weights
        `[B, K]`, log-probability `[B]` of the unknown word, new hidden and cell `[L, B, d]`.
        """
        outputs, (hidden, cell) = self.model(tokens, (hidden, cell), lengths)
        last = outputs[torch.arange(tokens.shape[0], device=tokens.device), lengths - 1]
        layer = self.output_layer
        log_probabilities = layer.log_prob(last)
        probabilities = log_probabilities.exp()
        entropy = -torch.where(probabilities > 0, probabilities * log_probabilities, 0.0).sum(-1)
        values, ids = top_k(log_probabilities, k)
        unknown = log_probabilities[:, self._unknown]
        return values, ids, entropy, layer.mixture_weights(last), unknown, hidden, cell


class ScoreGraph(_StatefulGraph):
    """Log-probability of given next words at every position."""

    def forward(
        self, tokens: Tensor, lengths: Tensor, hidden: Tensor, cell: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """tokens and targets `[B, T]`, others as in `NextWordsGraph` -> `[B, T]` and the new state.

        What stands behind a sequence's length is meaningless.
        """
        outputs, (hidden, cell) = self.model(tokens, (hidden, cell), lengths)
        scores = self.output_layer.target_log_prob(outputs.flatten(0, 1), targets.flatten())
        return scores.view_as(targets), hidden, cell


def language_model_graphs(model: RecurrentLanguageModel, unknown: int = 0) -> Mapping[str, ExportGraph]:
    """Return the graphs `next_words` and `score` of a model; `unknown` is the id of the unknown word."""
    layers, size = model.network.state_shape
    vocabulary, components = model.output_layer.weight.shape[0], model.output_layer.num_components
    state = ("float32", (layers, "batch", size))
    read = {
        "tokens": ("int64", ("batch", "steps")),
        "lengths": ("int64", ("batch",)),
        "hidden": state,
        "cell": state,
    }
    next_state = {"next_hidden": state, "next_cell": state}
    next_words = contract(
        {**read, "k": ("int64", ())},
        {
            "log_probabilities": ("float32", ("batch", "k")),
            "words": ("int64", ("batch", "k")),
            "entropy": ("float32", ("batch",)),
            "mixture_weights": ("float32", ("batch", components)),
            "unknown_log_probability": ("float32", ("batch",)),
            **next_state,
        },
    )
    score = contract(
        {**read, "targets": ("int64", ("batch", "steps"))},
        {"log_probabilities": ("float32", ("batch", "steps")), **next_state},
    )
    shared = example_inputs(model, batch_size=3, steps=7, seed=0)
    targets = torch.randint(vocabulary, (3, 7), generator=torch.Generator().manual_seed(1))
    return {
        "next_words": ExportGraph(
            NextWordsGraph(model, unknown), next_words, (*shared, torch.tensor(min(5, vocabulary)))
        ),
        "score": ExportGraph(ScoreGraph(model), score, (*shared, targets)),
    }


def example_inputs(model: RecurrentLanguageModel, *, batch_size: int, steps: int, seed: int) -> tuple[Tensor, ...]:
    """Return random tokens `[B, T]`, lengths `[B]` of which the first is T, hidden and cell `[L, B, d]`."""
    generator = torch.Generator().manual_seed(seed)
    layers, size = model.network.state_shape
    tokens, lengths = random_sequences(model.output_layer.weight.shape[0], batch_size, steps, generator)
    hidden, cell = torch.rand(2, layers, batch_size, size, generator=generator) * 2 - 1
    return tokens, lengths, hidden, cell
