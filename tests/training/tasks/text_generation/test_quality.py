"""Tests of ROUGE and BLEU as they are reported."""

import math

import pytest
from rouge_score.rouge_scorer import RougeScorer

from training.tasks.text_generation.quality import measured


def test_equal_texts_are_perfect_whatever_case_and_spaces() -> None:
    found = measured(["the dog's tail , 3 - 4"], [["The dog 's tail, 3-4"]]).metrics
    assert found == pytest.approx(dict.fromkeys(found, 100.0))
    assert list(found) == ["ROUGE-L", "ROUGE-1", "ROUGE-2", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]


def test_values_by_hand() -> None:
    # Words a b c d e against a b x c d: longest common subsequence a b c d, bigrams ab and cd of 4 on each side.
    found = measured(["a b c d e"], [["a b x c d"]]).metrics
    assert found["ROUGE-L"] == pytest.approx(100 * 4 / 5)
    assert found["ROUGE-1"] == pytest.approx(100 * 4 / 5)
    assert found["ROUGE-2"] == pytest.approx(100 * 2 / 4)
    assert found["BLEU-1"] == pytest.approx(100 * 4 / 5)
    assert found["BLEU-2"] == pytest.approx(100 * math.sqrt(4 / 5 * 2 / 4))
    assert found["BLEU-3"] == 0.0  # unsmoothed


def test_short_outputs_pay_in_bleu() -> None:
    found = measured(["a b"], [["a b c d"]]).metrics
    assert found["BLEU-1"] == pytest.approx(100 * math.exp(1 - 4 / 2))


def test_the_best_reference_counts_and_texts_may_have_different_numbers() -> None:
    found = measured(["a b c d", "e f g h"], [["x", "a b c d", "y"], ["e f g h"]]).metrics
    assert found == pytest.approx(dict.fromkeys(found, 100.0))


def test_an_empty_output_is_worth_nothing() -> None:
    assert set(measured([""], [["a b"]]).metrics.values()) == {0.0}


@pytest.mark.parametrize(
    ("output", "reference"),
    [
        ("кошка спит на диване.", "Кошка спит на диване."),
        ("die große katze ist uber funf jahre alt", "Die große Katze ist über fünf Jahre alt"),
        ("猫睡在沙发上", "猫 睡在沙发上"),
    ],
)
def test_other_scripts_and_accents_count(output: str, reference: str) -> None:
    found = measured([output], [[reference]]).metrics
    assert found == pytest.approx(dict.fromkeys(found, 100.0))
    assert measured([output.replace(output[:3], "x")], [[reference]]).metrics["ROUGE-L"] < 100


def test_in_english_rouge_is_that_of_rouge_score() -> None:
    outputs = ["The cats' owners weren't running to 3.5 houses!", "a state-of-the-art method"]
    references = ["The cat's owner was not running: a house, 3.5 houses", "the state of an art"]
    scorer = RougeScorer(["rougeL", "rouge1", "rouge2"], use_stemmer=True)
    scores = [scorer.score(right, output) for output, right in zip(outputs, references, strict=True)]
    found = measured(outputs, [[right] for right in references]).metrics
    for name, key in (("ROUGE-L", "rougeL"), ("ROUGE-1", "rouge1"), ("ROUGE-2", "rouge2")):
        assert found[name] == pytest.approx(50 * sum(each[key].fmeasure for each in scores))


def test_many_texts_that_end_in_a_full_stop_are_no_matter_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    measured(["a b."] * 200, [["a b."]] * 200)
    assert not caplog.records


def test_no_output_is_an_error() -> None:
    with pytest.raises(ValueError, match="outputs: there is none"):
        measured([], [])
