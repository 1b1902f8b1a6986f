"""How texts that begin alike are read together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.shared_prefixes import windows

END = 1
WORDS = st.lists(st.integers(2, 4), max_size=12)
SEQUENCES = st.lists(WORDS, min_size=1, max_size=12).map(
    lambda texts: [(END, *words, END) for words in sorted(texts, key=len, reverse=True)]
)


def reading(sequences, steps):
    """The rows of each sequence; every row goes on from one that has read the same as the sequence."""
    read, before = [[] for _ in sequences], [()]
    for window in windows(sequences, [0] * len(sequences), steps):
        pairs = zip(window.parents, window.rows, strict=True)
        before = [(*before[parent], *row[:-1]) for parent, row in pairs]
        for index, row in window.places.items():
            assert sequences[index][: len(before[row])] == before[row]
            read[index].append(window.rows[row])
    return read


def shapes(sequences, steps=32):
    return [(len(window.rows), len(window.rows[0]) - 1) for window in windows(sequences, [0] * len(sequences), steps)]


def positions(sequences, steps=32):
    return sum(len(row) - 1 for window in windows(sequences, [0] * len(sequences), steps) for row in window.rows)


def test_the_same_text_is_read_once():
    assert shapes([(END, 2, 3, END)] * 50) == [(1, 3)]


def test_texts_that_part_late_are_cut_there():
    """The sentence end and 15 words are shared; the 15th has 50 words after it, so it is read for each."""
    same = (END, *range(100, 115))
    hypotheses = [(*same, number, 7, 8, 9, 10, END) for number in range(200, 250)]
    assert shapes(hypotheses) == [(1, 15), (50, 6)]
    assert positions(hypotheses) == 315


def test_two_lists_are_read_beside_each_other():
    lists = [
        (END, *range(first, first + 15), number, END)
        for first in (100, 300)
        for number in range(first + 20, first + 40)
    ]
    assert shapes(lists) == [(2, 15), (40, 2)]


@pytest.mark.parametrize("shared", [0, 1, 2])
def test_few_texts_are_not_cut_for_a_few_words(shared):
    same = (END, *range(100, 100 + shared))
    assert shapes([(*same, number, 7, 8, 9, END) for number in range(200, 205)]) == [(5, 5 + shared)]


def test_long_texts_are_read_in_windows_and_shorter_ones_leave():
    texts = [(END, first, *[2] * words, END) for first, words in ((10, 68), (11, 40), (12, 3))]
    assert shapes(texts) == [(3, 32), (2, 32), (1, 6)]
    assert positions(texts) == sum(len(text) - 1 for text in texts)


@given(SEQUENCES, st.integers(1, 5))
def test_all_is_read_once_and_in_order(sequences, steps):
    for sequence, rows in zip(sequences, reading(sequences, steps), strict=True):
        assert tuple(token for row in rows for token in row[:-1]) == sequence[:-1]
        assert tuple(token for row in rows for token in row[1:]) == sequence[1:]
        assert all(1 <= len(row) - 1 <= steps for row in rows)
    for window in windows(sequences, [0] * len(sequences), steps):
        lengths = [len(row) for row in window.rows]
        assert lengths == sorted(lengths, reverse=True)
        assert len(set(zip(window.parents, window.rows, strict=True))) == len(window.rows)
        assert set(window.places.values()) == set(range(len(window.rows)))
    assert positions(sequences, steps) <= sum(len(sequence) - 1 for sequence in sequences)


@given(SEQUENCES)
def test_cutting_never_costs_more_than_it_saves(sequences):
    """A run counts as eight positions; without cuts there is one, of the distinct texts."""
    plain = sum(len(sequence) - 1 for sequence in set(sequences)) + 8
    assert positions(sequences) + 8 * len(shapes(sequences)) <= plain
