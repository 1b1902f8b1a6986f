"""Curves of metrics against epochs, also as SVG text: equal curves give an equal text. Slow to import."""

import io
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["curves_svg", "draw_curves", "far_apart"]

_REPRODUCIBLE: dict[Any, Any] = {"svg.hashsalt": "softserve", "svg.fonttype": "none"}
"""Identifiers that do not change, and text as text."""
_MOST_TICKS = 15


def far_apart(numbers: Sequence[float]) -> bool:
    """Return whether numbers need a logarithmic axis."""
    return bool(numbers) and min(numbers) > 0 and max(numbers) >= 8 * min(numbers)


def draw_curves(axes: Axes, curves: Mapping[str, Sequence[Sequence[float]]], label: str) -> None:
    """Draw a line for each name: the mean over its curves, shaded from the least to the most."""
    for index, (name, group) in enumerate(curves.items()):
        epochs = range(1, min(map(len, group)) + 1)
        columns = [[curve[epoch - 1] for curve in group] for epoch in epochs]
        style = ("-", "--", "-.")[index % 3]
        means = [statistics.fmean(column) for column in columns]
        axes.plot(epochs, means, style, marker=".", color=f"C{index % 10}", label=name)
        least, most = [min(column) for column in columns], [max(column) for column in columns]
        axes.fill_between(epochs, least, most, color=f"C{index % 10}", alpha=0.15, linewidth=0)
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)


def curves_svg(curves: Mapping[str, Sequence[Sequence[float]]], label: str, *, linear: bool = False) -> str:
    """Return a plot of `draw_curves` with up to 15 ticks; logarithmic for values far apart unless `linear`."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    draw_curves(axes, curves, label)
    last = max((len(curve) for group in curves.values() for curve in group), default=1)
    axes.set_xticks(range(1, last + 1, -(-last // _MOST_TICKS)))
    if not linear and far_apart([value for group in curves.values() for curve in group for value in curve]):
        axes.set_yscale("log")
    if curves:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    file = io.StringIO()
    with matplotlib.rc_context(_REPRODUCIBLE):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())
