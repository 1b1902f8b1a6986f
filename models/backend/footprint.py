"""An upper bound of the memory that the weights of a bundle's graphs take on a GPU."""

from collections.abc import Mapping
from pathlib import Path

from models.bundle.manifest import Graph, Manifest

__all__ = ["graph_file", "weight_bytes"]

_DEQUANTIZED = 4
"""Bytes of a weight on a GPU for each byte of a quantized file: int8 becomes float32 at most."""


def graph_file(graph: Graph, kind: str) -> str | None:
    """Return the ONNX file of a graph for a kind of device."""
    return next((file for device, file in graph.devices.items() if device == kind), graph.onnx)


def weight_bytes(bundle: Path, manifest: Manifest) -> Mapping[str, int]:
    """Return how many bytes of weights each graph has on a GPU at most.

    Graphs share files of weights, of which each session has a copy of its own on the device; which of the weights a
    graph reads does not count. Raises `OSError` where a file cannot be read.
    """
    of_graphs = frozenset[str]().union(*(graph.files() for graph in manifest.graphs.values()))
    shared = manifest.files.keys() - of_graphs - manifest.config.files()
    sizes = sum((bundle / file).stat().st_size for file in shared)
    factor = _DEQUANTIZED if manifest.quantization is not None else 1
    files = {name: graph_file(graph, "cuda") for name, graph in manifest.graphs.items()}
    return {name: factor * (sizes + (bundle / file).stat().st_size) for name, file in files.items() if file is not None}
