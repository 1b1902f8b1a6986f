"""Results of a hyperparameter search: table, plot, and values to paste into the recipe."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from training.analysis.tables import Rows
from training.dotted_path import part_at
from training.recipe import Recipe, Value
from training.tune import TrialResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["best_as_yaml", "plot", "short_names", "trial_rows"]


def trial_rows(results: Iterable[TrialResult], paths: Sequence[str], metric: str) -> Rows:
    """One row a trial."""
    rows = Rows(["trial", f"dev {metric}", *paths, "epochs", "minutes", "state"])
    for result in results:
        state = "pruned" if result.pruned else "failed" if result.failed else "complete"
        values = (result.values.get(path) for path in paths)
        minutes = round(result.seconds / 60, 2)
        rows.add([result.number, result.metric, *values, result.epochs, minutes, state])
    return rows


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Dotted paths to their last parts, as many as tell them apart, for columns of a terminal."""
    parts = [path.split(".") for path in paths]
    most = max(map(len, parts))
    ends = (tuple(tuple(part[-count:]) for part in parts) for count in range(1, most + 1))
    shortest = next(end for end in ends if len(set(end)) == len(paths))
    return {path: ".".join(end) for path, end in zip(paths, shortest, strict=True)}


def best_as_yaml(recipe: Recipe, best: TrialResult) -> str:
    """The sections of the recipe that a search was about, with the best values."""
    content = recipe.with_values(best.values).model_dump(exclude={"tune"})
    return yaml.safe_dump(part_at(content, best.values), sort_keys=False)


def plot(
    results: Sequence[TrialResult], paths: Sequence[str], metric: str, path: Path, *, maximize: bool = False
) -> Path:
    """Metric against each parameter, as an image.

    Pruned trials are crosses; the best, which comes first, is filled. Where less is better, trials far above it lie
    at the upper edge, as a triangle.
    """
    from matplotlib.figure import Figure  # slow to import, and most commands draw nothing

    shown = [result for result in results if not result.failed]
    top = math.inf if maximize else _FAR * min((result.metric for result in shown), default=math.inf)
    note = f" (triangles: above {top:.4g})" if any(result.metric > top for result in shown) else ""
    figure = Figure(figsize=(4.5 * len(paths), 4), layout="constrained")
    for index, parameter in enumerate(paths):
        axes = figure.add_subplot(1, len(paths), index + 1)
        _scatter(axes, shown, parameter, top)
        axes.set_xlabel(parameter)
        axes.set_ylabel(f"dev {metric}{note}")
    figure.savefig(path, dpi=150)
    return path


_FAR = 10.0
"""Multiple of the best metric up to which the axis reaches; outliers would compress all others into one line."""
_LABELLED = 6
"""Values at most that each get a tick."""


def _scatter(axes: "Axes", results: Sequence[TrialResult], parameter: str, top: float) -> None:
    known = [result for result in results if parameter in result.values]
    places = _places(axes, [result.values[parameter] for result in known])
    for result, place in zip(known, places, strict=True):
        marker = "^" if result.metric > top else "x" if result.pruned else "o"
        best = result is results[0] and not result.pruned
        axes.plot(place, min(result.metric, top), marker, color="C0", fillstyle="full" if best else "none")


def _places(axes: "Axes", values: Sequence[Value]) -> list[float]:
    """Where values lie on the horizontal axis, logarithmic for numbers far apart; other values have equal distances."""
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        names = sorted({str(value) for value in values})
        axes.set_xticks(range(len(names)), names)
        return [float(names.index(str(value))) for value in values]
    if numbers and min(numbers) > 0 and max(numbers) >= 8 * min(numbers):
        axes.set_xscale("log")
    different = sorted(set(numbers))
    if 0 < len(different) <= _LABELLED:
        axes.set_xticks(different, [f"{number:g}" for number in different])
        axes.minorticks_off()
    return numbers
