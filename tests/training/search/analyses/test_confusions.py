"""Tests of the confusion report."""

import csv
from pathlib import Path

import numpy as np
import pytest

from training.cli.analyses import confusions
from training.run.directory import RunDirectory
from training.search.analyses.confusions import class_rows, confusion_rows, wanting_rows
from training.tasks.ranked_classes import RankedClasses

NAMES = ["a", "b", "c"]
RANKED = RankedClasses.of(
    np.array([[0.7, 0.2, 0.1], [0.6, 0.4, 0.0], [0.9, 0.1, 0.0], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3]])
)
LABELS = [(0,), (1,), (1,), (2,), (2, 1)]


def test_confusions_by_hand() -> None:
    rows = confusion_rows(RANKED, LABELS, NAMES, 10)
    assert rows.rows == [("b", "a", 2, 3, pytest.approx(0.75))]
    assert confusion_rows(RANKED, [(2,)] * 5, NAMES, 1).rows == [("c", "a", 3, 5, pytest.approx(2.2 / 3))]


def test_classes_by_hand() -> None:
    rows = class_rows(RANKED, LABELS, NAMES, 10)
    # a: said 3 times, true once, right once; b: said once, true 3 times, right once; c: said once, true twice.
    assert rows.rows == [
        ("a", 0.5, pytest.approx(1 / 3), 1.0, 1),
        ("b", 0.5, 1.0, pytest.approx(1 / 3), 3),
        ("c", pytest.approx(2 / 3), 1.0, 0.5, 2),
    ]
    assert len(class_rows(RANKED, LABELS, [*NAMES, "never"], 10).rows) == 3


def test_classes_that_want_more_examples() -> None:
    mean = (0.5 + 0.5 + 2 / 3) / 3
    assert mean < 2 / 3, "c is known well enough"
    rows = wanting_rows(RANKED, LABELS, NAMES, {"a": 9, "b": 5, "c": 2}, 10)
    assert rows.rows == [("b", 5, 0.5, 2, 3)], "a has more examples than the median of 5"
    assert wanting_rows(RANKED, LABELS, NAMES, {"a": 1, "b": 5, "c": 9}, 1).rows == [("b", 5, 0.5, 2, 3)]


def test_the_command_writes_tables(errands_run: RunDirectory, tiny_data_dir: Path, tmp_path: Path) -> None:
    assert confusions(errands_run.path, data_dir=tiny_data_dir, output=tmp_path, device="cpu", split="train") == 0
    with (tmp_path / "classes.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 8
    assert (tmp_path / "confusions.csv").is_file()
    assert (tmp_path / "wanting.csv").is_file()


def test_a_run_of_another_task_is_refused(tiny_run: RunDirectory, tiny_data_dir: Path) -> None:
    with pytest.raises(
        ValueError, match="is a run of task 'language-model', which does not offer the operation 'classify'"
    ):
        confusions(tiny_run.path, data_dir=tiny_data_dir, device="cpu")
