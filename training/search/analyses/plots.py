"""Plots of kernels, and of the trials of a search. Slow to import: most commands draw nothing."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from training.recipe import Value, is_number
from training.search.analyses.curves import draw_curves, far_apart
from training.search.analyses.gradients import Against, Curve
from training.search.analyses.grid import Measured, groups_of, metrics_of, name_of
from training.search.tune import TrialResult

__all__ = ["plot_curves", "plot_gradients", "plot_metric", "plot_trials"]

_COLUMNS = 3
"""Plots that are placed side by side."""
_FAR = 10.0
"""Multiple of the best metric up to which the axis reaches; outliers would compress all others into one line."""
_LABELLED = 6
"""Values at most that each get a tick."""


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _saved(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    return path


def _set_ticks(axes: Axes, numbers: Sequence[float]) -> None:
    axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
    axes.minorticks_off()


def plot_gradients(found: Sequence[Curve], output: Path, note: str, against: Against = "distance") -> list[Path]:
    """Write `gradients.png` and `gradients.svg`: scores on the left, their derivatives on the right."""
    squared = against == "squared-distance"
    figure = _figure(12, 5.2)
    score, slope = figure.subplots(1, 2)
    for index, each in enumerate(found):
        x, by = (each.distance.square(), each.squared_slope) if squared else (each.distance, each.slope)
        # Oscillations in a full line would hide the others.
        line = {"color": f"C{index}", "linewidth": 0.8 if each.kernel == "wav" else 1.8}
        line["linestyle"] = ("-", "--", "-.")[index % 3]
        score.plot(x.tolist(), each.gain.tolist(), label=f"{each.kernel}  {each.hyperparameters}", **line)
        slope.plot(x.tolist(), by.tolist(), **line)
        for axes in (score, slope):
            axes.set_xlim(0.0, float(x[-1]))
    label = "||W − h||²" if squared else "||W − h||"
    _frame(score, (-10.0, 1.0), label, "score − score at 0")
    _frame(slope, (-2.5, 1.0) if squared else (-5.0, 3.0), label, f"derivative of the score by {label}")
    figure.suptitle(f"Kernels of the softmax layer against distance ({note})")
    figure.legend(loc="outside right center", frameon=False)
    output.mkdir(parents=True, exist_ok=True)
    return [_saved(figure, output / f"gradients.{suffix}") for suffix in ("png", "svg")]


def _frame(axes: Axes, limits: tuple[float, float], x_label: str, title: str) -> None:
    low, high = limits
    axes.set_ylim(low, high)
    axes.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
    axes.set_xlabel(x_label)
    axes.set_title(f"{title} (clipped to {low:g} … {high:g})", fontsize="medium")


def plot_curves(trials: Sequence[Measured], path: Path) -> Path:
    """Plot training loss against epochs, a line for each setting (sparse paper, Figure 1), shaded over seeds."""
    figure = _figure(7, 4.5)
    axes = figure.add_subplot()
    curves = {name_of(values): [trial.losses for trial in group] for values, group in groups_of(trials)}
    draw_curves(axes, curves, "training loss a target")
    if all(loss > 0 for trial in trials for loss in trial.losses):
        axes.set_yscale("log")
    axes.legend()
    return _saved(figure, path)


def plot_metric(trials: Sequence[Measured], against: str, path: Path) -> Path:
    """Plot each metric against one value (sparse paper, Figure 2), every trial a point, their means a line.

    Each value that is no number, such as no `sparse_k`, is a dashed line of its own.
    """
    names = metrics_of(trials)
    columns = min(len(names), _COLUMNS)
    lines = -(-len(names) // columns)
    figure = _figure(4.5 * columns, 3.8 * lines)
    for index, name in enumerate(names):
        _draw(figure.add_subplot(lines, columns, index + 1), trials, against, name)
    return _saved(figure, path)


def _draw(axes: Axes, trials: Sequence[Measured], against: str, name: str) -> None:
    points: dict[Value, list[float]] = {}
    for trial in trials:
        if name in trial.metrics:
            points.setdefault(trial.result.values[against], []).append(trial.metrics[name])
    numbers = sorted(value for value in points if is_number(value))
    for number in numbers:
        axes.plot([number] * len(points[number]), points[number], "o", color="C0", fillstyle="none")
    axes.plot(numbers, [statistics.fmean(points[number]) for number in numbers], color="C0")
    others = [value for value in points if value not in numbers]
    for index, other in enumerate(others, 1):
        label = f"without {against.rpartition('.')[2]}" if other is None else str(other)
        axes.axhline(statistics.fmean(points[other]), color=f"C{index}", linestyle="--", label=label)
        axes.axhspan(min(points[other]), max(points[other]), color=f"C{index}", alpha=0.15)
    if others:
        axes.legend()
    if far_apart(numbers):
        axes.set_xscale("log")
        _set_ticks(axes, numbers)
    axes.set_xlabel(against)
    axes.set_ylabel(name)


def plot_trials(
    results: Sequence[TrialResult], paths: Sequence[str], metric: str, path: Path, *, maximize: bool = False
) -> Path:
    """Plot the metric against each parameter.

    Pruned trials are crosses; the best, which comes first, is filled. Where less is better, trials far above it lie
    at the upper edge, as a triangle.
    """
    shown = [result for result in results if not result.failed]
    top = math.inf if maximize else _FAR * min((result.metric for result in shown), default=math.inf)
    note = f" (triangles: above {top:.4g})" if any(result.metric > top for result in shown) else ""
    figure = _figure(4.5 * len(paths), 4)
    for index, parameter in enumerate(paths):
        axes = figure.add_subplot(1, len(paths), index + 1)
        _scatter(axes, shown, parameter, top)
        axes.set_xlabel(parameter)
        axes.set_ylabel(f"dev {metric}{note}")
    return _saved(figure, path)


def _scatter(axes: Axes, results: Sequence[TrialResult], parameter: str, top: float) -> None:
    known = [result for result in results if parameter in result.values]
    places = _places(axes, [result.values[parameter] for result in known])
    for result, place in zip(known, places, strict=True):
        marker = "^" if result.metric > top else "x" if result.pruned else "o"
        best = result is results[0] and not result.pruned
        axes.plot(place, min(result.metric, top), marker, color="C0", fillstyle="full" if best else "none")


def _places(axes: Axes, values: Sequence[Value]) -> list[float]:
    """Return where values lie on the horizontal axis: logarithmic for numbers far apart, equal distances for others."""
    numbers = [float(value) for value in values if is_number(value)]
    if len(numbers) < len(values):
        names = sorted({str(value) for value in values})
        axes.set_xticks(range(len(names)), names)
        return [float(names.index(str(value))) for value in values]
    if far_apart(numbers):
        axes.set_xscale("log")
    different = sorted(set(numbers))
    if 0 < len(different) <= _LABELLED:
        _set_ticks(axes, different)
    return numbers
