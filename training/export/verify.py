"""Exported graphs against the module they came from."""

from pathlib import Path

import numpy as np
import torch

from models.backend import Backend
from models.backend.onnx import OnnxBackend
from models.backend.torchscript import TorchScriptBackend
from models.manifest import Manifest
from training.export.graphs import ExportGraph, example_inputs, language_model_graphs
from training.networks.language_model import RecurrentLanguageModel

__all__ = ["SHAPES", "TOLERANCE", "ExportError", "largest_difference", "verify_bundle"]

TOLERANCE = 1e-4
"""Largest difference of a log-probability, or of any other output, that an export may have."""

SHAPES = ((1, 1), (2, 40), (5, 11))
"""Batch sizes and lengths to compare at; none is the one that was traced (3, 7)."""


class ExportError(RuntimeError):
    """An export that does not compute what the model computes."""


def verify_bundle(path: Path, manifest: Manifest, model: RecurrentLanguageModel) -> dict[str, float]:
    """Largest difference from eager of each backend the bundle has; raises `ExportError` above `TOLERANCE`."""
    backends: list[Backend] = [OnnxBackend(path, manifest)]
    if all(graph.torchscript for graph in manifest.graphs.values()):
        backends.append(TorchScriptBackend(path, manifest))
    differences: dict[str, float] = {backend.name: largest_difference(backend, manifest, model) for backend in backends}
    for name, difference in differences.items():
        if not difference <= TOLERANCE:
            raise ExportError(f"the {name} graphs differ from the model by {difference:.2e}, above {TOLERANCE:.0e}")
    return differences


@torch.no_grad()
def largest_difference(backend: Backend, manifest: Manifest, model: RecurrentLanguageModel) -> float:
    """Over all graphs, all outputs and all `SHAPES`; what lies behind a sequence's length is not compared."""
    graphs = language_model_graphs(model.eval())
    worst = 0.0
    for seed, (batch_size, steps) in enumerate(SHAPES):
        tokens, lengths, hidden, cell = example_inputs(model, batch_size=batch_size, steps=steps, seed=10 + seed)
        last = {"next_words": torch.tensor(manifest.vocab_size), "score": tokens.flip(1)}
        for name, graph in graphs.items():
            difference = _difference(backend, name, graph, (tokens, lengths, hidden, cell, last[name]))
            worst = float(np.maximum(worst, difference))  # unlike max, keeps what is not a number
    return worst


def _difference(backend: Backend, name: str, graph: ExportGraph, inputs: tuple[torch.Tensor, ...]) -> float:
    names = [tensor.name for tensor in graph.contract.outputs]
    expected = dict(zip(names, graph.module(*inputs), strict=True))
    feed = {spec.name: value.numpy() for spec, value in zip(graph.contract.inputs, inputs, strict=True)}
    got = dict(zip(names, backend.run(name, feed, names), strict=True))
    if "words" in expected:  # ranks of equal probabilities may differ, so compare word by word
        order = [values.pop("words") for values in (expected, got)]
        expected["log_probabilities"] = expected["log_probabilities"].gather(1, order[0].argsort(1))
        got["log_probabilities"] = np.take_along_axis(got["log_probabilities"], order[1].argsort(1), 1)
    elif "log_probabilities" in expected:
        valid = torch.arange(inputs[0].shape[1]) < inputs[1][:, None]
        expected["log_probabilities"] = expected["log_probabilities"][valid]
        got["log_probabilities"] = got["log_probabilities"][valid.numpy()]
    return float(np.max([np.abs(got[key] - value.numpy()).max() for key, value in expected.items()]))
