"""Tests of the kernels' curves: closed forms, the geometry of the line, finite differences, the files."""

import csv
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from training.cli.analyses import gradients
from training.search.analyses.gradients import Curve, curve, curve_rows, curves, word_vector
from training.search.analyses.plots import plot_gradients
from training.softmax import PAPER_KERNELS, build_kernel

NORM, SIZE = 2.5, 16
X = torch.tensor([0.25, 1.0, 2.5, 4.0], dtype=torch.float64)
"""Before the origin, at it, and beyond."""

# With gamma = 1/16, alpha = 1/4, b = 16, and W.h = NORM^2 - NORM x. Spherical Gaussians of variance 1 overlap in
# -x^2 / 4 and a constant; of two blocks, each carries half of x^2, and there are four pairs.
GAINS: dict[str, Callable[[Tensor], Tensor]] = {
    "lin": lambda x: -NORM * x,
    "log": lambda x: -torch.log(1 + x**2),
    "pow": lambda x: -(x**2),
    "pol": lambda x: ((NORM**2 - NORM * x) / 4 + 1) ** 2 - (NORM**2 / 4 + 1) ** 2,
    "rbf": lambda x: torch.exp(-(x**2) / 16) - 1,
    "ssg": lambda x: -(x**2) / 4,
    "mog": lambda x: -4 * (x**2 / 2) / 4,
    "hpb": lambda x: -2 * x,  # on a line through the origin, where the ball's radius is tanh of the vector's
    "wav": lambda x: torch.cos(x**2) * torch.exp(-(x**2) / 16) - 1,
}
SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "lin": lambda x: torch.full_like(x, -NORM),
    "log": lambda x: -2 * x / (1 + x**2),
    "pow": lambda x: -2 * x,
    "pol": lambda x: -2 * ((NORM**2 - NORM * x) / 4 + 1) * NORM / 4,
    "rbf": lambda x: -x / 8 * torch.exp(-(x**2) / 16),
    "ssg": lambda x: -x / 2,
    "mog": lambda x: -x,
    "hpb": lambda x: torch.full_like(x, -2.0),
    "wav": lambda x: -2 * x * torch.exp(-(x**2) / 16) * (torch.sin(x**2) + torch.cos(x**2) / 16),
}


def _curve(name: str) -> Curve:
    return curve(build_kernel(name, hidden_size=SIZE), X, hidden_size=SIZE, norm=NORM)


# What rounding leaves of a distance of 0 is seen through a root: with r = tanh(NORM) and gap = 1 - r^2, a few units in
# the last place of 2 r^2 / gap, times 2 / gap, under acosh(1 + x) = sqrt(2 x). So it depends on the machine's products.
_ROOT_OF_ROUNDING = math.sqrt(2 * 8 * 2.0**-53 * 2 * math.sinh(NORM) ** 2 * 2 * math.cosh(NORM) ** 2)


@pytest.mark.parametrize("name", PAPER_KERNELS)
def test_curves_have_their_closed_form(name: str) -> None:
    found = _curve(name)
    at_zero = _ROOT_OF_ROUNDING if name == "hpb" else 1e-6
    torch.testing.assert_close(found.gain, GAINS[name](X), rtol=1e-6, atol=at_zero)
    torch.testing.assert_close(found.gain.diff(), GAINS[name](X).diff(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.slope, SLOPES[name](X), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.squared_slope, SLOPES[name](X) / (2 * X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PAPER_KERNELS)
def test_slopes_are_finite_differences(name: str) -> None:
    kernel, step = build_kernel(name, hidden_size=SIZE), 1e-5
    ahead, behind = (curve(kernel, X + sign * step, hidden_size=SIZE, norm=NORM).score for sign in (1, -1))
    torch.testing.assert_close(_curve(name).slope, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-5)


def test_what_the_paper_sees() -> None:
    """By the squared distance, pow's gradient is constant, and those of log and rbf vanish far away."""
    found = {each.kernel: each for each in curves(hidden_size=SIZE, largest=20.0)}
    torch.testing.assert_close(found["pow"].squared_slope, torch.full((600,), -1.0, dtype=torch.float64))
    for name in ("log", "rbf", "wav"):
        assert float(found[name].squared_slope[-1].abs()) < 0.01
    assert float(found["log"].squared_slope[0]) < -0.99


def test_the_word_vector_leaves_log_variances_at_0() -> None:
    lin, ssg, mog = (word_vector(build_kernel(name), 8, 3.0) for name in ("lin", "ssg", "mog"))
    assert all(math.isclose(float(word.norm()), 3.0) for word in (lin, ssg, mog))
    assert [bool(each) for each in lin] == [True] * 8
    assert [bool(each) for each in ssg] == [True] * 7 + [False]
    assert [bool(each) for each in mog] == ([True] * 3 + [False]) * 2


def test_a_size_that_a_kernel_cannot_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="num_gaussians of kernel 'mog' must divide the hidden size"):
        curves(hidden_size=15)


def test_the_table_has_all_numbers() -> None:
    found = curves(points=3)
    rows = curve_rows(found)
    assert len(rows.rows) == 3 * len(PAPER_KERNELS)
    assert rows.rows[0][:2] == ("lin", 5 / 3)
    assert all(len(row) == len(rows.columns) for row in rows.rows)


@pytest.mark.parametrize("against", ["distance", "squared-distance"])
def test_the_picture_is_a_picture(against: str, tmp_path: Path) -> None:
    png, svg = plot_gradients(curves(points=50), tmp_path / "new", "a note", against)  # type: ignore[arg-type]
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in svg.read_text()


def test_the_command_writes_three_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gradients(tmp_path, hidden_size=SIZE) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gradients.csv", "gradients.png", "gradients.svg"]
    with (tmp_path / "gradients.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["kernel"] for line in lines} == set(PAPER_KERNELS)
    last = lines[599]
    assert (last["kernel"], float(last["distance"]), float(last["score"])) == ("lin", 5.0, pytest.approx(-6.25))
    assert "gradients.svg" in capsys.readouterr().out
