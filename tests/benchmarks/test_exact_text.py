"""The parts of an exact text that a model of whole words leaves open have probabilities that sum to 1."""

import pytest

from benchmarks import exact_text
from benchmarks.exact_text import Word, case_of


def word(spelling, *, unknown=False, first=False, space=True):
    return Word(spelling, unknown, first, space)


TRAINING = [word("The", first=True), word("cat"), word("sat"), word("."), word("Cat", first=True), word("NASA")]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("spellings", [("cat", "Cat", "CAT", "cAt"), ("dog", "Dog", "DOG", "dOg")])
def test_cases(spellings, first):
    bits = exact_text._case_bits([*TRAINING, word("iPod")])
    found = [bits(word(each, first=first)) for each in spellings]
    found[-1] -= len(spellings[-1])  # a bit for the case of each letter
    assert sum(2**-each for each in found) == pytest.approx(1)


def test_spaces():
    bits = exact_text._space_bits([*TRAINING, word(",", space=False), word(",", space=False)])
    assert sum(2 ** -bits(word(",", space=space)) for space in (True, False)) == pytest.approx(1)
    assert bits(word(",", space=False)) < bits(word(",", space=True))


def test_only_unknown_words_are_spelled():
    bits = exact_text._spelling_bits([word("zebra", unknown=True), word("zinc", unknown=True)])
    assert bits(word("cat")) == 0
    assert 0 < bits(word("zebra", unknown=True)) < bits(word("xylophone", unknown=True))


def test_kinds_of_cases():
    assert [case_of(each) for each in ("a", "I", "Cat", "CAT", "iPod", "42")] == [
        *("lower", "capitalized", "capitalized", "upper", "mixed", "lower")
    ]
