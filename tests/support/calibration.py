"""Comparison of measured bundles, whose probabilities are calibrated, with what their output layers compute."""

from collections.abc import Mapping

import pytest

__all__ = ["assert_of_the_output_layer"]

_ERROR, _SEPARATION = "expected calibration error", "out-of-scope AUROC"


def assert_of_the_output_layer(measured: Mapping[str, float], expected: Mapping[str, float]) -> None:
    """Check that the metrics of a bundle are those of its output layer, apart from what calibration changes."""
    uncalibrated = measured.get(f"{_ERROR}, uncalibrated", measured[_ERROR])
    found = {**measured, _ERROR: uncalibrated}
    same = expected.keys() - {_SEPARATION}
    assert {name: found[name] for name in same} == pytest.approx({name: expected[name] for name in same}, abs=1e-4)
