import math

import pytest

from service.engine.patience import Patience

WINDOW = 1.0


def taught(*, returning, batches=20, results=8):
    """Return the state after batches of which that many results were each followed by a request."""
    patience = Patience()
    for number in range(batches):
        patience.completed(10.0 * number, results, 1, WINDOW)
        patience.arrived(10.0 * number + 0.5, returning, 1, WINDOW, computing=False)
    return patience


def test_a_batch_waits_for_all_clients_that_return():
    patience = taught(returning=8)
    patience.completed(500.0, 8, 2, WINDOW)
    assert patience.until(9, WINDOW) == 501.0
    assert patience.until(10, WINDOW) == -math.inf


@pytest.mark.parametrize("returning", [0, 4])
def test_a_batch_starts_at_once_where_few_return(returning):
    patience = taught(returning=returning)
    patience.completed(500.0, 8, 2, WINDOW)
    assert patience.until(2, WINDOW) == -math.inf


def test_clients_that_return_later_than_the_window_are_not_waited_for():
    patience = Patience()
    for number in range(20):
        patience.completed(10.0 * number, 8, 1, WINDOW)
        patience.arrived(10.0 * number + 1.5, 8, 1, WINDOW, computing=True)
    patience.completed(500.0, 8, 2, WINDOW)
    assert patience.until(2, WINDOW) == -math.inf


def test_waiting_is_learnt_again():
    patience = taught(returning=0)
    for number in range(20):
        patience.completed(500.0 + 10 * number, 8, 1, WINDOW)
        patience.arrived(500.5 + 10 * number, 8, 1, WINDOW, computing=True)
    patience.completed(900.0, 8, 0, WINDOW)
    assert patience.until(1, WINDOW) == 901.0


@pytest.mark.parametrize(("following", "until"), [(9, 501.0), (1, -math.inf)])
def test_a_request_to_an_idle_device_waits_where_bursts_arrive(following, until):
    patience = Patience()
    for number in range(20):
        patience.arrived(10.0 * number, 1, 0, WINDOW, computing=False)
        patience.arrived(10.0 * number + 0.5, following, 1, WINDOW, computing=False)
    patience.arrived(500.0, 1, 0, WINDOW, computing=False)
    assert patience.until(1, WINDOW) == until


def test_the_first_request_of_all_is_not_waited_for():
    patience = Patience()
    patience.arrived(1.0, 1, 0, WINDOW, computing=False)
    assert patience.until(1, WINDOW) == -math.inf


def after_groups(*sizes):
    """Return the state after a request that follows groups of these sizes."""
    patience = Patience()
    for number, size in enumerate(sizes):
        patience.arrived(10.0 * number, 1, 0, WINDOW, computing=False)
        patience.arrived(10.0 * number + 0.5, size - 1, 1, WINDOW, computing=False)
    patience.arrived(500.0, 1, 0, WINDOW, computing=False)
    return patience


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([10] * 8, 10),
        ([10] * 7 + [20], 10),  # two groups that overlap by chance
        ([10, 20] * 4, 20),
        ([6, 7, 8, 9, 10, 11, 12, 13], 12),
        ([90] * 8 + [10] * 8, 10),
    ],
)
def test_a_group_is_complete_with_as_many_as_the_last_ones_had(sizes, expected):
    patience = after_groups(*sizes)
    assert patience.until(expected - 1, WINDOW) == 501.0
    assert patience.until(expected, WINDOW) == -math.inf


def test_a_burst_that_begins_after_a_batch_is_waited_for():
    patience = taught(returning=0)
    for number in range(20):
        patience.arrived(500.0 + 10 * number, 1, 0, WINDOW, computing=False)
        patience.arrived(500.5 + 10 * number, 9, 1, WINDOW, computing=False)
    patience.completed(900.0, 8, 0, WINDOW)
    patience.arrived(900.5, 1, 0, WINDOW, computing=False)
    assert patience.until(1, WINDOW) == 901.5
    patience.completed(900.7, 8, 1, WINDOW)
    assert patience.until(1, WINDOW) == 901.5
