"""Tests of ROUGE and BLEU as they are reported."""

import math

import pytest

from training.tasks.generation_quality import measured


def test_equal_texts_are_perfect_whatever_case_and_spaces() -> None:
    found = measured(["the dog's tail , 3 - 4"], [["The dog 's tail, 3-4"]])
    assert found == pytest.approx(dict.fromkeys(found, 100.0))
    assert list(found) == ["ROUGE-L", "ROUGE-1", "ROUGE-2", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]


def test_values_by_hand() -> None:
    # Words a b c d e against a b x c d: longest common subsequence a b c d, bigrams ab and cd of 4 on each side.
    found = measured(["a b c d e"], [["a b x c d"]])
    assert found["ROUGE-L"] == pytest.approx(100 * 4 / 5)
    assert found["ROUGE-1"] == pytest.approx(100 * 4 / 5)
    assert found["ROUGE-2"] == pytest.approx(100 * 2 / 4)
    assert found["BLEU-1"] == pytest.approx(100 * 4 / 5)
    assert found["BLEU-2"] == pytest.approx(100 * math.sqrt(4 / 5 * 2 / 4))
    assert found["BLEU-3"] == 0.0  # unsmoothed


def test_short_outputs_pay_in_bleu() -> None:
    found = measured(["a b"], [["a b c d"]])
    assert found["BLEU-1"] == pytest.approx(100 * math.exp(1 - 4 / 2))


def test_the_best_reference_counts_and_texts_may_have_different_numbers() -> None:
    found = measured(["a b c d", "e f g h"], [["x", "a b c d", "y"], ["e f g h"]])
    assert found == pytest.approx(dict.fromkeys(found, 100.0))


def test_an_empty_output_is_worth_nothing() -> None:
    assert set(measured([""], [["a b"]]).values()) == {0.0}


def test_no_output_is_an_error() -> None:
    with pytest.raises(ValueError, match="outputs: there is none"):
        measured([], [])
