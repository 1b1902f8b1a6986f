"""Measure the head of a classifier of very many labels, as it is exported: exact top-10 against the product alone.

    python -m benchmarks.many_labels                       # time and memory for 10,000 and 100,000 labels
    python -m benchmarks.many_labels --processor-time      # of one thread, for machines under other load

The product is that of the layer, with as many rows as it has components for each text, and returns nothing but a
column, so that no `[N, V]` is copied. Weights are random. Each round runs every side once, interleaved; medians over
rounds and ratios of medians are printed. Memory is the growth of the resident set in runs of 32 texts, after loading,
each side in a process of its own.

Shapes: `N` texts, `V` labels, `d` hidden size, `k` labels asked for.
"""

import functools
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import tyro
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.timing import medians_of
from tests.support.memory_limit import status_field
from training.bundling.calibration import RangeRecorder
from training.bundling.folding import FoldedSoftmax
from training.bundling.graphs import ExportGraph, contract
from training.bundling.onnx import save_graphs, to_onnx
from training.bundling.quantize import quantize_int8_static
from training.search.tables.records import processor
from training.softmax import GeneralizedSoftmax

_LAYERS: Mapping[str, Mapping[str, Any]] = {
    "lin": {"kernels": "lin"},
    "2*lin": {"kernels": "2*lin"},
    "pow": {"kernels": "pow"},
    "sparse_k = 20": {"kernels": "lin", "sparse_k": 20},
}
_CALIBRATED, _MOST = 64, 32
"""Vectors by which ranges of activations are found, and those of the largest batch."""


class ProductGraph(nn.Module):
    """The matrix product of a layer, of which the scores of one label are returned."""

    def __init__(self, layer: GeneralizedSoftmax) -> None:
        super().__init__()
        self.weight, self.rows = layer.weight, layer.num_components

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden `[N, d]` -> `[N times components, 1]`."""
        return (torch.cat([hidden] * self.rows) @ self.weight.t())[:, :1]


class HeadGraph(nn.Module):
    """The output layer as classifiers export it."""

    def __init__(self, layer: GeneralizedSoftmax) -> None:
        super().__init__()
        self.output_layer = FoldedSoftmax(layer)

    def forward(self, hidden: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """hidden `[N, d]`, k `[]` -> log-probabilities and numbers of the k best labels, `[N, k]`."""
        return self.output_layer.top_k(hidden, k)


def main(
    labels: tuple[int, ...] = (10_000, 100_000),
    hidden_size: int = 384,
    batches: tuple[int, ...] = (1, 8, _MOST),
    top_k: int = 10,
    rounds: int = 21,
    threads: int = 2,
    layers: tuple[str, ...] = tuple(_LAYERS),
    memory: bool = True,
    processor_time: bool = False,
) -> None:
    """Print a table of times, ratios and memory.

    Args:
        labels: Numbers of labels.
        hidden_size: Size of the vectors of texts.
        batches: Numbers of texts that are computed together.
        top_k: Labels asked for.
        rounds: Runs of each side of which the median is taken.
        threads: Threads of a session.
        layers: Output layers: lin, 2*lin, pow or sparse_k = 20.
        memory: Whether memory is measured too.
        processor_time: Measure the time of the one thread that computes instead of time that passes.
    """
    threads = 1 if processor_time else threads
    clock = time.thread_time if processor_time else time.perf_counter
    print(
        f"{processor(torch.device('cpu'))}, {threads} threads, onnxruntime {onnxruntime.__version__}", file=sys.stderr
    )
    print("| labels | layer | weights | texts | product, ms | top-k, ms | ratio | memory of both, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for count in labels:
        for name in layers:
            with tempfile.TemporaryDirectory() as folder:
                _export(Path(folder), _LAYERS[name], count, hidden_size)
                for weights in ("float32", "int8"):
                    files = {side: Path(folder) / f"{side}-{weights}.onnx" for side in ("product", "head")}
                    peaks = {side: _peak(file, hidden_size, top_k) if memory else 0.0 for side, file in files.items()}
                    sessions = {side: _session(file, threads) for side, file in files.items()}
                    for size in batches:
                        calls = {
                            side: functools.partial(_run, session, _vectors(size, hidden_size), top_k)
                            for side, session in sessions.items()
                        }
                        found = medians_of(calls, rounds, clock)
                        product, head = 1000 * found["product"], 1000 * found["head"]
                        used = f"{peaks['product']:.0f}, {peaks['head']:.0f}" if size == _MOST and memory else ""
                        print(
                            f"| {count:,} | {name} | {weights} | {size} | {product:.2f} | {head:.2f} | "
                            f"{head / product:.2f} | {used} |",
                            flush=True,
                        )


@torch.no_grad()
def _export(folder: Path, options: Mapping[str, Any], labels: int, hidden_size: int) -> None:
    """Write the graphs `product` and `head` of a layer with random weights, in float32 and in int8."""
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(labels, hidden_size, **options).eval().requires_grad_(False)
    hidden = {"hidden": ("float32", ("batch", hidden_size))}
    examples = (torch.randn(3, hidden_size), torch.tensor(2))
    best = {"log_probabilities": ("float32", ("batch", "k")), "labels": ("int64", ("batch", "k"))}
    rows = "batch" if layer.num_components == 1 else "rows"
    graphs = {
        "product": ExportGraph(ProductGraph(layer), contract(hidden, {"score": ("float32", (rows, 1))}), examples[:1]),
        "head": ExportGraph(HeadGraph(layer), contract({**hidden, "k": ("int64", ())}, best), examples),
    }
    models = {name: to_onnx(graph) for name, graph in graphs.items()}
    recorder, vectors = RangeRecorder(models), _vectors(_CALIBRATED, hidden_size)
    recorder.run("product", {"hidden": vectors}, ["score"])
    recorder.run("head", {"hidden": vectors, "k": np.array(1)}, ["log_probabilities"])
    ranges = {name: recorder.ranges(name) for name in models}
    for name, model in models.items():
        _save(model, folder, f"{name}-float32")
        _save(quantize_int8_static(model, ranges[name]), folder, f"{name}-int8")


def _save(model: onnx.ModelProto, folder: Path, name: str) -> None:
    own = folder / name
    own.mkdir()
    save_graphs({name: model}, own)
    (folder / f"{name}.onnx").symlink_to(own / f"{name}.onnx")


def _vectors(count: int, size: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((count, size), dtype=np.float32)


def _session(file: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")  # threads of one side would disturb the other
    return onnxruntime.InferenceSession(str(file.resolve()), options, providers=["CPUExecutionProvider"])


def _run(session: onnxruntime.InferenceSession, vectors: NDArray[np.float32], top_k: int) -> None:
    takes_k = len(session.get_inputs()) > 1
    session.run(None, {"hidden": vectors, **({"k": np.array(top_k)} if takes_k else {})})


def _peak(file: Path, hidden_size: int, top_k: int) -> float:
    """Return the growth of the resident set in runs of 32 texts, in MB."""
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        return executor.submit(_growth, file, hidden_size, top_k).result()


def _growth(file: Path, hidden_size: int, top_k: int) -> float:
    session, vectors = _session(file, 1), _vectors(_MOST, hidden_size)
    _run(session, vectors[:1], top_k)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status_field(os.getpid(), "VmRSS")
    for _ in range(3):
        _run(session, vectors, top_k)
    return status_field(os.getpid(), "VmHWM") - before


if __name__ == "__main__":
    tyro.cli(main)
