"""Splits against an exact dynamic program over every place, and what they may cost."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import batching
from models.batching import split

BOUNDS = {"fixed": 16.0, "max_items": 32, "max_tokens": 4096}


def cost(lengths, ends, fixed):
    return sum(fixed + lengths[start] * (end - start) for start, end in itertools.pairwise([0, *ends]))


def least(lengths, fixed, max_items, max_tokens):
    """Return the cost of the best split, by trying every start for every end."""
    costs = [0.0]
    for end in range(1, len(lengths) + 1):
        starts = [
            start
            for start in range(max(0, end - max_items), end)
            if lengths[start] * (end - start) <= max_tokens or start == end - 1
        ]
        costs.append(min(costs[start] + fixed + lengths[start] * (end - start) for start in starts))
    return costs[-1]


def assert_within(lengths, ends, max_items, max_tokens):
    assert ends == sorted(set(ends))
    assert ends[-1:] == [len(lengths)][: len(lengths)]
    for start, end in itertools.pairwise([0, *ends]):
        assert end - start <= max_items
        assert end - start == 1 or lengths[start] * (end - start) <= max_tokens


def drawn(count, seed, median=12, spread=0.6):
    chance = random.Random(seed)
    return sorted((max(1, int(chance.lognormvariate(math.log(median), spread))) for _ in range(count)), reverse=True)


@pytest.mark.parametrize(
    ("lengths", "ends"),
    [
        ([], []),
        ([7], [1]),
        ([9, 9, 9], [3]),
        ([30, 9, 9], [1, 3]),  # 2 x 16 + 30 + 18 = 80 against 16 + 90
        ([20, 12, 4], [3]),  # 16 + 60 = 76 against 2 x 16 + 40 + 4 = 76: in fewer batches
        ([21, 12, 4], [1, 3]),  # 2 x 16 + 21 + 24 = 77 against 16 + 63 = 79
    ],
)
def test_splits_by_hand(lengths, ends):
    assert split(lengths, **BOUNDS) == ends


def test_a_longer_input_than_allowed_is_alone():
    assert split([50, 40, 3, 2], fixed=100.0, max_items=8, max_tokens=10) == [1, 2, 4]


@given(
    lengths=st.lists(st.integers(1, 60), max_size=70),
    fixed=st.sampled_from([0.0, 1.0, 16.0, 100.0, 4000.0]),
    max_items=st.integers(1, 63),
    max_tokens=st.sampled_from([1, 30, 200, 4096]),
)
def test_small_batches_are_split_at_least_cost(lengths, fixed, max_items, max_tokens):
    lengths = sorted(lengths, reverse=True)
    ends = split(lengths, fixed=fixed, max_items=max_items, max_tokens=max_tokens)
    assert_within(lengths, ends, max_items, max_tokens)
    assert cost(lengths, ends, fixed) == pytest.approx(least(lengths, fixed, max_items, max_tokens), abs=1e-3)


@pytest.mark.parametrize("fixed", [16.0, 4000.0])
@pytest.mark.parametrize("max_items", [64, 128, 256])
@pytest.mark.parametrize("spread", [0.2, 0.6, 1.5])
def test_large_batches_cost_at_most_two_percent_more_than_the_best(fixed, max_items, spread):
    for seed in range(3):
        lengths = drawn(1024, seed, spread=spread)
        ends = split(lengths, fixed=fixed, max_items=max_items, max_tokens=65_536)
        assert_within(lengths, ends, max_items, 65_536)
        assert cost(lengths, ends, fixed) <= 1.02 * least(lengths, fixed, max_items, 65_536)


@pytest.mark.parametrize(("max_items", "max_tokens"), [(32, 4096), (256, 65_536), (1024, 1 << 20), (256, 512)])
def test_places_are_bounded_by_full_batches(max_items, max_tokens):
    lengths = drawn(4 * max_items, 1)
    cuts, _, _ = batching._cuts(lengths, 4000.0, max_items, max_tokens)
    full = sum(max(1 / max_items, length / max_tokens) for length in lengths)
    assert len(cuts) <= 2 + 64 * (full + 1)
