"""Tests of the clock that stands still while the process is paused."""

from service.engine.running_time import RunningTime


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_time_for_which_the_process_runs_counts():
    clock = Clock()
    time = RunningTime(1.0, clock)
    for _ in range(3):
        clock.now += 1.1
        time.advance()
    assert round(time.seconds, 9) == 3.3


def test_of_a_pause_two_periods_count():
    clock = Clock()
    time = RunningTime(1.0, clock)
    clock.now += 3600
    assert time.advance() == 2.0
    clock.now += 1.5
    assert time.advance() == 3.5
