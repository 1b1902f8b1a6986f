"""The TorchScript backend. The only place outside `training` that imports torch."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch

from models.backend import Array, BackendName
from models.backend.interruption import interruptible
from models.bundle.manifest import Graph, Manifest
from models.errors import BundleError, UnsupportedDeviceError

__all__ = ["TorchScriptBackend", "TorchScriptResident"]


class TorchScriptBackend:
    """Modules with one method per graph. A TorchScript file can hold any program: load only files that you trust."""

    name: BackendName = "torchscript"
    parallel = 1

    def __init__(self, bundle: Path, manifest: Manifest, *, device: str = "cpu", threads: int | None = None) -> None:
        """Load all modules; `device` is a device name of torch, or `auto`.

        Raises `UnsupportedDeviceError` for a device it lacks, `BundleError` where a graph has no such file, or another
        number of inputs or outputs than the manifest says: TorchScript keeps neither names nor types nor shapes.
        """
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise UnsupportedDeviceError(f"device {device!r} is not available: {str(error).splitlines()[0]}") from error
        if threads is not None:
            torch.set_num_threads(threads)
        self.device = device
        self._graphs = manifest.graphs
        missing = [f"graph {name!r} has no TorchScript file" for name, g in self._graphs.items() if not g.torchscript]
        if missing:
            raise BundleError(str(bundle), missing)
        files = {graph.torchscript for graph in self._graphs.values() if graph.torchscript}
        self._modules = {file: self._load(bundle, file) for file in files}
        problems = [problem for name, graph in self._graphs.items() for problem in self._mismatches(name, graph)]
        if problems:
            raise BundleError(str(bundle), problems)

    def _load(self, bundle: Path, file: str) -> torch.jit.ScriptModule:
        try:
            module: torch.jit.ScriptModule = torch.jit.load(str(bundle / file), map_location=self.device)
        except (RuntimeError, ValueError) as error:
            raise BundleError(str(bundle), [f"{file} does not load: {error}"]) from error
        return module

    def _mismatches(self, name: str, graph: Graph) -> Iterator[str]:
        method = getattr(self._modules[graph.torchscript or ""], name, None)
        schema = getattr(method, "schema", None)
        if schema is None:
            yield f"{graph.torchscript} has no method {name}"
            return
        inputs = len(schema.arguments) - 1  # without the module itself
        if inputs != len(graph.inputs):
            yield f"graphs.{name}.inputs are {len(graph.inputs)}, those of its method {inputs}"
        returned = schema.returns[0].type
        if returned.kind() != "TupleType":
            yield f"graphs.{name}: its method returns {returned}, not a tuple of tensors"
        elif (outputs := len(returned.elements())) != len(graph.outputs):
            yield f"graphs.{name}.outputs are {len(graph.outputs)}, those of its method {outputs}"

    @torch.inference_mode()
    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        spec = self._graphs[graph]
        method = getattr(self._modules[spec.torchscript or ""], graph)
        with interruptible():  # before it begins; torch cannot end a run
            results = method(*(self._tensor(tensor.name, inputs) for tensor in spec.inputs))
        by_name = {tensor.name: result for tensor, result in zip(spec.outputs, results, strict=True)}
        return [by_name[name].cpu().numpy() for name in outputs]

    def _tensor(self, name: str, inputs: Mapping[str, Array]) -> torch.Tensor:
        tensor = torch.from_numpy(inputs[name]) if inputs[name].ndim else torch.tensor(inputs[name].item())
        # Packing sequences needs their lengths on the host.
        return tensor if name == "lengths" else tensor.to(self.device)

    def concurrently(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()  # the same module for all runs

    def resident(self, graph: str, state: Mapping[str, Array], constants: Mapping[str, Array]) -> "TorchScriptResident":
        return TorchScriptResident(self, graph, state, constants)


class TorchScriptResident:
    """Arrays that are passed to every run; outputs replace the state."""

    def __init__(
        self, backend: TorchScriptBackend, graph: str, state: Mapping[str, Array], constants: Mapping[str, Array]
    ) -> None:
        self._backend, self._graph = backend, graph
        self._state, self._constants = dict(state), dict(constants)

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        moved = [f"new_{name}" for name in self._state]
        everything = {**inputs, **self._state, **self._constants}
        results = self._backend.run(self._graph, everything, [*outputs, *moved])
        self._state = dict(zip(self._state, results[len(outputs) :], strict=True))
        return results[: len(outputs)]

    def reload(self) -> None:
        """Do nothing: every run reads the constants."""

    def state(self) -> Mapping[str, Array]:
        return self._state
