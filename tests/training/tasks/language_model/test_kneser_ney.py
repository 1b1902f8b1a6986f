"""Tests of the Kneser-Ney baseline: hand-computed cases, an independent reference, and its invariants.

Shapes legend: V words in the vocabulary (end included); corpora are lists of lists of word ids.
"""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.tasks.language_model.kneser_ney import KneserNey

V, END = 5, 4  # words 0..3 and the end, in the generated corpora
WORDS = st.lists(st.integers(0, V - 2), max_size=6)
CORPORA = st.lists(WORDS, min_size=1, max_size=12)
BEGIN = -1  # the reference's own begin symbol


# ---- hand-computed ----------------------------------------------------------------------------------------


def test_bigram_by_hand() -> None:
    """Vocabulary a = 0, b = 1, end = 2; sentences "a b" and "a"; every order falls back to D = 0.5, 1, 1.5.

    Order 1 counts left neighbours: a {begin} 1, b {a} 1, end {b, a} 2, together 4. gamma = (.5 + .5 + 1) / 4.
        p(a) = p(b) = .5/4 + .5/3 = 7/24        p(end) = 1/4 + .5/3 = 10/24
    Order 2 raw counts: begin a 2, a b 1, a end 1, b end 1.
        after begin, total 2, gamma 1/2: p(a) = (2 - 1)/2 + 7/48 = 31/48, p(b) = 7/48, p(end) = 10/48
        after a, total 2, gamma 1/2:     p(a) = 7/48, p(b) = .5/2 + 7/48 = 19/48, p(end) = 22/48
        after b, total 1, gamma 1/2:     p(a) = p(b) = 7/48, p(end) = .5/1 + 10/48 = 34/48
    """
    model = KneserNey([[0, 1], [0]], vocab_size=3, end_id=2, order=2)
    np.testing.assert_allclose(model.distribution([]) * 48, [31, 7, 10], rtol=1e-12)
    np.testing.assert_allclose(model.distribution([0]) * 48, [7, 19, 22], rtol=1e-12)
    np.testing.assert_allclose(model.distribution([0, 1]) * 48, [7, 7, 34], rtol=1e-12)
    np.testing.assert_allclose(np.exp(model.log_probs([0, 1])) * 48, [31, 19, 34], rtol=1e-12)
    expected = ((31 * 19 * 34 / 48**3) * (31 * 22 / 48**2)) ** (-1 / 5)
    assert model.perplexity([[0, 1], [0]]) == pytest.approx(expected, rel=1e-12)


def test_sentence_starts_keep_raw_counts_at_lower_orders() -> None:
    """Four sentences "a" (a = 0, end = 1), order 3, fallback discounts.

    Order 1: a {begin} 1, end {a} 1: p = .5/2 + (1/2)/2 = 1/2 each.
    Order 2: "begin a" has no left neighbour: raw count 4 (D3+ = 1.5); "a end" has one, begin: count 1.
        p(a | begin) = 2.5/4 + (1.5/4)/2 = .8125      p(end | a) = .5/1 + .5/2 = .75
    Order 3, highest, raw: "begin a end" 4.
        p(end | begin a) = 2.5/4 + (1.5/4) * .75 = .90625
    """
    model = KneserNey([[0]] * 4, vocab_size=2, end_id=1, order=3)
    np.testing.assert_allclose(np.exp(model.log_probs([0])), [0.8125, 0.90625], rtol=1e-12)


def test_discounts_come_from_counts_of_counts() -> None:
    """Order 1 only: eight words once, four twice, two three times, the end four times (four sentences).

    n1..n4 = 8, 4, 2, 1; Y = 8 / (8 + 2 * 4) = 1/2.
        D1 = 1 - 2 Y n2/n1 = 1/2      D2 = 2 - 3 Y n3/n2 = 5/4      D3+ = 3 - 4 Y n4/n3 = 2
    Tokens 8 + 8 + 6 + 4 = 26; gamma = (8/2 + 4 * 5/4 + 2 * 2 + 2) / 26 = 15/26; V = 16.
    """
    once, twice, thrice = list(range(8)), list(range(8, 12)) * 2, [12, 13] * 3
    model = KneserNey([once, twice, thrice, []], vocab_size=16, end_id=15, order=1)
    np.testing.assert_allclose(model.discounts, [[0, 0.5, 1.25, 2]], rtol=1e-12)
    expected = [0.5] * 8 + [0.75] * 4 + [1.0] * 2 + [0.0] + [2.0]
    np.testing.assert_allclose(model.distribution([]), (np.array(expected) + 15 / 16) / 26, rtol=1e-12)


