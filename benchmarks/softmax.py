"""Measure the cost of the output layers: time and memory of losses, their gradients and inference.

    python -m benchmarks.softmax kernels          # forward + backward of each kernel against lin
    python -m benchmarks.softmax losses           # time, memory and error of layers against other losses, by size
    python -m benchmarks.softmax sparse           # sparse-softmax loss against cross entropy and entmax15
    python -m benchmarks.softmax sparse-layer     # a sparse layer against lin and entmax15, by number of classes
    python -m benchmarks.softmax memory           # peak extra memory of losses, each in a process of its own
    python -m benchmarks.softmax inference        # one decoding step of exported models, lin against mixbig

Each round runs every side once, interleaved; medians over rounds and ratios of medians are printed.
"""

import collections
import functools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import tyro
from torch import Tensor
from torch.nn import functional

from benchmarks.gpu.results import Context, Results
from benchmarks.losses import Cell, measure, table
from benchmarks.timing import medians_of
from tests.support.memory_limit import status_field
from training.bundling.onnx import save_graphs, to_onnx
from training.device import choose_device
from training.networks.language_model import RecurrentLanguageModel
from training.networks.lstm import LSTM
from training.search.tables.records import processor
from training.softmax import KERNELS, GeneralizedSoftmax, sparse_softmax_loss
from training.tasks.language_model.graphs import language_model_graphs

Call = Callable[[], object]
app = tyro.extras.SubcommandApp()


def report(medians: Mapping[str, float], base: str) -> None:
    for name, seconds in medians.items():
        print(f"{name:<34} {1000 * seconds:9.2f} ms  {seconds / medians[base]:6.2f} x {base}")


def forward_backward(loss: Callable[[], Tensor], *leaves: Tensor) -> Call:
    """Return a call that computes a loss and its gradients in the leaves, and waits for them."""

    def call() -> None:
        torch.autograd.grad(loss(), leaves)
        if leaves[0].is_cuda:
            torch.cuda.synchronize()

    return call


def use_device(name: str) -> torch.device:
    """Create new tensors on a device from now on, seed the random numbers, and return the device."""
    device = choose_device(name)
    print(processor(device), file=sys.stderr)
    torch.set_default_device(device)
    torch.manual_seed(0)
    return device


@app.command
def kernels(
    positions: int = 2048,
    hidden_size: int = 512,
    classes: int = 10_000,
    rounds: int = 7,
    bfloat16: bool = False,
    processor_time: bool = False,
    device: str = "cpu",
) -> None:
    """Measure forward and backward of every single kernel, as a multiple of `lin`; `bfloat16` under autocast.

    `processor_time` measures a single thread, for machines under other load, where two threads wait for each other.
    """
    if processor_time:
        torch.set_num_threads(1)
    clock = time.process_time if processor_time else time.perf_counter
    place = use_device(device)
    if processor_time and place.type != "cpu":
        raise SystemExit("--processor-time is for the CPU")
    hidden = torch.randn(positions, hidden_size, requires_grad=True)
    target = torch.randint(classes, (positions,))
    calls: dict[str, Call] = {}
    for name in KERNELS:
        layer = GeneralizedSoftmax(classes, hidden_size, name)
        loss = functools.partial(layer.loss, hidden, target)
        calls[name] = forward_backward(loss, hidden, layer.weight)
    plain = GeneralizedSoftmax(classes, hidden_size).weight
    calls["F.cross_entropy(h @ W.T)"] = forward_backward(
        lambda: functional.cross_entropy(hidden @ plain.t(), target, reduction="sum"), hidden, plain
    )
    if hasattr(functional, "linear_cross_entropy"):
        options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=512)
        calls["F.linear_cross_entropy, chunked"] = forward_backward(
            lambda: functional.linear_cross_entropy(hidden, plain, target, reduction="sum", options=options),
            hidden,
            plain,
        )
    with torch.autocast(place.type, torch.bfloat16, enabled=bfloat16):
        report(medians_of(calls, rounds, clock), "lin")


