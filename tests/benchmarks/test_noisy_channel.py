"""The lists of the benchmark: probabilities of the channel, and the best sentences among all."""

import itertools
import math
import random

import numpy as np
import pytest

from benchmarks.rescoring import Channel, Lexicon, n_best_list

WORDS = ["a", "s", "at", "as", "ay", "cat", "car", "vat", "dog", "i'm"]


@pytest.fixture(scope="module")
def channel():
    return Channel(0.2)


@pytest.fixture(scope="module")
def lexicon(channel):
    return Lexicon(WORDS, channel)


def test_probabilities_of_typed_letters_sum_to_1(channel):
    sums = np.exp(channel.log_probabilities).sum(axis=1)
    np.testing.assert_allclose(sums, 1.0)
    assert channel.log_probabilities[ord("q"), ord("p")] == -math.inf
    assert math.isclose(channel.log_probabilities[ord("q"), ord("q")], math.log(0.8))


def test_letters_are_typed_with_the_probabilities_of_the_channel(channel):
    typed = channel.typed("s" * 20_000 + "'.", random.Random(1))
    assert typed[-2:] == "'."
    for each in set(typed[:-2]):
        expected = math.exp(channel.log_probabilities[ord("s"), ord(each)])
        assert typed.count(each) / 20_000 == pytest.approx(expected, abs=0.01)


def test_candidates_by_hand(channel, lexicon):
    found = dict(lexicon.candidates("cat"))
    assert found.keys() == {"cat", "car", "vat"}
    assert found["cat"] == pytest.approx(3 * math.log(0.8))
    assert found["vat"] == pytest.approx(2 * math.log(0.8) + channel.log_probabilities[ord("v"), ord("c")])
    assert lexicon.candidates("zzzzz") == [("zzzzz", pytest.approx(5 * math.log(0.8)))]


@pytest.mark.parametrize("seed", range(5))
def test_a_list_has_the_best_of_all_sentences(channel, lexicon, seed):
    sentence = "i'm at 12 (cat) as."
    found = n_best_list(sentence, channel, lexicon, random.Random(seed), 6)
    typed = random.Random(seed)
    words = [lexicon.candidates(channel.typed(word, typed)) for word in ("i'm", "at", "cat", "as")]
    every = {
        f"{one} {two} 12 ({three}) {four}.": sum(values)
        for (one, *a), (two, *b), (three, *c), (four, *d) in itertools.product(*words)
        for values in [(*a, *b, *c, *d)]
    }
    best = sorted(every.values(), reverse=True)[:6]
    assert [each.score for each in found] == pytest.approx(best)
    assert all(every[each.text] == pytest.approx(each.score) for each in found)
