"""Tests of entities from probabilities of tokens, by hand; tests/training/importing has them against transformers."""

import numpy as np
import pytest

from models.tasks.token_aggregation import Entity, aggregated, continuations, merged

LABELS = ("O", "B-PER", "I-PER", "B-LOC")
TEXT = "Ann Marie lives"
SPANS = ((0, 3), (4, 7), (7, 9), (10, 15))
CONTINUES = (False, False, True, False)
PROBABILITIES = np.array(
    [[0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.6, 0.2], [0.1, 0.0, 0.1, 0.8], [0.9, 0.1, 0.0, 0.0]], np.float32
)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("none", [("B-PER", 0, 3, 0.7), ("I-PER", 4, 7, 0.6), ("B-LOC", 7, 9, 0.8), ("O", 10, 15, 0.9)]),
        ("simple", [("PER", 0, 7, 0.65), ("LOC", 7, 9, 0.8), ("O", 10, 15, 0.9)]),
        ("first", [("PER", 0, 9, 0.65), ("O", 10, 15, 0.9)]),
        ("average", [("PER", 0, 3, 0.7), ("LOC", 4, 9, 0.5), ("O", 10, 15, 0.9)]),
        ("max", [("PER", 0, 3, 0.7), ("LOC", 4, 9, 0.8), ("O", 10, 15, 0.9)]),
    ],
)
def test_aggregations(aggregation, expected):
    found = aggregated(TEXT, SPANS, CONTINUES, PROBABILITIES, LABELS, aggregation)
    assert [(each.label, each.start, each.end, pytest.approx(each.score)) for each in found] == expected
    assert [each.text for each in found] == [TEXT[start:end] for _, start, end, _ in expected]


def test_an_entity_begins_with_b():
    probabilities = np.eye(4, dtype=np.float32)[[1, 1, 2, 0]]
    found = aggregated(TEXT, SPANS, CONTINUES, probabilities, LABELS, "simple")
    assert [each.text for each in found] == ["Ann", "Marie", "lives"]


def test_a_text_without_tokens_has_no_entities():
    assert aggregated("", (), (), np.zeros((0, 4), np.float32), LABELS, "max") == []


def test_words_by_the_spelling_of_tokens():
    assert continuations(TEXT, SPANS, ["ann", "mar", "##ie", "lives"], [False] * 4) == CONTINUES
    assert continuations(TEXT, SPANS, ["ann", "mar", "##ie", "[UNK]"], [False, False, False, True]) == CONTINUES


def test_words_by_spaces():
    spans = ((0, 2), (2, 3), (3, 7), (7, 9), (10, 15))  # one begins at a space
    assert continuations(TEXT, spans, None, [False] * 5) == (False, True, False, True, False)
    assert continuations(TEXT, spans, None, [False, True, False, True, False]) == (False,) * 5


def entity(label, start, end, score):
    return Entity(label, start, end, "x" * (end - start), score)


def test_windows_keep_the_longer_or_else_the_more_probable_entity():
    short, long, same = entity("A", 4, 6, 0.9), entity("B", 4, 9, 0.5), entity("C", 4, 9, 0.6)
    first, last = entity("A", 0, 2, 0.1), entity("A", 9, 11, 0.1)
    assert merged([[first, short], [long, last]]) == [first, long, last]
    assert merged([[first, long], [same, last]]) == [first, same, last]
    assert merged([[long], [short]]) == [long]
    assert merged([[], []]) == []
    assert merged([]) == []
    assert merged([[short, long]]) == [short, long], "in one window, entities are as they are"
