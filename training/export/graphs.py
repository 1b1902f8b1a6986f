"""A graph to export: a module, its contract in the manifest, and example inputs."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from models.bundle.manifest import Graph

__all__ = ["ExportGraph", "contract"]


@dataclass(frozen=True, slots=True)
class ExportGraph:
    """A module to export, its contract, and example inputs in the order of the contract's."""

    module: nn.Module
    contract: Graph
    examples: tuple[Tensor, ...]
    in_place: bool = False
    """Whether outputs `new_<name>` may be written where inputs `<name>` are."""


_Tensors = Mapping[str, tuple[str, tuple[str | int, ...]]]


def contract(inputs: _Tensors, outputs: _Tensors) -> Graph:
    """Return the contract of a graph: for each input and output its type and shape."""

    def specs(tensors: _Tensors) -> list[dict[str, object]]:
        return [{"name": name, "dtype": dtype, "shape": shape} for name, (dtype, shape) in tensors.items()]

    return Graph.model_validate({"inputs": specs(inputs), "outputs": specs(outputs)}, strict=False)
