"""Tests of the texts that servers get: their lengths are as documented."""

from collections import Counter

from benchmarks.peers.texts import LONG, SHORT, make_texts
from models import ModelStore
from service.settings import BUNDLED


def words(texts):
    return [len(text.split()) for text in texts]


def test_two_in_a_hundred_are_long():
    lengths = words(make_texts(500))
    long = [length for length in lengths if LONG[0] <= length <= LONG[1]]
    short = [length for length in lengths if SHORT[0] <= length <= SHORT[1]]
    assert (len(long), len(short)) == (10, 490)


def test_short_ones_have_all_lengths_and_most_often_about_nine_words():
    counts = Counter(length for length in words(make_texts(5000)) if length <= SHORT[1])
    assert set(counts) == set(range(SHORT[0], SHORT[1] + 1))
    assert 7 <= counts.most_common(1)[0][0] <= 11


def test_they_are_the_same_every_time():
    assert make_texts(50) == make_texts(50)
    assert make_texts(50, seed=1) != make_texts(50)


def test_the_bundled_classifier_takes_all_of_them():
    results = ModelStore(BUNDLED).load("intents", threads=1).classify(make_texts())
    assert len({result.labels[0].label for result in results}) > 20
