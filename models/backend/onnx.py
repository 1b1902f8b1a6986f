"""The ONNX Runtime backend."""

import functools
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import onnxruntime

from models.backend import Array, BackendName
from models.backend.cpus import usable_cpus
from models.backend.signature import FoundTensor, mismatches
from models.bundle.manifest import Graph, Manifest
from models.errors import BundleError, UnsupportedDeviceError

__all__ = ["OnnxBackend", "OnnxResident"]

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
_DEVICE = re.compile(r"(auto|cpu|cuda|tensorrt)|(cuda|tensorrt):(\d{1,3})")


def _refuse_two_runtimes() -> None:
    """Raise `UnsupportedDeviceError` where onnxruntime and onnxruntime-gpu, which share one module, are installed."""
    if all(any(True for _ in distributions(name=name)) for name in ("onnxruntime", "onnxruntime-gpu")):
        raise UnsupportedDeviceError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other; "
            "run: pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu (or onnxruntime)"
        )


def _default_threads() -> int:
    """Return 0, ONNX Runtime's default, unless a container or affinity limits the processors."""
    usable = usable_cpus()
    return 0 if usable >= (os.cpu_count() or 1) else usable


@functools.cache
def _share_arena() -> None:
    """Register one arena for the CPU memory of all sessions of the process.

    An arena never shrinks, so that each session would keep what its largest run took, for every model.
    """
    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(0, -1, -1, -1))


def _options(threads: int) -> onnxruntime.SessionOptions:
    _share_arena()
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.log_severity_level = 3  # its warnings are for who writes graphs
    options.intra_op_num_threads = threads
    # Idle pool threads must not spin on the cores that answer HTTP.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


