"""Verify exported graphs against the module that they were traced from."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor

from models.backend import Array, Backend
from models.backend.onnx import OnnxBackend
from models.backend.torchscript import TorchScriptBackend
from models.bundle.manifest import Manifest
from training.bundling.graphs import ExportGraph

__all__ = [
    "TOLERANCE",
    "ExportError",
    "absolute_difference",
    "both_outputs",
    "check_device_graphs",
    "inputs_of",
    "outputs_of",
    "verify_bundle",
    "verify_device_graphs",
]

TOLERANCE = 1e-4
"""Largest difference of a log-probability, or of any other output, that an export may have."""

_ROUNDING = 0.01
"""Difference of a probability or its logarithm that is put down to weights rounded to 8 bits."""


class ExportError(RuntimeError):
    """An export that does not compute what the model computes."""


def verify_bundle(path: Path, manifest: Manifest, largest: Callable[[Backend], float]) -> dict[str, float]:
    """Return the largest difference from eager of each backend of a bundle; raises `ExportError` above `TOLERANCE`."""
    backends: list[Backend] = [OnnxBackend(path, manifest)]
    if all(graph.torchscript for graph in manifest.graphs.values()):
        backends.append(TorchScriptBackend(path, manifest))
    differences: dict[str, float] = {backend.name: largest(backend) for backend in backends}
    for name, difference in differences.items():
        if not difference <= TOLERANCE:
            raise ExportError(f"the {name} graphs differ from the model by {difference:.2e}, above {TOLERANCE:.0e}")
    return differences


def verify_device_graphs(path: Path, manifest: Manifest, largest: Callable[[Backend], float]) -> None:
    """Check the graphs for GPUs of an int8 bundle on the CPU; raises `ExportError` where one is wrong.

    `largest` returns the largest difference of a log-probability from the model.
    """
    if not any(graph.devices for graph in manifest.graphs.values()):
        return
    int8, derived = (largest(OnnxBackend(path, manifest, graphs=graphs)) for graphs in ("cpu", "cuda"))
    check_device_graphs(derived, int8)


def check_device_graphs(derived: float, int8: float) -> None:
    """Raise `ExportError` where the graphs for GPUs differ from the model by more than twice what the int8 graphs do.

    They share the rounded weights and do not round activations. Both numbers are maxima over few inputs, and of random
    weights they are small and may lie either way: 0.01 is always accepted. A graph with a wrong weight is far above it.
    """
    limit = max(2 * int8, _ROUNDING)
    if not derived <= limit:
        raise ExportError(f"the graphs for GPUs differ from the model by {derived:.2e}, above {limit:.2e}")


def both_outputs(
    backend: Backend, name: str, graph: ExportGraph, inputs: tuple[Tensor, ...]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the outputs of a graph's module and those of a backend, by name."""
    names, expected = [tensor.name for tensor in graph.contract.outputs], outputs_of(graph, inputs)
    return expected, dict(zip(names, backend.run(name, inputs_of(graph, inputs), names), strict=True))


def inputs_of(graph: ExportGraph, inputs: tuple[Tensor, ...]) -> dict[str, Array]:
    """Return inputs of a graph by name."""
    return {spec.name: value.numpy() for spec, value in zip(graph.contract.inputs, inputs, strict=True)}


def outputs_of(graph: ExportGraph, inputs: tuple[Tensor, ...]) -> dict[str, Array]:
    """Return the outputs of a graph's module by name."""
    names = [tensor.name for tensor in graph.contract.outputs]
    return {key: value.numpy() for key, value in zip(names, graph.module(*inputs), strict=True)}


def absolute_difference(expected: Array, got: Array) -> Array:
    """Return the difference of each element, which is 0 where both are minus infinity."""
    with np.errstate(invalid="ignore"):
        return np.where(got == expected, 0.0, np.abs(got - expected))
