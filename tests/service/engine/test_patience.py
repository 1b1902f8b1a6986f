"""A batch waits where requests are observed to arrive in groups, and only there."""

import math

import pytest

from service.engine.patience import Patience

WINDOW = 1.0


def closed_loop(patience, clients, rounds, returning=1.0):
    """Complete batches of all clients, of which a part sends the next request within the window."""
    now = 0.0
    for _ in range(rounds):
        patience.completed(now, clients, 0, WINDOW)
        for client in range(round(returning * clients)):
            patience.arrived(now + 0.01 * client, 1, client, WINDOW)
        now += 10.0
    patience.completed(now, clients, 0, WINDOW)
    return now


def test_nothing_is_waited_for_at_first():
    patience = Patience()
    patience.arrived(5.0, 1, 0, WINDOW)
    assert patience.until(1, WINDOW) == -math.inf
    patience.completed(6.0, 4, 2, WINDOW)
    assert patience.until(2, WINDOW) == -math.inf


def test_clients_that_return_are_waited_for_until_all_have_returned():
    patience = Patience()
    now = closed_loop(patience, clients=4, rounds=12)
    assert patience.until(0, WINDOW) == now + WINDOW
    patience.arrived(now + 0.1, 3, 0, WINDOW)
    assert now < patience.until(3, WINDOW) <= now + WINDOW
    patience.arrived(now + 0.2, 1, 3, WINDOW)
    assert patience.until(4, WINDOW) == -math.inf


@pytest.mark.parametrize("returning", [0.0, 0.5])
def test_clients_of_whom_few_return_are_not_waited_for(returning):
    patience = Patience()
    closed_loop(patience, clients=4, rounds=12, returning=returning)
    assert patience.until(1, WINDOW) == -math.inf


def test_a_burst_is_waited_for_once_bursts_were_observed():
    patience = Patience()
    for start in range(0, 120, 10):
        for number in range(8):
            patience.arrived(start + 0.01 * number, 1, number, WINDOW)
        patience.completed(start + 5.0, 8, 0, WINDOW)
    patience.arrived(500.0, 1, 0, WINDOW)
    assert 500.0 < patience.until(1, WINDOW) <= 500.0 + WINDOW


def test_with_no_window_nothing_is_waited_for():
    patience = Patience()
    for now in range(20):
        patience.arrived(now + 0.5, 4, 0, 0.0)
        patience.completed(float(now + 1), 4, 0, 0.0)
        assert patience.until(0, 0.0) <= now + 1
