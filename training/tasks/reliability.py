"""Reliability diagrams: how often classes of a predicted probability are right (Guo et al. 2017, figure 1)."""

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["BINS", "Reliability", "reliability_diagram"]

BINS = 15
"""Bins of equal width."""
_LEAST = 5
"""Examples of a bin that is drawn."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """Probabilities of the most probable classes, and whether these are right."""

    confidences: NDArray[np.float64]
    right: NDArray[np.bool_]

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Return mean probability, fraction of right classes and number of examples of each bin that has some."""
        bins = np.minimum((self.confidences * BINS).astype(int), BINS - 1)
        counts = np.bincount(bins, minlength=BINS)
        kept = counts > 0
        sums = (np.bincount(bins, values, minlength=BINS)[kept] for values in (self.confidences, self.right))
        means, fractions = (each / counts[kept] for each in sums)
        return means, fractions, counts[kept]


def reliability_diagram(before: Reliability, after: Reliability) -> bytes:
    """Return an SVG file: the fraction of right classes against the mean probability, in bins of 5 examples or more."""
    import matplotlib  # slow to import
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for each, name, marker in ((before, "output layer", "o--"), (after, "calibrated", "s-")):
        means, fractions, counts = each.points()
        drawn = counts >= _LEAST
        axes.plot(means[drawn], fractions[drawn], marker, markersize=4, linewidth=1, label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability of the class", ylabel="fraction right", aspect="equal")
    axes.legend(frameon=False)
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "softserve"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()
