"""Backends: named arrays in, named arrays out, whatever computes them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

__all__ = ["Array", "Backend", "BackendName", "Resident"]

Array = NDArray[Any]
BackendName = Literal["onnx", "torchscript"]


class Backend(Protocol):
    """Runs the graphs of one bundle. Safe to call from several threads."""

    name: BackendName
    device: str

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs of a graph. Inputs are those of the manifest, all of them."""
        ...

    def resident(self, graph: str, state: Mapping[str, Array], constants: Mapping[str, Array]) -> "Resident":
        """Inputs of a graph that stay where it runs; `state` is overwritten in every run by outputs `new_<name>`."""
        ...


class Resident(Protocol):
    """A computation of many runs on arrays that stay in place. For one thread at a time."""

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs for the remaining inputs; the state moves on."""
        ...

    def reload(self) -> None:
        """Takes note that the caller has written into the arrays of the constants."""
        ...

    def state(self) -> Mapping[str, Array]:
        """The state as it is now, in the arrays that were given or in others."""
        ...
