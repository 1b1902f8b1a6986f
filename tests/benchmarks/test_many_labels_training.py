"""Tests of the data and the measurement of trainings with very many labels."""

from collections import Counter
from pathlib import Path

from benchmarks.many_labels_training import labelled_texts, measure


def test_each_label_has_as_many_texts_and_words_of_its_own() -> None:
    lines = [line.split("\t") for line in labelled_texts(10_000, 20_000)]
    assert set(Counter(label for label, _ in lines).values()) == {2}
    own = {label: tuple(text.split()[4:7]) for label, text in lines}
    assert len(set(own.values())) == len(own) == 10_000


def test_the_memory_is_that_of_the_training(tmp_path: Path) -> None:
    cells = measure(5, 100, 8, tmp_path).strip("| ").split(" | ")
    assert cells[:2] == ["5", "100"]
    assert float(cells[2]) > 100, "torch alone takes more"
