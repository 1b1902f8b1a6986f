"""Exported graphs against the module they came from."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.backend import Array, Backend
from models.backend.onnx import OnnxBackend
from models.backend.torchscript import TorchScriptBackend
from models.bundle.manifest import Manifest
from training.export.graphs import ExportGraph, example_inputs, language_model_graphs
from training.networks.language_model import RecurrentLanguageModel
from training.networks.lstm import State

__all__ = ["SHAPES", "TOLERANCE", "ExportError", "largest_difference", "verify_bundle"]

TOLERANCE = 1e-4
"""Largest difference of a log-probability, or of any other output, that an export may have."""

SHAPES = ((1, 1), (2, 40), (5, 11))
"""Batch sizes and lengths to compare at; none is the one that was traced (3, 7)."""


class ExportError(RuntimeError):
    """An export that does not compute what the model computes."""


def verify_bundle(path: Path, manifest: Manifest, largest: Callable[[Backend, Manifest], float]) -> dict[str, float]:
    """Largest difference from eager of each backend the bundle has; raises `ExportError` above `TOLERANCE`."""
    backends: list[Backend] = [OnnxBackend(path, manifest)]
    if all(graph.torchscript for graph in manifest.graphs.values()):
        backends.append(TorchScriptBackend(path, manifest))
    differences: dict[str, float] = {backend.name: largest(backend, manifest) for backend in backends}
    for name, difference in differences.items():
        if not difference <= TOLERANCE:
            raise ExportError(f"the {name} graphs differ from the model by {difference:.2e}, above {TOLERANCE:.0e}")
    return differences


@torch.no_grad()
def largest_difference(backend: Backend, manifest: Manifest, model: RecurrentLanguageModel) -> float:
    """Over all graphs, all outputs and all `SHAPES`.

    What lies behind a sequence's length is not compared, nor a position where rounding may change which classes a
    sparse layer keeps. Raises `ExportError` where that leaves no position.
    """
    graphs = language_model_graphs(model.eval())
    worst, compared = 0.0, 0
    for seed, (batch_size, steps) in enumerate(SHAPES):
        tokens, lengths, hidden, cell = example_inputs(model, batch_size=batch_size, steps=steps, seed=10 + seed)
        last = {"next_words": torch.tensor(manifest.text.vocab_size), "score": tokens.flip(1)}
        valid = (torch.arange(steps) < lengths[:, None]) & _clear(model, tokens, lengths, (hidden, cell))
        compared += int(valid.sum())
        for name, graph in graphs.items():
            difference = _difference(backend, name, graph, (tokens, lengths, hidden, cell, last[name]), valid)
            worst = float(np.maximum(worst, difference))  # unlike max, keeps what is not a number
    if not compared:
        raise ExportError(f"no position tells the {model.output_layer.sparse_k} best words from the others")
    return worst


def _clear(model: RecurrentLanguageModel, tokens: Tensor, lengths: Tensor, state: State) -> Tensor:
    """Where each component's k-th best score is more than `TOLERANCE` above the next: `[B, T]`; all without k."""
    layer, count = model.output_layer, model.output_layer.weight.shape[0]
    if layer.sparse_k is None or layer.sparse_k >= count:
        return torch.ones_like(tokens, dtype=torch.bool)
    outputs, _ = model(tokens, state, lengths)
    scores = torch.stack(layer.scores(outputs.flatten(0, 1)))
    best = scores.topk(layer.sparse_k + 1).values
    # What is no number is compared, to be found.
    return ~(best[..., -2] - best[..., -1] <= TOLERANCE).any(0).view_as(tokens)


def _difference(backend: Backend, name: str, graph: ExportGraph, inputs: tuple[Tensor, ...], valid: Tensor) -> float:
    names = [tensor.name for tensor in graph.contract.outputs]
    expected = {key: value.numpy() for key, value in zip(names, graph.module(*inputs), strict=True)}
    feed = {spec.name: value.numpy() for spec, value in zip(graph.contract.inputs, inputs, strict=True)}
    got = dict(zip(names, backend.run(name, feed, names), strict=True))
    if "words" in expected:
        last = valid.gather(1, inputs[1][:, None] - 1)[:, 0].numpy()
        for values in (expected, got):
            # Ranks of equal probabilities may differ, so compare word by word.
            by_word = np.take_along_axis(values["log_probabilities"], values.pop("words").argsort(1), 1)
            values["log_probabilities"], values["entropy"] = by_word[last], values["entropy"][last]
    else:
        for values in (expected, got):
            values["log_probabilities"] = values["log_probabilities"][valid.numpy()]
    return float(np.max([_largest(got[key], value) for key, value in expected.items()]))


def _largest(got: Array, expected: Array) -> float:
    """The largest difference, which is 0 where both are minus infinity, and infinite where one of them is."""
    with np.errstate(invalid="ignore"):
        differences = np.where(got == expected, 0.0, np.abs(got - expected))
    return float(differences.max(initial=0.0))
