"""Tests of the classes that metrics are computed from, against tables of all probabilities."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from training.tasks.classification_quality import measure_several, measure_single
from training.tasks.ranked_classes import RankedClasses


def table(count: int, classes: int, seed: int = 0) -> np.ndarray:
    scores = 3 * np.random.default_rng(seed).normal(size=(count, classes))
    values = np.exp(scores)
    return np.asarray(values / values.sum(1, keepdims=True))


def test_equal_probabilities_are_in_the_order_of_the_classes() -> None:
    found = RankedClasses.of(np.array([[0.0, 0.5, 0.0, 0.5], [0.1, 0.2, 0.3, 0.4]]))
    assert found.classes.tolist() == [[1, 3, 0, 2], [3, 2, 1, 0]]
    assert found.best_other(3).tolist() == [0.5, 0.3]
    assert RankedClasses.of(np.full((1, 30), 1 / 30)).classes.tolist() == [list(range(20))]


def test_the_best_are_those_of_a_stable_sort() -> None:
    some = table(50, 300)
    some[:, 7:200] = some[:, 7, None]
    found = RankedClasses.of(some)
    assert found.classes.tolist() == np.argsort(-some, axis=1, kind="stable")[:, :20].tolist()
    np.testing.assert_array_equal(found.probabilities, np.take_along_axis(some, found.classes, 1))


def test_independent_probabilities_are_kept_wherever_they_can_be_predicted() -> None:
    some = np.full((2, 40), 0.01)
    some[0, :30] = 0.6
    assert RankedClasses.of(some).predicted(0.5).sum(1).tolist() == [30, 1]
    assert RankedClasses.of(some[1:], least=0.005).predicted(0.005).sum() == 40


def test_parts_of_different_width_are_joined() -> None:
    wide, narrow = np.full((1, 40), 0.5), np.eye(40)[[3]]
    found = RankedClasses.joined([RankedClasses.of(narrow), RankedClasses.of(wide)])
    assert len(found) == 2
    assert found.best.tolist() == [3, 0]
    assert found.predicted(0.5).sum(1).tolist() == [1, 40]
    # Class 0, which fills the first row, is not taken for a true one.
    assert measure_several(found, [(0, 3), tuple(range(40))], threshold=0.5).micro_f1 == pytest.approx(82 / 83)


@pytest.mark.parametrize("classes", [4, 300])
def test_metrics_are_those_of_scikit_learn(classes: int) -> None:
    some, generator = table(200, classes), np.random.default_rng(1)
    labels = [tuple(generator.choice(classes + 1, size, replace=False)) for size in generator.integers(1, 4, 200)]
    truth = np.zeros((200, classes + 1), bool)
    for row, own in enumerate(labels):
        truth[row, list(own)] = True
    predicted = np.pad(some, [(0, 0), (0, 1)]) >= 0.2
    predicted[np.arange(200), some.argmax(1)] = True
    found = measure_several(RankedClasses.of(some), labels, threshold=0.2)
    assert found.micro_f1 == pytest.approx(f1_score(truth, predicted, average="micro"))
    assert found.accuracy == pytest.approx(np.mean((truth == predicted).all(1)))
    if truth.any(0)[-1]:  # the class without probabilities counts where a text has it
        assert found.macro_f1 == pytest.approx(f1_score(truth, predicted, average="macro", zero_division=0))
    single = [own[0] for own in labels]
    assert measure_single(RankedClasses.of(some), single).macro_f1 == pytest.approx(
        f1_score(single, some.argmax(1), average="macro", zero_division=0)
    )
