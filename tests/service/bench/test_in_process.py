"""Tests of measurements in this process; those of the other tasks are in test_cli.py."""

import re

from service.bench.in_process import measure
from service.bench.options import InProcessOptions


def test_a_classifier_is_measured_at_three_batch_sizes(capsys):
    measure("intents", InProcessOptions(rounds=1, threads=1))
    lines = capsys.readouterr().out.splitlines()
    found = [re.fullmatch(r"classify +batch +(\d+): +([\d.]+) ms, +(\d+) texts/s", line) for line in lines]
    assert [match and int(match[1]) for match in found] == [1, 8, 32]
    for match in found:
        count, milliseconds, rate = int(match[1]), float(match[2]), int(match[3])
        assert abs(rate - 1000 * count / milliseconds) <= 0.02 * rate + 1