@app.command
def losses(
    positions: int = 2048,
    hidden_sizes: tuple[int, ...] = (512, 1024, 4096),
    classes: tuple[int, ...] = (10_000, 32_768, 131_072, 262_144),
    rounds: int = 3,
    bfloat16: bool = False,
    only: tuple[str, ...] = (),
    output: Path = Path("runs/losses.jsonl"),
    minutes: float = 15,
    device: str = "cpu",
) -> None:
    """Compare loss and gradients of layers with those of cross entropy and others, in a table for each size.

    Args:
        bfloat16: Under autocast; else float32.
        only: Names of the sides to measure, as the tables have them; all without it.
        output: File of results, a line for each size; sizes that it has for this machine are not measured again.
        minutes: Time after which no other size begins.
    """
    place = use_device(device)
    environment = {
        "device": processor(place),
        "torch": torch.__version__,
        "rounds": str(rounds),
        "only": ",".join(only),
    }
    results, deadline = Results(output, environment), time.monotonic() + 60 * minutes
    context = Context(part="losses", device=device, small=False, work=output.parent, results=results, deadline=deadline)
    cells = [Cell(positions, size, count, bfloat16) for size in hidden_sizes for count in classes]
    for cell in cells:
        context.measure(str(cell), functools.partial(measure, cell, rounds, frozenset(only) or None))
    known = results.read()
    measured = {str(cell): known["losses", str(cell)] for cell in cells}
    print(table({name: found.values for name, found in measured.items() if found.status == "measured"}))


@app.command
def sparse(examples: int = 1024, classes: int = 32_768, k: int = 20, rounds: int = 15, device: str = "cpu") -> None:
    """Compare loss and gradient of sparse-softmax with cross entropy, a plain top-k and, where installed, entmax15."""
    use_device(device)
    scores = torch.randn(examples, classes, requires_grad=True)
    target = torch.randint(classes, (examples,))

    def plain_top_k() -> Tensor:
        best = torch.topk(scores, k, dim=-1).values
        return (torch.logsumexp(best, -1) - scores.gather(1, target[:, None])[:, 0]).sum()

    calls = {
        "F.cross_entropy": forward_backward(lambda: functional.cross_entropy(scores, target), scores),
        "sparse_softmax_loss": forward_backward(lambda: sparse_softmax_loss(scores, target, k).sum(), scores),
        "topk + logsumexp + autograd": forward_backward(plain_top_k, scores),
    }
    try:
        from entmax import entmax15_loss
    except ImportError:
        print("entmax is not installed: pip install entmax")
    else:
        calls["entmax15_loss"] = forward_backward(lambda: entmax15_loss(scores, target).sum(), scores)
    report(medians_of(calls, rounds), "F.cross_entropy")


@app.command
def sparse_layer(
    positions: int = 2048,
    hidden_size: int = 512,
    classes: tuple[int, ...] = (1_000, 4_096, 16_384, 32_768, 131_072, 1_000_000),
    k: int = 20,
    rounds: int = 5,
    figure: Path | None = None,
    device: str = "cpu",
) -> None:
    """Measure forward and backward of a sparse layer against `lin`, by number of classes; `figure` draws the ratios."""
    use_device(device)
    hidden = torch.randn(positions, hidden_size, requires_grad=True)
    ratios: dict[int, float] = {}
    for count in classes:
        target = torch.randint(count, (positions,))
        calls: dict[str, Call] = {}
        for name, sparse_k in {"lin": None, f"lin, sparse_k = {k}": k}.items():
            layer = GeneralizedSoftmax(count, hidden_size, sparse_k=sparse_k)
            calls[name] = forward_backward(functools.partial(layer.loss, hidden, target), hidden, layer.weight)
        print(f"V = {count:,}")
        medians = medians_of(calls, rounds)
        report(medians, "lin")
        ratios[count] = medians[f"lin, sparse_k = {k}"] / medians["lin"]
    if figure is not None:
        _draw_ratios(ratios, figure, f"N = {positions:,}, d = {hidden_size}, k = {k}")


def _draw_ratios(ratios: Mapping[int, float], figure: Path, title: str) -> None:
    import matplotlib.pyplot as plt

    plot, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    axes.semilogx(list(ratios), list(ratios.values()), "o-")
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(xlabel="classes", ylabel="time relative to softmax", title=title, ylim=(0, 1.2))
    plot.savefig(figure, metadata={"Date": None})


