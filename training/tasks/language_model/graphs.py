"""The graphs a language model is exported as: plain tensors in, plain tensors out.

Shapes: `B` sequences, `T` time steps, `V` words, `d` hidden size, `L` layers, `K` mixture components, `k` words
asked for, `M` remembered words.

Where a component of the output layer reads the words before a position, both graphs have two inputs more, the words
that were read in earlier runs and the hidden states that they were predicted from, and one output more, the hidden
states of the run: `training.softmax.Memory`. A caller puts both together for the next run.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.bundling.folding import FoldedSoftmax
from training.bundling.graphs import ExportGraph, Tensors, contract, random_sequences
from training.bundling.topk import top_k
from training.networks.language_model import RecurrentLanguageModel
from training.networks.lstm import State
from training.softmax import History, Memory

__all__ = ["NextWordsGraph", "ScoreGraph", "example_inputs", "example_memory", "language_model_graphs"]


class _StatefulGraph(nn.Module):
    """The common part of both graphs: the network, and the output layer for inference."""

    def __init__(self, model: RecurrentLanguageModel) -> None:
        super().__init__()
        self.model = model
        self.output_layer = FoldedSoftmax(model.output_layer)

    def _read(
        self, tokens: Tensor, lengths: Tensor, state: State, memory: tuple[Tensor, ...]
    ) -> tuple[Tensor, History | None, tuple[Tensor, ...]]:
        """Return context vectors `[B, T, d]`, their history, and the outputs from which the next run goes on.

        memory is empty, or words `[B, M]`, negative where there is none, and states `[B, M, d]`. The last of the words
        is the first token: the one that the last of the states predicted.
        """
        outputs, (hidden, cell) = self.model(tokens, state, lengths)
        if not memory:
            return outputs, None, (hidden, cell)
        # Padding stands behind all words that a position of the text sees.
        return outputs, Memory(*memory).history(outputs, tokens[:, 1:]), (hidden, cell, outputs)


class NextWordsGraph(_StatefulGraph):
    """The most probable words after each sequence, without handing out the distribution over all `V`."""

    def __init__(self, model: RecurrentLanguageModel, unknown: int) -> None:
        super().__init__(model)
        self._unknown = unknown

    def forward(
        self, tokens: Tensor, lengths: Tensor, hidden: Tensor, cell: Tensor, k: Tensor, *memory: Tensor
    ) -> tuple[Tensor, ...]:
        """tokens `[B, T]`, lengths `[B]`, hidden and cell `[L, B, d]`, k `[]`, memory as in the module's docstring.

        -> log-probabilities `[B, k]` and ids `[B, k]` of the k best words, entropy `[B]` in nats, mixture weights
        `[B, K]`, log-probability `[B]` of the unknown word, new hidden and cell `[L, B, d]`, states `[B, T, d]` where
        there is a memory.
        """
        outputs, history, state = self._read(tokens, lengths, (hidden, cell), memory)
        last = outputs[torch.arange(tokens.shape[0], device=tokens.device), lengths - 1]
        if history is not None:
            last, history = last[:, None], history.at(lengths - 1)
        layer = self.output_layer
        log_probabilities = layer.log_prob(last, history)
        probabilities = log_probabilities.exp()
        entropy = -torch.where(probabilities > 0, probabilities * log_probabilities, 0.0).sum(-1)
        values, ids = top_k(log_probabilities, k)
        unknown = log_probabilities[:, self._unknown]
        return values, ids, entropy, layer.mixture_weights(last, history), unknown, *state


class ScoreGraph(_StatefulGraph):
    """Log-probability of given next words at every position."""

    def forward(
        self, tokens: Tensor, lengths: Tensor, hidden: Tensor, cell: Tensor, targets: Tensor, *memory: Tensor
    ) -> tuple[Tensor, ...]:
        """tokens and targets `[B, T]`, others as in `NextWordsGraph` -> `[B, T]` and the new state.

        What stands behind a sequence's length is meaningless.
        """
        outputs, history, state = self._read(tokens, lengths, (hidden, cell), memory)
        rows = outputs.flatten(0, 1) if history is None else outputs
        scores = self.output_layer.target_log_prob(rows, targets.flatten(), history)
        return scores.view_as(targets), *state


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
    remembered: Tensors = {}
    next_state: Tensors = {"next_hidden": state, "next_cell": state}
    if model.output_layer.reads_history:
        remembered = {
            "memory_words": ("int64", ("batch", "remembered")),
            "memory_states": ("float32", ("batch", "remembered", size)),
        }
        next_state = {**next_state, "states": ("float32", ("batch", "steps", size))}
    next_words = contract(
        {**read, "k": ("int64", ()), **remembered},
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
        {**read, "targets": ("int64", ("batch", "steps")), **remembered},
        {"log_probabilities": ("float32", ("batch", "steps")), **next_state},
    )
    shared = example_inputs(model, batch_size=3, steps=7, seed=0)
    memory = example_memory(model, batch_size=3, remembered=4, seed=0)
    targets = torch.randint(vocabulary, (3, 7), generator=torch.Generator().manual_seed(1))
    return {
        "next_words": ExportGraph(
            NextWordsGraph(model, unknown), next_words, (*shared, torch.tensor(min(5, vocabulary)), *memory)
        ),
        "score": ExportGraph(ScoreGraph(model), score, (*shared, targets, *memory)),
    }


def example_inputs(model: RecurrentLanguageModel, *, batch_size: int, steps: int, seed: int) -> tuple[Tensor, ...]:
    """Return random tokens `[B, T]`, lengths `[B]` of which the first is T, hidden and cell `[L, B, d]`."""
    generator = torch.Generator().manual_seed(seed)
    layers, size = model.network.state_shape
    tokens, lengths = random_sequences(model.output_layer.weight.shape[0], batch_size, steps, generator)
    hidden, cell = torch.rand(2, layers, batch_size, size, generator=generator) * 2 - 1
    return tokens, lengths, hidden, cell


def example_memory(model: RecurrentLanguageModel, *, batch_size: int, remembered: int, seed: int) -> tuple[Tensor, ...]:
    """Return random words `[B, M]`, of which the first rows lack some, and states `[B, M, d]`; nothing without use."""
    if not model.output_layer.reads_history:
        return ()
    generator = torch.Generator().manual_seed(seed)
    vocabulary, size = model.output_layer.weight.shape
    words = torch.randint(vocabulary, (batch_size, remembered), generator=generator)
    missing = torch.arange(remembered) < remembered - torch.arange(batch_size)[:, None]
    states = torch.rand(batch_size, remembered, size, generator=generator) * 2 - 1
    return words.masked_fill(missing, -1), states
