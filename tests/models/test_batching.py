"""The cheapest split into batches: hand-computed cases, an exhaustive reference, and the number of steps."""

import random
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.batching import split
from models.text.padding import padded


def cost(lengths, ends, fixed):
    return sum(fixed + lengths[start] * (end - start) for start, end in pairwise([0, *ends]))


def least_cost(lengths, fixed, max_items, max_tokens):
    """Return the cost of the cheapest split: every start of every last batch is tried."""
    costs = [0.0]
    for end in range(1, len(lengths) + 1):
        starts = [end - 1]
        starts += [
            start for start in range(max(0, end - max_items), end - 1) if lengths[start] * (end - start) <= max_tokens
        ]
        costs.append(min(costs[start] + fixed + lengths[start] * (end - start) for start in starts))
    return costs[-1]


def assert_allowed(lengths, ends, max_items, max_tokens):
    assert ends == sorted(set(ends))
    assert ends[-1] == len(lengths)
    for start, end in pairwise([0, *ends]):
        assert end - start <= max_items
        assert end - start == 1 or lengths[start] * (end - start) <= max_tokens


def sentence_lengths(count, seed):
    generator = random.Random(seed)
    return sorted((max(3, round(generator.lognormvariate(2.5, 0.6))) for _ in range(count)), reverse=True)


def test_nothing_has_no_batches():
    assert split([], fixed=1, max_items=2, max_tokens=3) == []


@pytest.mark.parametrize(
    ("lengths", "limits", "ends"),
    [
        ([5, 5, 5], (0, 8, 100), [3]),  # equal lengths need no padding
        ([9, 3, 3], (3, 8, 100), [1, 3]),  # 3 + 9 and 3 + 6 are less than 3 + 27
        ([9, 3, 3], (13, 8, 100), [3]),  # 13 + 27 are less than 2 x 13 + 15
        ([9, 3, 3], (12, 8, 100), [3]),  # both cost 39: fewer batches
        ([9, 3, 3], (0.5, 8, 100), [1, 3]),
        ([5, 5, 5, 5], (9, 3, 100), [3, 4]),  # or [1, 4], or [2, 4]: tested below
        ([5, 5, 5], (9, 8, 10), [2, 3]),
        ([21, 20, 1], (9, 8, 10), [1, 2, 3]),  # longer than a batch may be
        ([0, 0], (9, 8, 10), [2]),
    ],
)
def test_cheapest_split_by_hand(lengths, limits, ends):
    fixed, max_items, max_tokens = limits
    found = split(lengths, fixed=fixed, max_items=max_items, max_tokens=max_tokens)
    assert_allowed(lengths, found, max_items, max_tokens)
    assert (len(found), cost(lengths, found, fixed)) == (len(ends), cost(lengths, ends, fixed))


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=40).map(lambda chosen: sorted(chosen, reverse=True)),
    fixed=st.sampled_from([0, 1, 3.5, 16, 100, 4000]),
    max_items=st.integers(1, 12) | st.just(1000),
    max_tokens=st.integers(1, 200) | st.just(65536),
)
def test_no_split_costs_less(lengths, fixed, max_items, max_tokens):
    ends = split(lengths, fixed=fixed, max_items=max_items, max_tokens=max_tokens)
    assert_allowed(lengths, ends, max_items, max_tokens)
    assert cost(lengths, ends, fixed) == least_cost(lengths, fixed, max_items, max_tokens)


@pytest.mark.parametrize(("fixed", "max_tokens"), [(16, 1024), (16, 4096), (333.25, 4096), (4000, 65536)])
@pytest.mark.parametrize("max_items", [32, 128, 256])
def test_no_split_of_many_lengths_costs_less(max_items, fixed, max_tokens):
    lengths = sentence_lengths(1024, seed=max_items)
    ends = split(lengths, fixed=fixed, max_items=max_items, max_tokens=max_tokens)
    assert_allowed(lengths, ends, max_items, max_tokens)
    assert cost(lengths, ends, fixed) == pytest.approx(least_cost(lengths, fixed, max_items, max_tokens), rel=1e-12)


def executed_lines(function):
    """Return how many lines of Python a call executes."""
    lines, tracer = 0, sys.gettrace()

    def count(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return count

    sys.settrace(count)
    try:
        function()
    finally:
        sys.settrace(tracer)
    return lines


@pytest.mark.parametrize("fixed", [0, 16, 4000])
@pytest.mark.parametrize("max_items", [1, 32, 256, 2048])
@pytest.mark.parametrize("lengths", [sentence_lengths(2048, seed=1), [7] * 2048, list(range(2048, 0, -1))])
def test_steps_depend_on_the_number_of_lengths_only(lengths, max_items, fixed):
    steps = executed_lines(lambda: split(lengths, fixed=fixed, max_items=max_items, max_tokens=65536))
    assert steps < 30 * len(lengths)


def test_sequences_are_padded_on_the_right():
    batch = padded([(5, 6, 7), (8,)])
    assert batch["tokens"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch["lengths"].tolist() == [3, 1]
