"""Tests of typing errors as benchmarks make them."""

import random

import pytest

from benchmarks.classification_robustness import edited, with_edits


def distance(one: str, other: str) -> int:
    """Return the number of edits between two words (optimal string alignment)."""
    rows = [[max(i, j) if not i or not j else 0 for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            same = rows[i - 1][j - 1] + (one[i - 1] != other[j - 1])
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, same)
            if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


@pytest.mark.parametrize("word", ["", "a", "of", "weather"])
def test_a_word_has_at_most_one_edit(word: str) -> None:
    found = {edited(word, random.Random(seed)) for seed in range(300)}
    assert {distance(word, each) for each in found} <= {0, 1}
    assert len(found) > 20


def test_every_fifth_word_has_an_edit() -> None:
    texts = ["what is the weather like in boston tomorrow"] * 500
    changed = [
        a != b
        for before, after in zip(texts, with_edits(texts), strict=True)
        for a, b in zip(before.split(" "), after.split(" "), strict=True)
    ]
    assert sum(changed) / len(changed) == pytest.approx(0.2, abs=0.02)
    assert with_edits(texts) == with_edits(texts)
