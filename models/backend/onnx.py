"""The ONNX Runtime backend."""

from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

import onnxruntime

from models.backend import Array, BackendName
from models.errors import BundleError, UnsupportedDeviceError
from models.manifest import Manifest

__all__ = ["OnnxBackend"]

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def _refuse_two_runtimes() -> None:
    """onnxruntime and onnxruntime-gpu own the same module: with both, which one loads is an accident."""
    names = {distribution.name for distribution in distributions()}
    if {"onnxruntime", "onnxruntime-gpu"} <= names:
        raise UnsupportedDeviceError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other; "
            "run: pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu (or onnxruntime)"
        )


class OnnxBackend:
    """One inference session per graph."""

    name: BackendName = "onnx"

    def __init__(self, bundle: Path, manifest: Manifest, *, device: str = "cpu", threads: int | None = None) -> None:
        """`threads` for one operator; ONNX Runtime's default, all cores, without it.

        Raises `UnsupportedDeviceError` where the device is unknown or its provider did not load (never a silent
        fall back), `BundleError` where a graph has no ONNX file or is not one.
        """
        _refuse_two_runtimes()
        if device not in _PROVIDERS:
            raise UnsupportedDeviceError(f"unknown device {device!r}; known devices: {', '.join(_PROVIDERS)}")
        if _PROVIDERS[device] not in onnxruntime.get_available_providers():
            raise UnsupportedDeviceError(f"this onnxruntime has no {_PROVIDERS[device]}, which device {device!r} needs")
        self.device = device
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        # Idle pool threads must not spin on the cores that answer HTTP.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._sessions = {
            name: self._session(bundle, name, graph.onnx, options) for name, graph in manifest.graphs.items()
        }

    def _session(
        self, bundle: Path, name: str, file: str | None, options: onnxruntime.SessionOptions
    ) -> onnxruntime.InferenceSession:
        if file is None:
            raise BundleError(str(bundle), [f"graph {name!r} has no ONNX file"])
        provider = _PROVIDERS[self.device]
        try:
            session = onnxruntime.InferenceSession(str(bundle / file), options, providers=[provider])
        except Exception as error:  # onnxruntime's exceptions share no public base
            raise BundleError(str(bundle), [f"{file} does not load: {error}"]) from error
        if provider not in session.get_providers():
            raise UnsupportedDeviceError(f"{provider} was asked for but did not load")
        return session

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        results: list[Array] = self._sessions[graph].run(list(outputs), dict(inputs))
        return results
