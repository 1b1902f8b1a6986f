"""Tests of calibrated probabilities of classes."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from models import QueryError
from models.tasks.class_calibration import Calibration
from models.tasks.labels import Choice, Ranking
from models.tasks.scope import OutOfScope

HALVED = Calibration(method="temperature", temperature=2.0, examples=10)
ROWS = np.log(np.array([[0.8, 0.2, 1e-300]]))
ROWS[ROWS < -600] = -math.inf
CLASSES = np.array([[2, 0, 1]])


def test_a_temperature_of_2_takes_roots_of_probabilities():
    values, classes = HALVED.apply(ROWS, CLASSES)
    # sqrt(0.8) = 2 sqrt(0.2): two thirds and one third
    assert np.exp(values[0]) == pytest.approx([2 / 3, 1 / 3, 0])
    assert classes.tolist() == CLASSES.tolist()


def test_the_temperature_is_that_of_the_scores_before_a_softmax_and_a_sparse_softmax():
    scores = np.array([[3.0, 1.0, 0.5, -2.0]])
    for kept in (4, 2):  # the two best ones of a sparse-softmax keep a probability
        masked = np.where(np.arange(4) < kept, scores, -np.inf)
        normalized = masked - np.logaddexp.reduce(masked, axis=1, keepdims=True)
        divided = masked / 2
        expected = divided - np.logaddexp.reduce(divided, axis=1, keepdims=True)
        np.testing.assert_allclose(HALVED.table(normalized), expected)


def test_vector_scaling_may_change_the_order():
    scaling = Calibration(method="vector scaling", factors=(1.0, 1.0, 1.0), offsets=(0.0, 0.0, -3.0), examples=10)
    values, classes = scaling.apply(ROWS, CLASSES)
    assert classes.tolist() == [[0, 2, 1]]
    moved = 0.8 * math.exp(-3)
    assert np.exp(values[0]) == pytest.approx([0.2 / (0.2 + moved), moved / (0.2 + moved), 0])
    assert np.exp(scaling.table(np.log([[0.2, 0.5, 0.3]]))).sum() == pytest.approx(1)


def test_the_logistic_map_is_of_each_class_by_itself():
    logistic = Calibration(method="logistic", temperature=2.0, offset=1.0, examples=10)
    values, _ = logistic.apply(ROWS, CLASSES)
    # odds of 4 and 1/4, their roots times e
    expected = [2 * math.e / (1 + 2 * math.e), 0.5 * math.e / (1 + 0.5 * math.e), 0]
    assert np.exp(values[0]) == pytest.approx(expected)
    assert np.exp(logistic.apply(np.array([[0.0, -np.inf]]), np.array([[0, 1]]))[0]).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "temperature", "temperature": 0.0},
        {"method": "temperature", "offset": 1.0},
        {"method": "temperature", "factors": (1.0,), "offsets": (0.0,)},
        {"method": "vector scaling"},
        {"method": "vector scaling", "factors": (1.0, 2.0), "offsets": (0.0,)},
        {"method": "isotonic"},
    ],
)
def test_a_section_of_another_form_is_refused(fields):
    with pytest.raises(ValidationError):
        Calibration(examples=10, **fields)


def test_a_request_without_calibration_gets_the_output_layer_and_the_same_rule_of_scope():
    rule = OutOfScope(threshold=0.7, detected=1, rejected=0)
    ranking = Ranking(("a", "b", "c"), False, rule, HALVED)
    fitted, raw = ranking.best(np.repeat(ROWS, 2, 0), np.repeat(CLASSES, 2, 0), [Choice(3), Choice(3, False)])
    assert [each.probability for each in fitted.labels] == pytest.approx([2 / 3, 1 / 3])
    assert [each.probability for each in raw.labels] == pytest.approx([0.8, 0.2])
    assert fitted.out_of_scope is raw.out_of_scope is True, "two thirds are below 0.7"


def test_all_classes_are_requested_where_the_calibration_needs_them():
    assert Ranking(("a", "b", "c"), True, None, HALVED).requested([Choice(1)]) == 4
    logistic = Calibration(method="logistic", temperature=2.0, examples=10)
    assert Ranking(("a", "b", "c"), True, None, logistic).requested([Choice(1)]) == 2


def test_options_that_do_not_fit_are_refused():
    ranking = Ranking(("a", "b"), False, None)
    with pytest.raises(QueryError, match="no calibration examples"):
        ranking.choice(coverage=0.9)
    with pytest.raises(QueryError, match="need a coverage"):
        ranking.choice(randomized=True)
    with pytest.raises(QueryError, match="between 0 and 1"):
        ranking.choice(coverage=1.0)
    with pytest.raises(QueryError, match="'fitted' or 'none'"):
        ranking.choice(calibration="some")
