"""Ranges of activations, observed while a model works: what static quantization needs to know."""

import contextlib
import copy
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import onnxruntime

from models.backend import Array, BackendName, Resident
from models.backend.torchscript import TorchScriptResident
from training.bundling.quantize import matrix_products
from training.bundling.weight_file import save_graphs

__all__ = ["RangeRecorder"]


class RangeRecorder:
    """A backend that computes what ONNX graphs compute and remembers what their matrix products read."""

    name: BackendName = "onnx"
    device = "cpu"
    parallel = 1

    def __init__(self, models: Mapping[str, onnx.ModelProto]) -> None:
        self._watched = {
            name: sorted({node.input[0] for node in matrix_products(model)}) for name, model in models.items()
        }
        observed = {name: self._observed(model, self._watched[name]) for name, model in models.items()}
        with tempfile.TemporaryDirectory() as temporary:  # sessions have the files mapped
            save_graphs(observed, Path(temporary))
            self._sessions = {name: self._session(Path(temporary) / f"{name}.onnx") for name in models}
        self._seen: dict[tuple[str, str], tuple[float, float]] = {}

    @staticmethod
    def _observed(model: onnx.ModelProto, watched: Sequence[str]) -> onnx.ModelProto:
        observed = copy.deepcopy(model)
        known = {tensor.name for tensor in (*model.graph.output, *model.graph.input)}
        observed.graph.output.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in watched
            if name not in known
        )
        return observed

    @staticmethod
    def _session(path: Path) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        computed = [name for name in self._watched[graph] if name not in inputs]
        results: list[Array] = self._sessions[graph].run([*outputs, *computed], dict(inputs))
        watched = {**inputs, **dict(zip(computed, results[len(outputs) :], strict=True))}
        for name in self._watched[graph]:
            values = watched[name]
            low, high = self._seen.get((graph, name), (0.0, 0.0))
            self._seen[graph, name] = (min(low, float(values.min())), max(high, float(values.max())))
        return results[: len(outputs)]

    def resident(self, graph: str, state: Mapping[str, Array], constants: Mapping[str, Array]) -> Resident:
        # It works with any backend: it calls `run` alone.
        return TorchScriptResident(self, graph, state, constants)  # type: ignore[arg-type]

    def concurrently(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def ranges(self, graph: str) -> dict[str, tuple[float, float]]:
        """Return the least and the largest value of each input of a graph's matrix products.

        Clipping rare values was tried: with one in 2,000 clipped at each end, 26 of 300 translations changed, not 10.
        """
        return {name: self._seen[graph, name] for name in self._watched[graph]}
