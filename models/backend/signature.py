"""Compare the inputs and outputs that a manifest declares with those of the graph in a file."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from models.bundle.manifest import TensorSpec

__all__ = ["FoundTensor", "mismatches"]


@dataclass(frozen=True, slots=True)
class FoundTensor:
    """One input or output, as a graph declares it."""

    name: str
    dtype: str
    """As in `TensorSpec`, or the runtime's own name of a type that manifests do not know."""
    shape: Sequence[object]
    """A number for each dimension that is fixed; anything else for one that varies or is unknown."""


def mismatches(place: str, promised: Iterable[TensorSpec], found: Iterable[FoundTensor]) -> Iterator[str]:
    """Yield every difference between the inputs, or the outputs, of a manifest and those of its graph.

    `place` begins each message, e.g. `"graphs.score.inputs"`. Order does not matter: tensors are passed by name.
    """
    in_graph, in_manifest = {tensor.name: tensor for tensor in found}, {tensor.name: tensor for tensor in promised}
    for name in sorted(in_manifest.keys() - in_graph.keys()):
        yield f"{place}.{name} is not in the graph"
    for name in sorted(in_graph.keys() - in_manifest.keys()):
        yield f"{place} lacks {name}, which the graph has"
    for name, spec in in_manifest.items():
        if name in in_graph:
            yield from _tensor_mismatches(f"{place}.{name}", spec, in_graph[name])


def _tensor_mismatches(place: str, spec: TensorSpec, found: FoundTensor) -> Iterator[str]:
    if spec.dtype != found.dtype:
        yield f"{place} is {spec.dtype}, in the graph {found.dtype}"
    if len(spec.shape) != len(found.shape):
        yield f"{place} has {len(spec.shape)} dimensions, in the graph {len(found.shape)}"
        return
    for axis, (promised, actual) in enumerate(zip(spec.shape, found.shape, strict=True)):
        # A dimension that the manifest fixes may vary in the graph, which then computes that one too.
        if isinstance(actual, int) and promised != actual:
            yield f"{place} has {promised} in dimension {axis}, in the graph {actual}"
