"""Tests of the classes of classifiers."""

import math
from pathlib import Path

import numpy as np
import pytest

from models import BundleError, QueryError
from models.tasks.labels import Choice, Classes, ClassesConfig, Label, Ranking, read_labels
from models.tasks.model import checked_top_k
from models.tasks.scope import OutOfScope

RULE = OutOfScope(threshold=0.5, detected=0.9, rejected=0.1)
VALUES = np.log(np.array([[0.75, 0.25, 1e-300], [1.0, 1e-300, 1e-300]]))
VALUES[VALUES < -600] = -math.inf
CLASSES = np.array([[2, 0, 1], [1, 0, 2]])


def config(**fields):
    return ClassesConfig(classes=Classes(file="labels.txt", **fields))


def test_classes_of_probability_0_are_left_out():
    first, second = Ranking(("a", "b", "c"), False, None).best(VALUES, CLASSES, [Choice(1), Choice(3)])
    assert first.labels == (Label("c", math.log(0.75)),)
    assert [each.label for each in second.labels] == ["b"]
    assert first.labels[0].probability == pytest.approx(0.75)


def test_the_unlisted_class_takes_no_place():
    ranking = Ranking(("a", "b"), True, RULE)
    assert ranking.requested([Choice(1)]) == 2
    first, second = ranking.best(VALUES, CLASSES, [Choice(1), Choice(1)])
    assert first.labels == (Label("a", math.log(0.25)),)
    assert [each.label for each in second.labels] == ["b"]


def test_an_input_whose_best_class_is_improbable_is_out_of_scope():
    ranking = Ranking(("a", "b"), True, RULE)
    assert ranking.out_of_scope([Label("a", math.log(0.49))]) is True
    assert ranking.out_of_scope([Label("a", math.log(0.51))]) is False
    assert ranking.out_of_scope([]) is True
    assert Ranking(("a", "b"), False, None).out_of_scope([]) is None


def test_an_input_whose_best_class_has_a_low_score_is_out_of_scope():
    """Scores are log-probabilities plus normalizers: log 0.25 + 3 of the best listed class, and log 1 + 3."""
    rule = OutOfScope(threshold=2.0, rejected=0.1, score="logit")
    ranking = Ranking(("a", "b"), True, rule)
    assert ranking.needs_normalizers
    normalizers = np.array([3.0, 3.0])
    expected = [3 + math.log(0.25), 3.0]
    assert ranking.scores(VALUES, CLASSES, normalizers) == pytest.approx(expected)
    found = ranking.best(VALUES, CLASSES, [Choice(1), Choice(1)], normalizers=normalizers)
    assert [each.out_of_scope for each in found] == [True, False]
    certain = Ranking(("a", "b"), True, rule.with_threshold(1.0))
    assert not certain.best(VALUES, CLASSES, [Choice(1)], normalizers=normalizers)[0].out_of_scope


def test_labels_end_with_the_unlisted_class(tmp_path: Path):
    (tmp_path / "labels.txt").write_text("a\nb\noos\n")
    assert read_labels(tmp_path, config(count=3)) == ["a", "b", "oos"]
    assert read_labels(tmp_path, config(count=3, unlisted="oos")) == ["a", "b"]
    with pytest.raises(BundleError, match="does not end with 'none'"):
        read_labels(tmp_path, config(count=3, unlisted="none"))


def test_a_byte_order_mark_is_no_part_of_a_label(tmp_path: Path):
    (tmp_path / "labels.txt").write_bytes(b"\xef\xbb\xbfa\nb\n")
    assert read_labels(tmp_path, config(count=2)) == ["a", "b"]


def test_what_is_listed_is_counted():
    with_rule = config(count=3, unlisted="oos", out_of_scope=RULE)
    assert with_rule.summary()["classes"] == 2
    expected = {"threshold": 0.5, "detected": 0.9, "rejected": 0.1, "score": "probability"}
    assert with_rule.summary()["out_of_scope"] == expected
    assert with_rule.description()["classes"] == "2, out of scope where the best has a probability below 0.5"
    assert config(count=3).description()["classes"] == "3"


def test_no_more_classes_are_asked_for_than_there_are():
    assert checked_top_k(5, 2) == 2
    with pytest.raises(QueryError, match="top_k must be at least 1, not 0"):
        checked_top_k(0, 2)
