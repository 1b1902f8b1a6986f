"""Modified Kneser-Ney smoothing: a case by hand, and the properties of a distribution."""

import itertools
import math
import random

import pytest

from training.tasks.language_model.kneser_ney import KneserNey


def _texts(count: int, words: int) -> list[list[int]]:
    """Return texts in which a word often follows its predecessor; the last word of each is 0."""
    draw = random.Random(0)
    texts = []
    for _ in range(count):
        text = [draw.randrange(1, words)]
        while draw.random() < 0.8:
            text.append(1 + text[-1] % (words - 1) if draw.random() < 0.6 else draw.randrange(1, words))
        texts.append([*text, 0])
    return texts


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_sum_to_one(order: int) -> None:
    model = KneserNey(_texts(200, 12), 14, order)
    contexts = [[1, 2, 3, 4], [11, 1, 1, 1], [13, 13, 13, 13], [-1, -1, -1, -1]]
    for context in contexts:
        last = context[len(context) - order + 1 :] if order > 1 else []
        assert math.fsum(model.probability([*last, word]) for word in range(14)) == pytest.approx(1)
    assert model.probability([13]) > 0, "a word that was never seen"


def test_unigrams_by_hand() -> None:
    """Counts 4, 3, 2, 2, 1, 1: Y = 2 / (2 + 2 * 2) = 1/3, D1 = 1 - 2/3, D2 = 2 - 1/2, D3+ = 3 - 4/3."""
    words = [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 5]
    model = KneserNey([words], 6, 1)
    left = 2 * 1 / 3 + 2 * 1.5 + 2 * 5 / 3
    assert model.probability([4]) == pytest.approx((1 - 1 / 3 + left / 6) / 13)
    assert model.probability([2]) == pytest.approx((2 - 1.5 + left / 6) / 13)
    assert model.probability([0]) == pytest.approx((4 - 5 / 3 + left / 6) / 13)


def test_longer_contexts_help_where_words_follow_each_other() -> None:
    texts = _texts(2000, 30)
    perplexities = []
    for order in (1, 2, 5):
        model = KneserNey(texts[:1500], 30, order)
        found = list(itertools.chain.from_iterable(map(model.log_probabilities, texts[1500:])))
        perplexities.append(math.exp(-sum(found) / len(found)))
    unigram, bigram, longest = perplexities
    assert bigram < 0.5 * unigram
    assert longest < 1.15 * bigram, "words depend on their predecessor alone"


def test_few_words_are_smoothed_too() -> None:
    model = KneserNey([[1, 0]], 3, 5)
    assert math.fsum(model.probability([1, word]) for word in range(3)) == pytest.approx(1)
