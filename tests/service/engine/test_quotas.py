"""Limits of API keys: hand-computed cases of the pure policy, and counters that processes share."""

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.quotas import COUNTERS, Amount, Limits, Quotas
from service.engine.shared_counters import LocalCounters, SharedCounters

DAY = 86_400


def quotas(processes=1, **limits):
    return Quotas(Limits(**limits), [0.0] * (COUNTERS + processes))


def test_a_minute_s_limit_is_there_at_once_and_refills_evenly():
    """60 requests a minute: 60 at once, then one a second."""
    found = quotas(requests_per_minute=60)
    assert all(found.take(Amount(1), 1000.0, 0.0) is None for _ in range(60))
    spent = found.take(Amount(1), 1000.0, 0.0)
    assert (spent.name, spent.limit, spent.asked) == ("requests", 60, 1)
    assert spent.retry_after == pytest.approx(1.0)
    assert found.take(Amount(1), 1001.0, 0.0) is None
    assert found.take(Amount(1), 1001.5, 0.0).retry_after == pytest.approx(0.5)


def test_the_state_says_what_is_left_and_when_all_of_it_is():
    found = quotas(characters_per_minute=600, characters_per_day=1000, concurrent_texts=8)
    assert found.take(Amount(0, 3, 150), 50.0, DAY + 400.0) is None
    minute, texts, day = found.state(50.0, DAY + 400.0)
    assert (minute.name, minute.limit, minute.window, minute.left, minute.reset) == ("characters", 600, 60, 450, 15.0)
    assert (texts.name, texts.limit, texts.window, texts.left, texts.reset) == ("concurrent-texts", 8, None, 5, None)
    assert (day.name, day.limit, day.window, day.left, day.reset) == (
        "characters-per-day",
        1000,
        DAY,
        850,
        DAY - 400.0,
    )


def test_a_refused_request_counts_for_no_limit():
    found = quotas(requests_per_minute=2, characters_per_minute=100)
    assert found.take(Amount(1, 1, 90), 0.0, 0.0) is None
    assert found.take(Amount(1, 1, 20), 0.0, 0.0).name == "characters"
    assert found.take(Amount(1, 1, 10), 0.0, 0.0) is None


def test_the_limit_with_the_longest_wait_is_named():
    found = quotas(requests_per_minute=60, characters_per_day=10)
    found.take(Amount(1, 1, 10), 0.0, 100.0)
    spent = found.take(Amount(60, 1, 1), 0.0, 100.0)
    assert (spent.name, spent.retry_after) == ("characters-per-day", DAY - 100.0)


@pytest.mark.parametrize(
    ("limits", "amount"),
    [
        ({"texts_per_minute": 5}, Amount(0, 6)),
        ({"concurrent_texts": 5}, Amount(0, 6)),
        ({"characters_per_day": 5}, Amount(0, 1, 6)),
    ],
)
def test_a_request_beyond_a_whole_limit_is_never_accepted(limits, amount):
    assert math.isinf(quotas(**limits).take(amount, 0.0, 0.0).retry_after)


def test_texts_in_progress_are_counted_until_they_are_answered():
    found = quotas(concurrent_texts=4)
    assert found.take(Amount(0, 3), 0.0, 0.0) is None
    assert found.take(Amount(0, 2), 0.0, 0.0).name == "concurrent-texts"
    found.finish(3)
    assert found.take(Amount(0, 4), 0.0, 0.0) is None


def test_a_day_begins_at_midnight():
    found = quotas(characters_per_day=10)
    assert found.take(Amount(0, 1, 10), 0.0, DAY - 1.0) is None
    assert found.take(Amount(0, 1, 1), 0.0, DAY - 1.0).retry_after == 1.0
    assert found.take(Amount(0, 1, 10), 0.0, float(DAY)) is None


def test_what_was_not_computed_is_given_back():
    found = quotas(characters_per_minute=60, characters_per_day=60)
    found.take(Amount(0, 1, 60), 0.0, 0.0)
    found.give_back(Amount(0, 1, 60), 0.0)
    assert found.take(Amount(0, 1, 60), 0.0, 0.0) is None


def test_what_is_given_back_after_midnight_is_of_the_day_before():
    found = quotas(characters_per_day=60)
    found.take(Amount(0, 1, 60), 0.0, DAY - 1.0)
    found.take(Amount(0, 1, 30), 0.0, DAY + 1.0)
    found.give_back(Amount(0, 1, 60), DAY - 1.0)
    assert found.used_today == (1, 30)


@given(steps=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 20)), max_size=60), limit=st.integers(1, 40))
def test_no_minute_has_more_than_twice_the_limit_and_no_refusal_is_wrong(steps, limit):
    found, now, accepted = quotas(texts_per_minute=limit), 0.0, []
    for wait, texts in steps:
        now += wait
        spent = found.take(Amount(0, texts), now, 0.0)
        if spent is None:
            accepted.append((now, texts))
        elif texts <= limit:
            again = Quotas(found.limits, list(found._counters))
            assert again.take(Amount(0, texts), now + spent.retry_after + 1e-3, 0.0) is None
    for start, _ in accepted:
        assert sum(texts for at, texts in accepted if start <= at < start + 60) <= 2 * limit + 1e-6


# ---- counters ----


@pytest.mark.parametrize("kind", ["local", "shared"])
def test_each_key_has_counters_of_its_own(tmp_path, kind):
    counters = LocalCounters() if kind == "local" else SharedCounters(tmp_path / "counters", 2, 0)
    with counters.locked():
        counters.of("one")[0] = 5.0
    counters.of("two")[1] = 6.0
    assert (list(counters.of("one")[:2]), list(counters.of("two")[:2])) == ([5.0, 0.0], [0.0, 6.0])


_TAKING = """
import sys
from pathlib import Path
from service.engine.quotas import Amount, Limits, Quotas
from service.engine.shared_counters import SharedCounters

counters = SharedCounters(Path(sys.argv[1]), 2, int(sys.argv[2]))
quotas = Quotas(Limits(characters_per_day=1000, concurrent_texts=1000), counters.of("key"), counters.process)
accepted = 0
for _ in range(1000):
    with counters.locked():
        accepted += quotas.take(Amount(0, 1, 1), 0.0, 0.0) is None
print(accepted)
"""


def test_processes_share_a_budget(tmp_path):
    """Two processes that each ask for the whole budget get it once, together."""
    command = [sys.executable, "-c", _TAKING, str(tmp_path / "counters")]
    running = [subprocess.Popen([*command, str(each)], stdout=subprocess.PIPE, text=True) for each in range(2)]
    accepted = [int(each.communicate(timeout=60)[0]) for each in running]
    assert sum(accepted) == 1000
    successor = SharedCounters(tmp_path / "counters", 2, 0)
    row = successor.of("key")
    assert [round(each) for each in row[COUNTERS:]] == [0, accepted[1]], "texts in progress end with their process"
