"""Tests of the measurement of the service with a modelled backend: short, with real servers and real load."""

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.modelled.__main__ import BUNDLE
from benchmarks.modelled.backend import ModelledBackend
from models.reading import load_manifest
from service.engine.cost_model import Terms
from tests.fixtures.optional_tools import needs

ROOT = Path(__file__).parents[2]


def test_a_batch_takes_the_modelled_time_and_the_probabilities_descend():
    backend = ModelledBackend(Terms(0.02, 0.001, 0.0001))
    started = time.monotonic()
    inputs = {"tokens": np.zeros((4, 10), np.int64), "k": np.array(3)}
    values, classes = backend.run("classify", inputs, ["log_probabilities", "classes"])
    assert time.monotonic() - started >= 0.028
    assert classes.tolist() == [[0, 1, 2]] * 4
    assert np.exp(values[0]).tolist() == pytest.approx([0.5, 0.25, 0.125])


def test_all_outputs_of_the_measured_bundle_are_given():
    outputs = {each.name: each for each in load_manifest(BUNDLE).graphs["classify"].outputs}
    inputs = {"tokens": np.zeros((4, 10), np.int64), "k": np.array(3)}
    found = ModelledBackend(Terms(0.0, 0.0, 0.0)).run("classify", inputs, list(outputs))
    sizes = {"batch": 4, "k": 3}
    for array, each in zip(found, outputs.values(), strict=True):
        assert (array.shape, array.dtype) == (tuple(sizes[str(axis)] for axis in each.shape), each.dtype)


@needs("wrk")
def test_service_and_ceilings_are_measured():
    command = [sys.executable, "-m", "benchmarks.modelled", "--connections", "2", "--rounds", "1", "--seconds", "1"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr
    rows = [re.split(r" *\| *", line)[1:-1] for line in finished.stdout.splitlines() if re.match(r"\| \d", line)]
    assert [row[:3] for row in rows] == [
        [texts, "2", name] for texts in ("1", "32") for name in ("Softserve", "Starlette")
    ]
    for *_, rate, p50, p99, core, of_bare, of_ceiling in rows:
        assert float(rate) > 1
        assert float(p50.removesuffix(" ms")) <= float(p99.removesuffix(" ms"))
        assert 0 < float(core.removesuffix(" us")) < 1e6
        assert float(of_bare) > 0
        assert float(of_ceiling) > 0
