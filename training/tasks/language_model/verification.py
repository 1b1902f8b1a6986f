"""Verify the graphs of a language model.

Shapes: `B` sequences, `T` time steps.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from models.backend import Array, Backend
from training.bundling.graphs import ExportGraph
from training.bundling.verify import TOLERANCE, ExportError, absolute_difference, both_outputs
from training.networks.language_model import RecurrentLanguageModel
from training.networks.lstm import State
from training.tasks.language_model.graphs import example_inputs, example_memory

__all__ = ["SHAPES", "largest_difference"]

SHAPES = ((1, 1), (2, 40), (5, 11))
"""Batch sizes and lengths to compare at; none is the one that was traced (3, 7)."""
REMEMBERED = (1, 60, 9)
"""Words that a component reads of earlier runs, for each of the shapes; there is none at the beginning of a text."""


@torch.no_grad()
def largest_difference(backend: Backend, model: RecurrentLanguageModel, graphs: Mapping[str, ExportGraph]) -> float:
    """Return the largest difference from the model over all its graphs, all outputs and all `SHAPES`.

    Positions behind a sequence's length are not compared, nor those where rounding may change which classes a sparse
    layer keeps. Raises `ExportError` where that leaves no position.
    """
    model.eval()
    worst, compared = 0.0, 0
    for seed, (batch_size, steps) in enumerate(SHAPES):
        tokens, lengths, hidden, cell = example_inputs(model, batch_size=batch_size, steps=steps, seed=10 + seed)
        memory = example_memory(model, batch_size=batch_size, remembered=REMEMBERED[seed], seed=20 + seed)
        last = {"next_words": torch.tensor(model.output_layer.weight.shape[0]), "score": tokens.flip(1)}
        valid = (torch.arange(steps) < lengths[:, None]) & _clear(model, tokens, lengths, (hidden, cell))
        compared += int(valid.sum())
        for name, graph in graphs.items():
            inputs = (tokens, lengths, hidden, cell, last[name], *memory)
            expected, got = both_outputs(backend, name, graph, inputs)
            if model.output_layer.alpha != 1.0:  # where a probability falls to 0, rounding moves its logarithm far
                expected, got = _probabilities(expected), _probabilities(got)
            difference = _difference(expected, got, lengths, valid)
            worst = float(np.maximum(worst, difference))  # unlike max, propagates NaN
    if not compared:
        raise ExportError(f"no position tells the {model.output_layer.sparse_k} best words from the others")
    return worst


def _clear(model: RecurrentLanguageModel, tokens: Tensor, lengths: Tensor, state: State) -> Tensor:
    """Return whether each component's k-th best score is above the next by more than `TOLERANCE`, `[B, T]`."""
    layer, count = model.output_layer, model.output_layer.weight.shape[0]
    if layer.sparse_k is None or layer.sparse_k >= count:
        return torch.ones_like(tokens, dtype=torch.bool)
    outputs, _ = model(tokens, state, lengths)
    scores = torch.stack(layer.scores(outputs.flatten(0, 1)))
    best = scores.topk(layer.sparse_k + 1).values
    # NaN is compared, so that it is found.
    return ~(best[..., -2] - best[..., -1] <= TOLERANCE).any(0).view_as(tokens)


def _probabilities(outputs: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.exp(value) if "log_prob" in name else value for name, value in outputs.items()}


def _difference(expected: dict[str, Array], got: dict[str, Array], lengths: Tensor, valid: Tensor) -> float:
    if "words" in expected:
        last = valid.gather(1, lengths[:, None] - 1)[:, 0].numpy()
        for values in (expected, got):
            # Ranks of equal probabilities may differ, so compare word by word.
            by_word = np.take_along_axis(values["log_probabilities"], values.pop("words").argsort(1), 1)
            values["log_probabilities"] = by_word[last]
            for name in ("entropy", "unknown_log_probability"):
                values[name] = values[name][last]
    else:
        for values in (expected, got):
            values["log_probabilities"] = values["log_probabilities"][valid.numpy()]
    return float(np.max([absolute_difference(value, got[key]).max(initial=0.0) for key, value in expected.items()]))
