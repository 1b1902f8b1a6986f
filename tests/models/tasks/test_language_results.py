"""Queries and results of language models, by hand."""

import math

import pytest

from models.tasks.language_results import NextWord, NextWordsQuery, ScoreQuery, SentenceScore, TokenScore


def score(*log_probabilities):
    return SentenceScore("", tuple(TokenScore("a", value, False) for value in log_probabilities))


@pytest.mark.parametrize(
    ("log_probabilities", "total", "perplexity"),
    [
        ([math.log(0.5), math.log(0.125)], math.log(0.0625), 4.0),
        ([0.0], 0.0, 1.0),
        ([-1.0, -math.inf], -math.inf, math.inf),
        ([-1000.0], -1000.0, math.inf),
    ],
)
def test_perplexity_is_the_inverse_geometric_mean(log_probabilities, total, perplexity):
    assert score(*log_probabilities).log_probability == pytest.approx(total)
    assert score(*log_probabilities).perplexity == pytest.approx(perplexity)


def test_probability_of_a_word():
    assert NextWord("a", math.log(0.25)).probability == pytest.approx(0.25)


def test_a_sentence_has_a_result_item_for_each_word_and_its_end():
    assert ScoreQuery("a b", (5, 6), ("a", "b")).result_items == 3


def test_a_context_has_a_result_item_for_each_word_that_is_asked_for():
    assert NextWordsQuery("a", (0, 5), 7).result_items == 7
