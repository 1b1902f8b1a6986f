"""Losses of output layers and of their alternatives: time, memory and error of loss and gradients.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

import ctypes
import functools
import gc
import importlib.util
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import interleaved
from tests.support.memory_limit import status_field
from training.softmax import GeneralizedSoftmax

__all__ = ["BASE", "Cell", "Measured", "extra_megabytes", "measure", "table"]

BASE = "F.cross_entropy(h @ W.T)"
_LAYERS: dict[str, dict[str, Any]] = {
    **{name: {"kernels": name} for name in ("lin", "log", "pow", "pol", "rbf", "hpb", "wav", "ssg", "mog")},
    "mix2 (K = 4)": {"kernels": "mix2"},
    "mixbig (K = 9)": {"kernels": "mixbig"},
    "lin, sparse_k = 20": {"kernels": "lin", "sparse_k": 20},
    "lin, alpha = 1.5 (entmax)": {"kernels": "lin", "alpha": 1.5},
    "lin, alpha = 2 (sparsemax)": {"kernels": "lin", "alpha": 2.0},
    "pow, alpha = 1.5": {"kernels": "pow", "alpha": 1.5},
}
_BATCH_CHUNK = 512
"""Positions of a chunk of `F.linear_cross_entropy`, which takes several times as long with its own choice on a CPU."""
_EXACT_POSITIONS = 64
"""Positions whose gradients are compared with float64."""
_EXACT_ELEMENTS = 1 << 28
"""The largest weight that a CPU is given in float64."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""A function of hidden states `[N, d]` and targets `[N]` that returns the summed loss."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What all sides compute."""

    positions: int
    hidden_size: int
    classes: int
    bfloat16: bool = False
    """Whether under bfloat16 autocast; else float32."""

    def __str__(self) -> str:
        precision = "bfloat16" if self.bfloat16 else "float32"
        return f"V = {self.classes:,}, d = {self.hidden_size:,}, N = {self.positions:,}, {precision}"


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of one side."""

    ms: float
    """Median of the rounds: milliseconds of loss and gradients."""
    ratio: float
    """Median over rounds of the time relative to that of `BASE` in the same round."""
    mb: float
    """The most memory beyond parameters and inputs, of loss and gradients."""
    error: float | None
    """Relative error of the gradient of some hidden states; None where float64 takes too much memory."""


@dataclass(frozen=True, slots=True)
class _Side:
    loss: Loss
    parameters: list[nn.Parameter]
    exact: Callable[[], Loss] | None
    """Make the same loss in float64; None for what computes something else."""


def measure(cell: Cell, rounds: int, names: frozenset[str] | None = None) -> dict[str, dict[str, float | None]]:
    """Return the fields of `Measured` by the name of each side, on torch's default device; all sides or some."""
    torch.manual_seed(0)
    hidden = torch.randn(cell.positions, cell.hidden_size, requires_grad=True)
    # Words are distributed like this; all sides but the adaptive softmax take the same time for any targets.
    target = torch.multinomial(1 / torch.arange(1.0, cell.classes + 1), cell.positions, replacement=True)
    found: dict[str, dict[str, float | None]] = {}
    sides = {name: side for name, side in _sides(cell) if names is None or name in names or name == BASE}
    with torch.autocast(hidden.device.type, torch.bfloat16, enabled=cell.bfloat16):
        calls = {name: functools.partial(_gradients, side, hidden, target) for name, side in sides.items()}
        times = interleaved(calls, rounds)
        for name, side in sides.items():
            ratio = statistics.median(own / base for own, base in zip(times[name], times[BASE], strict=True))
            extra = extra_megabytes(calls[name], hidden.device)
            error = _error(side, hidden, target)
            found[name] = asdict(Measured(1000 * statistics.median(times[name]), ratio, extra, error))
    return found


