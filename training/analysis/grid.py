"""Trained trials of a grid compared on a split: mean and spread over seeds, loss curves, metrics against a value."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from training.analysis.tables import Cell, Rows
from training.recipe import Value
from training.tune import TrialResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Measured", "grid_rows", "losses_of", "plot_curves", "plot_metric", "shown_rows"]

_COLUMNS = 3
"""Size of plots that are placed side by side."""

SEED = "seed"
"""The field whose values are repetitions of the same thing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A trial and its metrics on a split."""

    result: TrialResult
    metrics: Mapping[str, float]
    losses: Sequence[float]
    """Training loss of each epoch."""


def _groups(trials: Sequence[Measured]) -> list[tuple[dict[str, Value], list[Measured]]]:
    """Trials of the same settings, the seed aside; numbers in order, after other values."""
    paths = [path for path in trials[0].result.values if path != SEED]
    groups: dict[tuple[Value, ...], list[Measured]] = {}
    for trial in trials:
        groups.setdefault(tuple(trial.result.values[path] for path in paths), []).append(trial)
    ordered = sorted(groups, key=lambda values: [_rank(value) for value in values])
    return [(dict(zip(paths, values, strict=True)), groups[values]) for values in ordered]


def _rank(value: Value) -> tuple[bool, float, str]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number, float(value) if number else 0.0, str(value)  # type: ignore[arg-type]


def grid_rows(trials: Sequence[Measured]) -> Rows:
    """A row for each setting: mean over seeds of each metric, and sample standard deviation where there are several."""
    assert trials
    names = list(trials[0].metrics)
    paths = [path for path in trials[0].result.values if path != SEED]
    rows = Rows([*paths, "seeds", *(column for name in names for column in (name, f"{name} +-"))])
    for values, group in _groups(trials):
        cells: list[Cell] = [*values.values(), len(group)]
        for name in names:
            found = [trial.metrics[name] for trial in group]
            cells += [statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None]
        rows.add(cells)
    return rows


def shown_rows(trials: Sequence[Measured]) -> Rows:
    """A row for each metric and a column for each setting: what `grid_rows` has, short enough for a terminal."""
    groups = _groups(trials)
    rows = Rows(["", *(_name(values) for values, _ in groups)])
    rows.add(["seeds", *(len(group) for _, group in groups)])
    for name in trials[0].metrics:
        found = [[trial.metrics[name] for trial in group] for _, group in groups]
        rows.add([name, *(_mean(values) for values in found)])
    return rows


def _mean(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4g}{spread}"


def plot_curves(trials: Sequence[Measured], path: Path) -> Path:
    """Training loss against epochs, a line for each setting (sparse paper, Figure 1), its range over seeds shaded."""
    from matplotlib.figure import Figure  # slow to import, and most commands draw nothing

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for values, group in _groups(trials):
        epochs = range(1, min(len(trial.losses) for trial in group) + 1)
        columns = [[trial.losses[epoch - 1] for trial in group] for epoch in epochs]
        (line,) = axes.plot(epochs, [statistics.fmean(column) for column in columns], label=_name(values))
        least, most = [min(column) for column in columns], [max(column) for column in columns]
        axes.fill_between(epochs, least, most, color=line.get_color(), alpha=0.2)
    axes.set_xlabel("epoch")
    axes.set_ylabel("training loss a target")
    if all(loss > 0 for trial in trials for loss in trial.losses):
        axes.set_yscale("log")
    axes.legend()
    figure.savefig(path, dpi=150)
    return path


def plot_metric(trials: Sequence[Measured], against: str, path: Path) -> Path:
    """Each metric against one value (sparse paper, Figure 2), every trial a point, their means a line.

    Each value that is no number, such as no `sparse_k`, is a dashed line of its own.
    """
    from matplotlib.figure import Figure

    names = list(trials[0].metrics)
    columns = min(len(names), _COLUMNS)
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(4.5 * columns, 3.8 * lines), layout="constrained")
    for index, name in enumerate(names):
        _draw(figure.add_subplot(lines, columns, index + 1), trials, against, name)
    figure.savefig(path, dpi=150)
    return path


def _draw(axes: "Axes", trials: Sequence[Measured], against: str, name: str) -> None:
    points: dict[Value, list[float]] = {}
    for trial in trials:
        points.setdefault(trial.result.values[against], []).append(trial.metrics[name])
    numbers = sorted(value for value in points if isinstance(value, int | float) and not isinstance(value, bool))
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
    if numbers and min(numbers) > 0 and max(numbers) >= 8 * min(numbers):
        axes.set_xscale("log")
        axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
        axes.minorticks_off()
    axes.set_xlabel(against)
    axes.set_ylabel(name)


def _name(values: Mapping[str, Value]) -> str:
    parts = ((path.rpartition(".")[2], value) for path, value in values.items())
    return ", ".join(f"without {name}" if value is None else f"{name} = {value}" for name, value in parts) or "all"


def losses_of(history: Path) -> list[float]:
    """Training loss of each epoch, from a run's history."""
    return [float(each["train_loss"]) for each in json.loads(history.read_text(encoding="utf-8"))]
