"""Tests of plots of curves."""

import re

import pytest

from training.search.analyses.curves import curves_svg


def test_equal_curves_give_an_equal_picture() -> None:
    curves = {"lin": [[90.0, 50.0], [92.0, 51.0, 40.0]], "rbf": [[900.0, 800.0]]}
    picture = curves_svg(curves, "validation perplexity")
    assert picture == curves_svg(curves, "validation perplexity")
    assert picture != curves_svg({**curves, "rbf": [[900.0, 700.0]]}, "validation perplexity")
    texts = set(re.findall(r">([^<>]+)</text>", picture))
    assert {"lin", "rbf", "epoch", "validation perplexity", "1", "2", "3"} <= texts
    assert "dc:date" not in picture
    assert "<tspan" in picture, "powers of ten, at a logarithmic axis"
    assert "<tspan" not in curves_svg(curves, "accuracy", linear=True)


def test_no_curves_are_an_empty_plot() -> None:
    assert "</svg>" in curves_svg({}, "accuracy")


@pytest.mark.parametrize(("last", "step"), [(15, 1), (39, 3), (120, 8)])
def test_long_curves_have_ticks_that_do_not_overlap(last: int, step: int) -> None:
    picture = curves_svg({"lin": [[200.0 - epoch for epoch in range(last)]]}, "accuracy")
    epochs = picture[picture.index('id="matplotlib.axis_1"') : picture.index('id="matplotlib.axis_2"')]
    assert re.findall(r">(\d+)</text>", epochs) == [str(epoch) for epoch in range(1, last + 1, step)]
