import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.decoding.word_errors import ListErrors, WordErrors, edit_distance, list_errors


@pytest.mark.parametrize(
    ("reference", "hypothesis", "distance"),
    [
        ("", "", 0),
        ("", "a b", 2),
        ("a b c", "", 3),
        ("see you tomorrow", "sea you tomorrow", 1),
        ("see you tomorrow", "see you to borrow", 2),
        ("a b c d", "b c d e", 2),
        ("a a a", "a", 2),
    ],
)
def test_distances_by_hand(reference, hypothesis, distance):
    assert edit_distance(reference.split(), hypothesis.split()) == distance


def table_distance(one, other):
    """Wagner and Fischer 1974, row by row."""
    row = list(range(len(other) + 1))
    for number, a in enumerate(one, 1):
        above, row = row, [number]
        for place, b in enumerate(other, 1):
            row.append(min(above[place] + 1, row[-1] + 1, above[place - 1] + (a != b)))
    return row[-1]


words = st.lists(st.sampled_from("abcd"), max_size=12) | st.lists(st.sampled_from("ab"), min_size=60, max_size=140)


@given(words, words)
def test_distances_of_the_whole_table(one, other):
    assert edit_distance(one, other) == table_distance(one, other)


def test_rates():
    assert WordErrors(3, 12).rate == 0.25
    assert math.isnan(WordErrors().rate)


def test_errors_of_a_list():
    texts = ["sea you tomorrow", "see you to borrow", "see you tomorrow"]
    found = list_errors("see you  tomorrow", texts, first=0, best=1)
    assert found == ListErrors(WordErrors(1, 3), WordErrors(2, 3), WordErrors(0, 3))
    assert found + found == ListErrors(WordErrors(2, 6), WordErrors(4, 6), WordErrors(0, 6))