def test_degenerate_counts_of_counts_fall_back() -> None:
    model = KneserNey([[0]], vocab_size=2, end_id=1, order=2)
    np.testing.assert_array_equal(model.discounts, [[0, 0.5, 1, 1.5]] * 2)


def test_discount_above_its_count_falls_back() -> None:
    """n1..n4 = 3, 1, 1, 3 (the end four times): Y = 3/5, D3+ = 3 - 4 Y * 3/1 < 0, so all three fall back."""
    model = KneserNey([[0, 1, 2, 3, 3], [4, 4, 4], [5, 6] * 4, []], vocab_size=8, end_id=7, order=1)
    np.testing.assert_array_equal(model.discounts, [[0, 0.5, 1, 1.5]])


# ---- an independent reference -----------------------------------------------------------------------------


def _reference_discounts(counts: Counter[tuple[int, ...]]) -> list[Fraction]:
    n = [Fraction(sum(count == k for count in counts.values())) for k in range(5)]
    fallback = [Fraction(k, 2) for k in range(4)]
    if not all(n[1:]):
        return fallback
    y = n[1] / (n[1] + 2 * n[2])
    found = [Fraction(0)] + [k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3)]
    return found if all(0 < found[k] <= k for k in (1, 2, 3)) else fallback


def _reference_counts(corpus: list[list[int]], n: int, order: int) -> Counter[tuple[int, ...]]:
    """Adjusted counts of all n-grams of one order, by definition: sets of left neighbours, begin kept raw."""
    raw: Counter[tuple[int, ...]] = Counter()
    left: dict[tuple[int, ...], set[int]] = {}
    for sentence in corpus:
        padded = [BEGIN, *sentence, END]
        for start in range(0 if n > 1 else 1, len(padded) - n + 1):
            gram = tuple(padded[start : start + n])
            raw[gram] += 1
            if start:
                left.setdefault(gram, set()).add(padded[start - 1])
    if n == order:
        return raw
    return Counter({gram: len(left[gram]) if gram[0] != BEGIN else raw[gram] for gram in raw})


def _reference(corpus: list[list[int]], order: int, context: list[int]) -> list[Fraction]:
    """Distribution [V] after `context` in exact arithmetic, one order at a time."""
    history = [BEGIN, *context]
    result = [Fraction(1, V)] * V
    for n in range(1, order + 1):
        counts = _reference_counts(corpus, n, order)
        discounts = _reference_discounts(counts)
        tail = tuple(history[len(history) - n + 1 :])
        after = {gram[-1]: count for gram, count in counts.items() if gram[:-1] == tail}
        if len(tail) < n - 1 or not after:
            break
        total, spread = sum(after.values()), sum(discounts[min(c, 3)] for c in after.values())
        for word in range(V):
            count = after.get(word, 0)
            result[word] = (count - discounts[min(count, 3)] + spread * result[word]) / total
    return result


