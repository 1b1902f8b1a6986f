"""Tests of entities and their F1, against what seqeval 1.2.2 returns."""

import pytest

from training.tasks.token_classification.quality import entities, measured_tags


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-PER I-PER O B-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
        ("B-PER B-PER I-PER", [("PER", 0, 0), ("PER", 1, 2)]),
        ("I-PER I-PER O I-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 0), ("LOC", 1, 2)]),
        ("O O", []),
        ("S-PER S-PER B-LOC I-LOC E-LOC", [("PER", 0, 0), ("PER", 1, 1), ("LOC", 2, 4)]),
        ("B-LOC E-LOC I-LOC", [("LOC", 0, 1), ("LOC", 2, 2)]),
        ("B-PART-OF I-PART-OF", [("PART-OF", 0, 1)]),
        ("B I O", [("_", 0, 1)]),
        ("", []),
    ],
)
def test_entities_of_tags(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert entities(tags.split()) == expected


def test_metrics_count_whole_entities() -> None:
    # The example of seqeval's documentation: F1 0.50, accuracy 0.80.
    truth = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    predicted = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    found = measured_tags(truth, predicted)
    assert found.named() == {"F1": 0.5, "precision": 0.5, "recall": 0.5, "token accuracy": 0.8}
    assert (found.types["PER"].f1, found.types["MISC"].f1) == (1, 0)
    assert found.statistics.tolist() == [[0, 1, 1], [1, 0, 0]]
    assert found.examples().value == pytest.approx(0.5)
    assert found.lines()[-1] == "PER: F1 1.0000, precision 1.0000, recall 1.0000 of 1"


def test_precision_and_recall_differ() -> None:
    found = measured_tags([["B-A", "O", "B-A", "B-B"]], [["B-A", "O", "O", "O"]])
    assert (found.whole.precision, found.whole.recall, found.whole.f1) == (1, pytest.approx(1 / 3), pytest.approx(0.5))


def test_without_an_entity_the_metrics_are_0() -> None:
    assert measured_tags([["O"]], [["O"]]).named() == {"F1": 0, "precision": 0, "recall": 0, "token accuracy": 1}


def test_sentences_of_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        measured_tags([["O", "O"]], [["O"]])
