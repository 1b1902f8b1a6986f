"""Tests of the built-in texts."""

import pytest

from service.bench.sentences import ENGLISH, GERMAN


@pytest.mark.parametrize("sentences", [ENGLISH, GERMAN])
def test_they_are_of_1_to_40_words_and_differ(sentences):
    lengths = [len(sentence.split()) for sentence in sentences]
    assert min(lengths) == 1
    assert 25 <= max(lengths) <= 40
    assert len(set(lengths)) > 8
    assert len(set(sentences)) == len(sentences)
    assert all(sentence.isprintable() and sentence == " ".join(sentence.split()) for sentence in sentences)