_MEMORY: dict[str, tuple[str, bool]] = {
    "lin, chunked": ("lin", False),
    "lin, straightforward": ("lin", True),
    "mix2 (K = 4), chunked": ("mix2", False),
    "mix2 (K = 4), straightforward": ("mix2", True),
    "mixbig (K = 9), chunked": ("mixbig", False),
}


@app.command
def memory(positions: int = 4096, hidden_size: int = 512, classes: int = 32_768, side: str | None = None) -> None:
    """Measure the peak memory of loss and gradients beyond parameters and inputs; `side` is for its child processes."""
    if side is not None:
        print(_peak_megabytes(*_MEMORY[side], positions, hidden_size, classes))
        return
    sizes = ["--positions", str(positions), "--hidden-size", str(hidden_size), "--classes", str(classes)]
    for name in _MEMORY:
        command = [sys.executable, "-m", "benchmarks.softmax", "memory", *sizes, "--side", name]
        print(f"{name:<34} {float(subprocess.check_output(command)):9.0f} MB", flush=True)


def _peak_megabytes(kernels: str, straightforward: bool, positions: int, hidden_size: int, classes: int) -> float:
    layer = GeneralizedSoftmax(classes, hidden_size, kernels)
    hidden = torch.randn(positions, hidden_size, requires_grad=True)
    target = torch.randint(classes, (positions,))
    torch.autograd.grad(layer.loss(hidden[:8], target[:8]), layer.weight)  # what libraries take once
    pid = os.getpid()
    before = status_field(pid, "VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    if straightforward:
        loss = functional.nll_loss(layer.log_prob(hidden), target, reduction="sum")
    else:
        loss = layer.loss(hidden, target)
    torch.autograd.grad(loss, [hidden, *layer.parameters()])
    return status_field(pid, "VmHWM") - before


@app.command
def inference(hidden_size: int = 512, classes: int = 10_000, rounds: int = 200) -> None:
    """Measure one step of exported language models, and its time by ONNX operator."""
    names = ["lin", "mix2", "mixbig"]
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: _exported(name, hidden_size, classes, Path(folder) / name) for name in names}
        sessions = {name: onnxruntime.InferenceSession(str(path)) for name, path in paths.items()}
        for batch in (1, 8, 32):
            feed = _feed(batch, hidden_size)
            print(f"batch {batch}")
            calls = {name: functools.partial(session.run, None, feed) for name, session in sessions.items()}
            report(medians_of(calls, rounds), "lin")
            for name in ("lin", "mixbig"):
                print(f"  {name}: {_profile(paths[name], feed, Path(folder))}")


def _exported(kernels: str, hidden_size: int, classes: int, folder: Path) -> Path:
    folder.mkdir()
    torch.manual_seed(0)
    model = RecurrentLanguageModel(LSTM(hidden_size), GeneralizedSoftmax(classes, hidden_size, kernels)).eval()
    graph = language_model_graphs(model)["next_words"]
    save_graphs({"next_words": to_onnx(graph)}, folder)
    return folder / "next_words.onnx"


def _feed(batch: int, hidden_size: int) -> dict[str, Any]:
    state = np.random.default_rng(0).normal(size=(2, batch, hidden_size)).astype(np.float32)
    tokens, lengths = np.full((batch, 1), 7), np.full(batch, 1)
    return {"tokens": tokens, "lengths": lengths, "hidden": state, "cell": state, "k": np.array(10)}


def _profile(path: Path, feed: dict[str, Any], folder: Path) -> str:
    """Return the fraction of the time of each operator, the largest first."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
    session = onnxruntime.InferenceSession(str(path), options)
    for _ in range(50):
        session.run(None, feed)
    totals: collections.Counter[str] = collections.Counter()
    for event in json.loads(Path(session.end_profiling()).read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            totals[event["args"]["op_name"]] += event["dur"]
    whole = sum(totals.values())
    return ", ".join(f"{name} {100 * spent / whole:.0f} %" for name, spent in totals.most_common(6))


if __name__ == "__main__":
    print(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}", file=sys.stderr)
    app.cli(prog="benchmarks.softmax")
