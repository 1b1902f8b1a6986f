"""Near copies: a word or a number is another one, in other classes, and not the same text."""

import random

import pytest

from training.data import near_copies as module
from training.data.near_copies import NearCopy, near_copies

GENERATOR = random.Random(1)
WORDS = ["".join(GENERATOR.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(1000)]
TEXTS = [" ".join(GENERATOR.choices(WORDS, k=GENERATOR.randint(8, 25))) for _ in range(300)]


def test_a_text_with_another_word_is_a_near_copy():
    others = ["how do i change the address of my second account in the app", *TEXTS]
    text = "how can i change the address of my second account in the app"
    assert near_copies([text, "something else altogether"], others) == [NearCopy(0, 0)]


def test_the_same_text_is_none():
    assert near_copies(TEXTS, TEXTS) == []
    assert near_copies([], TEXTS) == near_copies(TEXTS, []) == near_copies(["", "a"], ["", "b"]) == []


def test_groups_are_compared_with_each_other():
    one, other = f"{TEXTS[0]} 17", f"{TEXTS[0]} 18"
    texts = [one, other, *TEXTS[1:]]
    labels = ["a", "b", *["c"] * (len(texts) - 2)]
    assert near_copies(texts, texts, labels, labels) == [NearCopy(0, 1), NearCopy(1, 0)]
    assert near_copies(texts, texts, ["a"] * len(texts), ["a"] * len(texts)) == []


def test_the_most_similar_text_is_found():
    text = " ".join(TEXTS[:3])
    others = [f"{text} tosker", f"{text} brudan brudan tosker vinlop karsim", *TEXTS]
    assert near_copies([f"{text} toskes"], others) == [NearCopy(0, 0)]


@pytest.mark.parametrize("block", [7, 500])
def test_comparing_rare_n_grams_alone_misses_no_pair(monkeypatch, block):
    """All pairs above the similarity are those of the whole product of the vectors."""
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_CANDIDATES", 10**6)
    changed = [" ".join(GENERATOR.choice(WORDS) if n == 5 else word for n, word in enumerate(t.split())) for t in TEXTS]
    vectors, _ = module._vectors([*changed, *TEXTS])
    similar = (vectors[: len(changed)] @ vectors[len(changed) :].T).toarray()
    expected = {
        place
        for place, row in enumerate(similar)
        if any(row[n] >= 0.9 and changed[place] != TEXTS[n] for n in range(len(TEXTS)))
    }
    assert 20 < len(expected) < 300
    assert {each.place for each in near_copies(changed, TEXTS)} == expected