def _sides(cell: Cell) -> Iterator[tuple[str, _Side]]:
    classes, size = cell.classes, cell.hidden_size
    plain = GeneralizedSoftmax(classes, size).weight

    def of_table(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> _Side:
        def exact() -> Loss:
            wide = plain.detach().double()
            return lambda hidden, target: functional.cross_entropy(hidden @ wide.t(), target, reduction="sum")

        return _Side(lambda hidden, target: function(hidden, plain, target), [plain], exact)

    yield BASE, of_table(lambda h, w, t: functional.cross_entropy(h @ w.t(), t, reduction="sum"))
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=_BATCH_CHUNK)
    yield (
        "F.linear_cross_entropy, chunked",
        of_table(lambda h, w, t: functional.linear_cross_entropy(h, w, t, reduction="sum", options=options)),
    )
    if importlib.util.find_spec("liger_kernel") is not None:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy as liger

        yield "Liger", of_table(lambda h, w, t: liger(h, w, t, reduction="sum"))
    if importlib.util.find_spec("cut_cross_entropy") is not None:
        from cut_cross_entropy import linear_cross_entropy as cut

        yield "cut-cross-entropy", of_table(lambda h, w, t: cut(h, w, t, reduction="sum"))
    if importlib.util.find_spec("entmax") is not None:
        from entmax import entmax15_loss

        yield (
            "entmax15_loss(h @ W.T), another loss",
            _Side(lambda h, t: entmax15_loss((h @ plain.t()).float(), t).sum(), [plain], None),
        )
    cutoffs = [cutoff for cutoff in (2_000, 10_000, 50_000) if cutoff < classes] or [classes // 2]
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(size, classes, cutoffs)

    def of_clusters(hidden: Tensor, target: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):  # under which it raises
            total: Tensor = -adaptive(hidden, target).output.sum()
            return total

    yield "nn.AdaptiveLogSoftmaxWithLoss, another model", _Side(of_clusters, list(adaptive.parameters()), None)
    for name, arguments in _LAYERS.items():
        layer = GeneralizedSoftmax(classes, size, **arguments)
        yield name, _Side(layer.loss, list(layer.parameters()), functools.partial(_exact_layer, layer, cell))


def _exact_layer(layer: GeneralizedSoftmax, cell: Cell) -> Loss:
    kernels = [{"name": kernel.name, **kernel.hyperparameters} for kernel in layer.components()]
    distribution: dict[str, Any] = {"sparse_k": layer.sparse_k, "alpha": layer.alpha}
    exact = GeneralizedSoftmax(cell.classes, cell.hidden_size, kernels, **distribution, dtype=torch.float64)
    exact.load_state_dict(layer.state_dict())
    return exact.loss


def _gradients(side: _Side, hidden: Tensor, target: Tensor) -> Tensor:
    found: Tensor = torch.autograd.grad(side.loss(hidden, target), [hidden, *side.parameters])[0]
    if found.is_cuda:
        torch.cuda.synchronize()
    return found


def extra_megabytes(call: Callable[[], object], device: torch.device) -> float:
    """Return the most memory that a call takes beyond the memory before it, in megabytes."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    ctypes.CDLL(None).malloc_trim(0)
    pid = os.getpid()
    resident = status_field(pid, "VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    call()
    return status_field(pid, "VmHWM") - resident


def _error(side: _Side, hidden: Tensor, target: Tensor) -> float | None:
    elements = sum(parameter.numel() for parameter in side.parameters)
    if side.exact is None or (hidden.device.type == "cpu" and elements > _EXACT_ELEMENTS):
        return None
    some, chosen = hidden.detach()[:_EXACT_POSITIONS], target[:_EXACT_POSITIONS]
    found = _gradients(side, some.clone().requires_grad_(), chosen).double()
    with torch.autocast(hidden.device.type, enabled=False):
        wide = some.double().requires_grad_()
        (exact,) = torch.autograd.grad(side.exact()(wide, chosen), wide)
    return float((found - exact).norm() / exact.norm())


def table(results: Mapping[str, Mapping[str, Mapping[str, float | None]]]) -> str:
    """Return a Markdown table for each cell, from `measure`'s results by the cell's name."""
    lines: list[str] = []
    for cell, sides in results.items():
        lines += [
            f"**{cell}**",
            "",
            "| loss | ms | relative | extra memory, MB | error |",
            "| --- | --- | --- | --- | --- |",
        ]
        for name, found in sides.items():
            error = "" if found["error"] is None else f"{found['error']:.1e}"
            lines.append(f"| `{name}` | {found['ms']:,.0f} | {found['ratio']:.2f} | {found['mb']:,.0f} | {error} |")
        lines.append("")
    return "\n".join(lines)
