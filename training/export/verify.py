"""Verify exported graphs against the module that they were traced from."""

from collections.abc import Callable
from pathlib import Path

from models.backend import Backend
from models.backend.onnx import OnnxBackend
from models.backend.torchscript import TorchScriptBackend
from models.bundle.manifest import Manifest

__all__ = ["TOLERANCE", "ExportError", "verify_bundle", "verify_device_graphs"]

TOLERANCE = 1e-4
"""Largest difference of a log-probability, or of any other output, that an export may have."""


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

    They share the rounded weights and do not round activations: they may differ from the model by no more than twice
    what the int8 graphs do.
    """
    if not any(graph.devices for graph in manifest.graphs.values()):
        return
    int8, derived = (largest(OnnxBackend(path, manifest, graphs=graphs)) for graphs in ("cpu", "cuda"))
    limit = max(2 * int8, TOLERANCE)
    if not derived <= limit:
        raise ExportError(f"the graphs for GPUs differ from the model by {derived:.2e}, above {limit:.2e}")
