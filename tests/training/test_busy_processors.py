"""Tests of how threads wait where other programs use the processors."""

import os
from pathlib import Path

import pytest

from training import busy_processors
from training.busy_processors import idle_processors, let_threads_sleep

BEFORE = "cpu  100 0 100 1000 200 0 0 0 7 0\ncpu0 50 0 50 500 100 0 0 0 0 0\ncpu1 50 0 50 500 100 0 0 0 0 0\nctxt 9\n"


def _after(used: int, idle: int) -> str:
    """Statistics after which processors were used and idle for more time."""
    return BEFORE.replace("cpu  100 0 100 1000", f"cpu  {100 + used} 0 100 {1000 + idle}", 1)


def test_idle_processors_are_those_of_the_time_between() -> None:
    assert idle_processors(BEFORE, _after(30, 10)) == pytest.approx(0.5)
    assert idle_processors(BEFORE, _after(0, 40)) == 2
    assert idle_processors(BEFORE, BEFORE) == 0


@pytest.mark.parametrize(
    ("used", "idle", "given", "sleeps"),
    [(20, 20, {}, True), (5, 35, {}, False), (20, 20, {"GOMP_SPINCOUNT": "1"}, False)],
    ids=["one of two is used", "both are idle", "the environment says it"],
)
def test_threads_sleep_beside_other_programs(
    used: int, idle: int, given: dict[str, str], sleeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that the end of the test restores it
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    statistics = tmp_path / "stat"
    statistics.write_text(BEFORE)
    monkeypatch.setattr(busy_processors, "_STATISTICS", statistics)
    monkeypatch.setattr(busy_processors, "usable_cpus", lambda: 2)
    monkeypatch.setattr(busy_processors.time, "sleep", lambda seconds: statistics.write_text(_after(used, idle)))
    assert (let_threads_sleep() is not None) == sleeps
    assert os.environ.get("OMP_WAIT_POLICY") == ("PASSIVE" if sleeps else None)
