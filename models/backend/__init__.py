"""Backends: named arrays in, named arrays out, whatever computes them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

__all__ = ["Array", "Backend", "BackendName"]

Array = NDArray[Any]
BackendName = Literal["onnx", "torchscript"]


class Backend(Protocol):
    """Runs the graphs of one bundle. Safe to call from several threads."""

    name: BackendName
    device: str

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs of a graph. Inputs are those of the manifest, all of them."""
        ...
