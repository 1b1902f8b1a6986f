"""Backends: named arrays in, named arrays out, whatever computes them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

__all__ = ["Array", "Backend", "BackendName", "Resident"]

Array = NDArray[Any]
BackendName = Literal["onnx", "torchscript"]


class Backend(Protocol):
    """Runs the graphs of one bundle. Safe to call from several threads."""

    name: BackendName
    device: str
    parallel: int
    """Number of runs that are computed faster at once than one after the other."""

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """Run a graph and return the named outputs; `inputs` must hold every input of the manifest."""
        ...

    def resident(self, graph: str, state: Mapping[str, Array], constants: Mapping[str, Array]) -> "Resident":
        """Keep inputs of a graph on its device; every run overwrites `state` by the outputs `new_<name>`."""
        ...

    def concurrently(self) -> AbstractContextManager[None]:
        """Run graphs within the context as if another run were in progress, e.g. to warm up for that."""
        ...


class Resident(Protocol):
    """Repeated runs of a graph on inputs that stay on its device. For one thread at a time."""

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """Run with the remaining inputs, return the named outputs and update the state."""
        ...

    def reload(self) -> None:
        """Reload the constants, into whose arrays the caller has written."""
        ...

    def state(self) -> Mapping[str, Array]:
        """Return the current state, in the given arrays or in others."""
        ...