@given(CORPORA, WORDS, st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_matches_the_exact_reference(corpus: list[list[int]], context: list[int], order: int) -> None:
    model = KneserNey(corpus, vocab_size=V, end_id=END, order=order)
    expected = [float(p) for p in _reference(corpus, order, context)]
    np.testing.assert_allclose(model.distribution(context), expected, rtol=1e-10, atol=1e-15)


def test_reference_is_reached_with_estimated_discounts() -> None:
    """The generated corpora mostly fall back; a larger skewed one has proper discounts at several orders."""
    rng = np.random.default_rng(0)
    weights = np.array([0.6, 0.25, 0.1, 0.05])
    corpus = [rng.choice(V - 1, size=rng.integers(0, 7), p=weights).tolist() for _ in range(60)]
    model = KneserNey(corpus, vocab_size=V, end_id=END, order=4)
    assert [tuple(d) != (0, 0.5, 1, 1.5) for d in model.discounts].count(True) >= 2
    for context in ([], [0], [0, 0, 1], [3, 3, 3, 3], [2, 0, 1, 0, 0]):
        expected = [float(p) for p in _reference(corpus, 4, context)]
        np.testing.assert_allclose(model.distribution(context), expected, rtol=1e-10)


# ---- invariants -------------------------------------------------------------------------------------------


@given(CORPORA, WORDS, st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_distributions_sum_to_one(corpus: list[list[int]], unseen: list[int], order: int) -> None:
    """After contexts from training and after arbitrary ones; every word keeps some mass."""
    model = KneserNey(corpus, vocab_size=V, end_id=END, order=order)
    for context in [unseen, *(sentence[:k] for sentence in corpus for k in range(len(sentence) + 1))]:
        distribution = model.distribution(context)
        assert distribution.shape == (V,)
        assert abs(distribution.sum() - 1) < 1e-12
        assert (distribution > 0).all()


@given(CORPORA, WORDS, st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_log_probs_agree_with_distribution(corpus: list[list[int]], sentence: list[int], order: int) -> None:
    model = KneserNey(corpus, vocab_size=V, end_id=END, order=order)
    expected = [model.distribution(sentence[:i])[w] for i, w in enumerate([*sentence, END])]
    log_probs = model.log_probs(sentence)
    assert log_probs.shape == (len(sentence) + 1,)
    np.testing.assert_allclose(np.exp(log_probs), expected, rtol=1e-12)


def test_perplexity_pools_all_tokens_and_keeps_sentences_apart() -> None:
    corpus = [[0, 1, 2], [], [3], [0, 1, 2, 3, 0, 1]]
    model = KneserNey(corpus, vocab_size=V, end_id=END, order=3)
    held_out = [[0, 1], [], [2, 3, 0, 1, 2]]
    pooled = np.concatenate([model.log_probs(sentence) for sentence in held_out])
    assert model.perplexity(held_out) == pytest.approx(math.exp(-pooled.mean()), rel=1e-12)


def test_higher_orders_beat_the_unigram_on_a_toy_grammar() -> None:
    """Subject-verb agreement across one word in between: each order up to three has more to say."""

    def sentence(rng: np.random.Generator) -> list[int]:
        number = int(rng.integers(2))
        return [number, 2 + int(rng.integers(3)), 5 + number, 7 + int(rng.integers(2))]

    rng = np.random.default_rng(1)
    train, test = ([sentence(rng) for _ in range(size)] for size in (400, 100))
    unigram, bigram, trigram = (
        KneserNey(train, vocab_size=10, end_id=9, order=order).perplexity(test) for order in (1, 2, 3)
    )
    assert trigram < bigram < unigram
    assert trigram == pytest.approx((2 * 3 * 1 * 2 * 1) ** (1 / 5), rel=0.1)  # the grammar's own perplexity


def test_sentences_may_be_any_iterable_and_arrays() -> None:
    corpus = [[0, 1], [2], []]
    lists = KneserNey(corpus, vocab_size=V, end_id=END)
    arrays = KneserNey(
        (np.array(sentence, dtype=np.int32) for sentence in corpus),  # type: ignore[misc]
        vocab_size=V,
        end_id=END,
    )
    np.testing.assert_array_equal(lists.log_probs([0, 1, 3]), arrays.log_probs([0, 1, 3]))


# ---- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("order", {"order": 0}),
        ("vocab_size", {"vocab_size": 0}),
        ("end_id", {"end_id": V}),
        ("end_id", {"end_id": -1}),
        ("sentences", {"sentences": []}),
        ("sentences", {"sentences": [[0], [V]]}),
        ("sentences", {"sentences": [[-1]]}),
        ("sentences", {"sentences": [[0, END]]}),
        ("sentences", {"sentences": [[0.5]]}),
    ],
)
def test_bad_arguments_are_named(name: str, arguments: dict[str, object]) -> None:
    valid = {"sentences": [[0]], "vocab_size": V, "end_id": END}
    with pytest.raises(ValueError, match=f"^{name} must"):
        KneserNey(**(valid | arguments))  # type: ignore[arg-type]


def test_bad_queries_are_named() -> None:
    model = KneserNey([[0]], vocab_size=V, end_id=END)
    with pytest.raises(ValueError, match=r"^sentence must"):
        model.log_probs([V])
    with pytest.raises(ValueError, match=r"^context must"):
        model.distribution([END])
    with pytest.raises(ValueError, match=r"^sentences must"):
        model.perplexity([])
