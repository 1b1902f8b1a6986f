"""How fast a queue drains, measured."""

import math

import pytest

from service.engine.drain import DrainRate


def test_nothing_is_said_before_anything_was_measured():
    assert DrainRate().seconds(100) == 0.0


def test_what_waits_takes_as_long_as_what_ran():
    rate = DrainRate()
    for _ in range(5):
        rate.record(200, 0.1)
    assert rate.seconds(1000) == pytest.approx(0.5)


def test_the_latest_runs_weigh_most():
    rate = DrainRate()
    rate.record(1000, 1.0)
    for _ in range(60):
        rate.record(10, 1.0)
    assert rate.seconds(10) == pytest.approx(1.0, rel=0.05)


def test_runs_that_finish_nothing_cost_their_time():
    rate = DrainRate()
    rate.record(0, 1.0)
    rate.record(10, 1.0)
    assert rate.seconds(10) == pytest.approx(1 + math.exp(-1 / 3))


def test_many_steps_that_finish_nothing_do_not_drown_what_finished():
    rate = DrainRate()
    for _ in range(10):
        for _ in range(50):
            rate.record(0, 0.01)
        rate.record(100, 0.01)
    assert rate.seconds(100) == pytest.approx(0.51, rel=0.1)
    for _ in range(100):
        rate.record(0, 0.01)
    assert rate.seconds(100) < 1.0


def test_the_first_of_many_that_finishes_does_not_speak_for_all():
    rate = DrainRate(expected=0.01)
    for _ in range(50):
        rate.record(0, 0.01)
    rate.record(1, 0.01)
    assert rate.seconds(64) == pytest.approx(0.64, rel=0.5)
    for _ in range(100):
        rate.record(20, 1.0)
    assert rate.seconds(20) == pytest.approx(1.0, rel=0.01), "measurements replace the expected time"
