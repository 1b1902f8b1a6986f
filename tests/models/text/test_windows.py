"""Windows of long texts: which tokens they have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import QueryError
from models.text.limits import TextLimit
from models.text.windows import Windowing, tokens_before

LIMIT = TextLimit(10, added_tokens=2)


def bounds(count, windowing):
    return [(some.start, min(count, some.stop)) for some in windowing.slices(count)]


def test_windows_overlap_and_end_with_the_text():
    windowing = Windowing.of(LIMIT, 2)
    assert (windowing.room, windowing.step) == (8, 6)
    assert bounds(0, windowing) == [(0, 0)]
    assert bounds(8, windowing) == [(0, 8)]
    assert bounds(9, windowing) == [(0, 8), (6, 9)]
    assert bounds(14, windowing) == [(0, 8), (6, 14)]
    assert bounds(15, windowing) == [(0, 8), (6, 14), (12, 15)]
    assert bounds(16, Windowing.of(LIMIT, 0)) == [(0, 8), (8, 16)]
    assert Windowing.of(LIMIT, None).step == 7


@given(st.integers(3, 40), st.integers(0, 200), st.data())
def test_every_token_is_read(max_tokens, count, data):
    windowing = Windowing.of(TextLimit(max_tokens, added_tokens=2), data.draw(st.integers(0, max_tokens - 3)))
    windows = [set(range(*each)) for each in bounds(count, windowing)]
    assert set().union(*windows) == set(range(count))
    assert all(len(each) <= windowing.room for each in windows)
    for number, each in enumerate(windows[1:]):
        assert each - windows[number]
        assert len(each & windows[number]) == windowing.room - windowing.step


def test_overlaps_that_are_refused():
    for overlap in (8, -1):
        with pytest.raises(QueryError, match=f"overlap must be from 0 to 7, not {overlap}"):
            Windowing.of(LIMIT, overlap)
    with pytest.raises(QueryError, match="the prompt leaves no room"):
        Windowing.of(TextLimit(10, added_tokens=10), None)


def test_the_number_of_windows_is_bounded():
    windowing = Windowing.of(LIMIT, 2)
    limit = windowing.limit_of(LIMIT, 3)
    assert len(windowing.slices(limit.max_tokens - limit.added_tokens)) == 3
    whole = windowing.limit_of(LIMIT)
    assert 10 * len(windowing.slices(whole.max_tokens - 2)) <= 65_536


def test_tokens_of_a_prompt_end_before_the_text():
    assert tokens_before([(0, 3), (4, 6), (6, 9)], 6) == 2
    assert tokens_before([(0, 3), (3, 8), (8, 9)], 6) == 1  # the second one spans both
    assert tokens_before([], 6) == 0