class OnnxBackend:
    """Inference sessions: one for each graph, and another one for concurrent runs.

    A run that is alone, as the one before it was, uses all threads. Concurrent runs are faster with their own
    ones each: threads that wait for one another at every operator lose more than they share.
    """

    name: BackendName = "onnx"

    def __init__(
        self, bundle: Path, manifest: Manifest, *, device: str = "cpu", threads: int | None = None, parallel: int = 1
    ) -> None:
        """Load all graphs; `threads` is the number for one operator, by default one for each usable core.

        `parallel` is the number of concurrent runs.

        `device` is `cpu`, `cuda` or `tensorrt`, of several GPUs `cuda:1`; `auto` is `cuda` where it loads, else `cpu`.
        What TensorRT cannot compute, CUDA does.

        Raises `UnsupportedDeviceError` where the device is unknown or its provider did not load (never a silent
        fall back), `BundleError` where a graph has no ONNX file, is not one, or has other inputs or outputs than the
        manifest says.
        """
        _refuse_two_runtimes()
        self._kind, self._number = _parsed(device)
        self.device = device
        self._sessions = self._beside = self._load(bundle, manifest, _options(threads or _default_threads()))
        problems = [problem for name, graph in manifest.graphs.items() for problem in self._mismatches(name, graph)]
        if problems:
            raise BundleError(str(bundle), problems)
        most = threads or usable_cpus()
        if parallel > 1 and most > 1 and self._kind == "cpu":
            self._beside = self._load(bundle, manifest, _options(max(1, most // parallel)))
        self._running, self._crowded, self._count = 0, False, threading.Lock()

    def _load(
        self, bundle: Path, manifest: Manifest, options: onnxruntime.SessionOptions
    ) -> dict[str, onnxruntime.InferenceSession]:
        """Return the session of each graph; `auto` becomes the first device that is available."""
        if self._kind == "auto":
            self._kind = self.device = "cuda"
            try:
                return self._load(bundle, manifest, options)
            except UnsupportedDeviceError:
                self._kind = self.device = "cpu"
        provider = _PROVIDERS[self._kind]
        if provider not in onnxruntime.get_available_providers():
            raise UnsupportedDeviceError(f"this onnxruntime has no {provider}, which device {self.device!r} needs")
        return {name: self._session(bundle, name, graph.onnx, options) for name, graph in manifest.graphs.items()}

    def _session(
        self, bundle: Path, name: str, file: str | None, options: onnxruntime.SessionOptions
    ) -> onnxruntime.InferenceSession:
        if file is None:
            raise BundleError(str(bundle), [f"graph {name!r} has no ONNX file"])
        wanted = _PROVIDERS[self._kind]
        kinds = {"tensorrt": ["tensorrt", "cuda"]}.get(self._kind, [self._kind])
        providers = [(_PROVIDERS[kind], {} if kind == "cpu" else {"device_id": self._number}) for kind in kinds]
        try:
            session = onnxruntime.InferenceSession(str(bundle / file), options, providers=providers)
        except Exception as error:  # onnxruntime's exceptions share no public base
            raise BundleError(str(bundle), [f"{file} does not load: {error}"]) from error
        if wanted not in session.get_providers():
            raise UnsupportedDeviceError(f"{wanted} was asked for but did not load")
        return session

    def _mismatches(self, name: str, graph: Graph) -> Iterator[str]:
        session = self._sessions[name]
        yield from mismatches(f"graphs.{name}.inputs", graph.inputs, map(_found, session.get_inputs()))
        yield from mismatches(f"graphs.{name}.outputs", graph.outputs, map(_found, session.get_outputs()))

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        with self._count:
            sessions = self._beside if self._running or self._crowded else self._sessions
            self._crowded = self._running > 0
            self._running += 1
        try:
            results: list[Array] = sessions[graph].run(list(outputs), dict(inputs))
        finally:
            with self._count:
                self._running -= 1
        return results

    @property
    def _memory(self) -> tuple[str, int]:
        """Return the kind of memory of resident arrays; TensorRT uses CUDA's."""
        return ("cpu", 0) if self._kind == "cpu" else ("cuda", self._number)

    def resident(self, graph: str, state: Mapping[str, Array], constants: Mapping[str, Array]) -> "OnnxResident":
        return OnnxResident(self._sessions[graph], self._memory, state, constants)


class OnnxResident:
    """Arrays bound to a session, the state as input and output at once.

    Buffers are kept from run to run and bound again only where shapes change, since binding costs as much as a small
    graph.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        memory: tuple[str, int],
        state: Mapping[str, Array],
        constants: Mapping[str, Array],
    ) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._arrays = {name: np.ascontiguousarray(array) for name, array in state.items()}
        self._state = {name: _value(array, memory) for name, array in self._arrays.items()}
        self._on_cpu = memory[0] == "cpu"
        self._given = constants
        self._constants = {name: np.ascontiguousarray(array) for name, array in constants.items()}
        self._bound = {name: _value(array, memory) for name, array in self._constants.items()}
        for name, value in (self._state | self._bound).items():
            self._binding.bind_ortvalue_input(name, value)
        self._inputs: dict[str, Array] = {}
        self._outputs: list[Array] = []
        self._key: object = None

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        for name, array in inputs.items():
            kept = self._inputs.get(name)
            if kept is not None and kept.shape == array.shape:
                np.copyto(kept, array)
                continue
            # On the CPU the bound value shares the buffer's memory.
            self._inputs[name] = buffer = np.array(array)
            self._binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(buffer))
        # Shapes of outputs follow from those of inputs and the values of scalars.
        key = [(array.shape, array.item() if not array.ndim else None) for array in inputs.values()]
        if key == self._key:
            self._session.run_with_iobinding(self._binding)
            return [buffer.copy() for buffer in self._outputs]
        self._binding.clear_binding_outputs()
        for name in outputs:
            self._binding.bind_output(name)
        self._bind_state()
        self._session.run_with_iobinding(self._binding)
        self._outputs = [np.array(value.numpy()) for value in self._binding.get_outputs()[: len(outputs)]]
        self._binding.clear_binding_outputs()
        for name, buffer in zip(outputs, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(buffer))
        self._bind_state()
        self._key = key
        return [buffer.copy() for buffer in self._outputs]

    def _bind_state(self) -> None:
        for name, value in self._state.items():
            self._binding.bind_ortvalue_output(f"new_{name}", value)

    def reload(self) -> None:
        for name, array in self._constants.items():
            if array is not self._given[name]:
                np.copyto(array, self._given[name])
            if not self._on_cpu:
                self._bound[name].update_inplace(array)

    def state(self) -> Mapping[str, Array]:
        if self._on_cpu:
            return self._arrays
        return {name: value.numpy() for name, value in self._state.items()}


def _value(array: Array, memory: tuple[str, int]) -> onnxruntime.OrtValue:
    """Return an OrtValue; on the CPU it shares the memory of the array, which must be contiguous."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array, *memory)


def _found(tensor: onnxruntime.NodeArg) -> FoundTensor:
    """Return an input or output as the session declares it, with numpy's name of its type."""
    kind = tensor.type.removeprefix("tensor(").removesuffix(")")
    return FoundTensor(tensor.name, {"float": "float32"}.get(kind, kind), tensor.shape)


def _parsed(device: str) -> tuple[str, int]:
    """Return kind and number of a device; raises `UnsupportedDeviceError`."""
    found = _DEVICE.fullmatch(device)
    if found is None:
        known = "auto, cpu, cuda, tensorrt, and cuda:1 and so on"
        raise UnsupportedDeviceError(f"unknown device {device!r}; known devices: {known}")
    return found[1] or found[2], int(found[3] or 0)
