"""The ONNX Runtime backend."""

import contextlib
import ctypes
import functools
import logging
import os
import re
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal

import onnxruntime

from models.backend import Array, BackendName
from models.backend.cpus import usable_cpus
from models.backend.footprint import graph_file, weight_bytes
from models.backend.memory import DeviceMemory, HostMemory, Memory
from models.backend.placement import check_placement, placed_nodes
from models.backend.resident import OnnxResident
from models.backend.signature import FoundTensor, mismatches
from models.bundle.manifest import Graph, Manifest
from models.errors import BundleError, UnsupportedDeviceError

__all__ = ["OnnxBackend"]

logger = logging.getLogger("softserve")

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
_DEVICE = re.compile(r"(auto|cpu|cuda|tensorrt)|(cuda|tensorrt):(\d{1,3})")


def _has_tensorrt() -> bool:
    """Return whether NVIDIA's TensorRT loads; onnxruntime-gpu lists its provider without it."""
    for library in ("libnvinfer.so.10", "libnvinfer.so"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(library)
            return True
    return False


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


def _options(threads: int, kind: str) -> onnxruntime.SessionOptions:
    """Return the session options for a kind of device."""
    _share_arena()
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.log_severity_level = 3  # its warnings are for who writes graphs
    options.intra_op_num_threads = threads
    # Threads of the pool spin from one operator to the next, but not after a run, on the cores that answer HTTP.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if kind != "cpu":
        # Weights are dequantized once, when the graph is loaded; otherwise products become those of int8 weights.
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


class OnnxBackend:
    """Inference sessions: one for each graph, and another one for concurrent runs.

    A run that is alone, as the one before it was, uses all threads. Concurrent runs, and runs of one of several
    resident computations, are faster with their own ones each: threads that wait for one another at every operator lose
    more than they share.
    """

    name: BackendName = "onnx"

    def __init__(
        self,
        bundle: Path,
        manifest: Manifest,
        *,
        device: str = "cpu",
        threads: int | None = None,
        parallel: int = 1,
        allow_cpu_fallback: bool = False,
        graphs: Literal["cpu", "cuda"] | None = None,
        work_bytes: int | None = None,
    ) -> None:
        """Load all graphs; `threads` is the number for one operator, by default one for each usable core.

        `parallel` is the number of concurrent runs.

        `device` is `cpu`, `cuda` or `tensorrt`, of several GPUs `cuda:1`; `auto` is `cuda` where it loads, else `cpu`.
        What TensorRT cannot compute, CUDA does; operators that the CPU would compute are an error unless
        `allow_cpu_fallback` is set.

        `graphs` chooses the graphs for a kind of device other than that of `device`, to verify them on the CPU.

        `work_bytes` limits the memory of each graph on a GPU, its weights (see `models.backend.footprint`) apart: a run
        that needs more fails. Without it, sessions take what they need.

        Raises `UnsupportedDeviceError` where the device is unknown, its provider did not load (never a silent
        fall back) or it has no kernel for an operator, `BundleError` where a graph has no ONNX file, is not one, or
        has other inputs or outputs than the manifest says.
        """
        _refuse_two_runtimes()
        self._kind, self._number = _parsed(device)
        self.device = device
        self._allow_cpu_fallback, self._graphs, self._work_bytes = allow_cpu_fallback, graphs, work_bytes
        self._sessions = self._concurrent_sessions = self._load(bundle, manifest, threads or _default_threads())
        problems = [problem for name, graph in manifest.graphs.items() for problem in self._mismatches(name, graph)]
        if problems:
            raise BundleError(str(bundle), problems)
        # TensorRT uses CUDA's memory.
        self._memory: Memory = HostMemory() if self._kind == "cpu" else DeviceMemory("cuda", self._number)
        most = threads or usable_cpus()
        self.parallel = min(parallel, most) if self._kind == "cpu" else 1
        if self.parallel > 1:
            self._concurrent_sessions = self._load(bundle, manifest, most // self.parallel)
        self._running, self._contended, self._count = 0, False, threading.Lock()
        self._residents: weakref.WeakSet[OnnxResident] = weakref.WeakSet()

    def _load(self, bundle: Path, manifest: Manifest, threads: int) -> dict[str, onnxruntime.InferenceSession]:
        """Return the session of each graph; `auto` becomes the first device that is available."""
        if self._kind == "auto":
            self._kind = self.device = "cuda"
            try:
                return self._load(bundle, manifest, threads)
            except UnsupportedDeviceError as error:
                if _PROVIDERS["cuda"] in onnxruntime.get_available_providers():
                    logger.warning("device auto uses the CPU for %s: %s", manifest.name, error)
                self._kind = self.device = "cpu"
        provider = _PROVIDERS[self._kind]
        if provider not in onnxruntime.get_available_providers():
            raise UnsupportedDeviceError(f"this onnxruntime has no {provider}, which device {self.device!r} needs")
        if self._kind == "tensorrt" and not _has_tensorrt():
            raise UnsupportedDeviceError(f"device {self.device!r} needs TensorRT (libnvinfer); device cuda does not")
        graphs: str = self._graphs or ("cpu" if self._kind == "cpu" else "cuda")
        options, limits = _options(threads, graphs), self._arena_limits(bundle, manifest)
        return {
            name: self._load_graph(bundle, name, graph_file(graph, graphs), options, limits.get(name))
            for name, graph in manifest.graphs.items()
        }

    def _arena_limits(self, bundle: Path, manifest: Manifest) -> Mapping[str, int]:
        """Return the memory that each graph may take on a GPU, in bytes; none where it is not limited."""
        if self._work_bytes is None or self._kind == "cpu":
            return {}
        return {name: size + self._work_bytes for name, size in weight_bytes(bundle, manifest).items()}

    def _load_graph(
        self, bundle: Path, name: str, file: str | None, options: onnxruntime.SessionOptions, limit: int | None
    ) -> onnxruntime.InferenceSession:
        if file is None:
            raise BundleError(str(bundle), [f"graph {name!r} has no ONNX file"])
        wanted = _PROVIDERS[self._kind]
        kinds = {"tensorrt": ["tensorrt", "cuda"]}.get(self._kind, [self._kind])
        providers = [(_PROVIDERS[kind], _provider_options(kind, self._number, limit)) for kind in kinds]
        try:
            session = onnxruntime.InferenceSession(str(bundle / file), options, providers=providers)
        except Exception as error:  # onnxruntime's exceptions share no public base
            raise BundleError(str(bundle), [f"{file} does not load: {error}"]) from error
        if wanted not in session.get_providers():
            raise UnsupportedDeviceError(f"{wanted} was asked for but did not load")
        if self._kind != "cpu":
            nodes = placed_nodes(session)
            check_placement(file, self.device, nodes, allow_cpu_fallback=self._allow_cpu_fallback)
        return session

    def _mismatches(self, name: str, graph: Graph) -> Iterator[str]:
        session = self._sessions[name]
        yield from mismatches(f"graphs.{name}.inputs", graph.inputs, map(_found, session.get_inputs()))
        yield from mismatches(f"graphs.{name}.outputs", graph.outputs, map(_found, session.get_outputs()))

    @contextlib.contextmanager
    def _session(self, graph: str) -> Iterator[onnxruntime.InferenceSession]:
        """Provide the session for a run that begins now."""
        with self._count:
            others = self._running or self._contended or len(self._residents) > 1
            sessions = self._concurrent_sessions if others else self._sessions
            self._contended = self._running > 0
            self._running += 1
        try:
            yield sessions[graph]
        finally:
            with self._count:
                self._running -= 1

    @contextlib.contextmanager
    def concurrently(self) -> Iterator[None]:
        with self._count:
            self._running += 1
        try:
            yield
        finally:
            with self._count:
                self._running -= 1

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        with self._session(graph) as session:
            results: list[Array] = self._memory.run(session, inputs, outputs)
        return results

    def resident(self, graph: str, state: Mapping[str, Array], constants: Mapping[str, Array]) -> "OnnxResident":
        resident = OnnxResident(functools.partial(self._session, graph), self._memory, state, constants)
        self._residents.add(resident)
        return resident


def _provider_options(kind: str, number: int, limit: int | None) -> dict[str, int | str]:
    """Return the options of an execution provider, whose arena takes at most `limit` bytes of a GPU's memory."""
    if kind == "cpu":
        return {}
    options: dict[str, int | str] = {"device_id": number}
    if limit is not None and kind == "cuda":
        # By default an arena doubles, so that it holds up to twice what was asked of it.
        options |= {"gpu_mem_limit": limit, "arena_extend_strategy": "kSameAsRequested"}
    return options


def _found(tensor: onnxruntime.NodeArg) -> FoundTensor:
    """Return an input or output as the session declares it, with numpy's name of its type."""
    kind = tensor.type.removeprefix("tensor(").removesuffix(")")
    return FoundTensor(tensor.name, {"float": "float32"}.get(kind, kind), tensor.shape)


def _parsed(device: str) -> tuple[str, int]:
    """Return kind and number of a device; raises `UnsupportedDeviceError`."""
    found = _DEVICE.fullmatch(device)
    if found is None:
        known = f"auto, cpu, cuda, {'tensorrt, ' if _has_tensorrt() else ''}and cuda:1 and so on"
        raise UnsupportedDeviceError(f"unknown device {device!r}; known devices: {known}")
    return found[1] or found[2], int(found[3] or 0)
