"""Tests of fitting calibrated probabilities and prediction sets."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from models.tasks.class_calibration import Calibration, log_softmax
from models.tasks.prediction_sets import SetPredictor
from training.tasks.calibrated_classes import DIAGRAM, BundlePredictions, CalibratedClasses, calibration_metrics
from training.tasks.class_calibration import (
    SCORES,
    ValidationExamples,
    fit_calibration,
    fit_sets,
    fitting_sample,
    log_losses,
)


def examples(count=2000, classes=5, sharpness=1.0, seed=0, keep=5):
    """Return examples whose scores are `sharpness` times those that their classes were drawn by."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(count, classes)) * 2
    labels = (np.exp(log_softmax(scores)).cumsum(1) > generator.random((count, 1))).argmax(1)
    ranks = (-scores).argsort(1).argsort(1)
    table = log_softmax(np.where(ranks < keep, sharpness * scores, -np.inf))
    return ValidationExamples.of(table, [(label,) for label in labels.tolist()], several=False)


def test_log_losses_by_hand():
    table = np.log(np.array([[0.5, 0.25, 0.25], [1.0, 1e-300, 1e-300]]))
    truth = np.array([[1, 0, 0], [0, 1, 0]], bool)
    assert log_losses(table, truth, several=False) == pytest.approx([np.log(2), -np.log(1e-7)])
    expected = -np.log(0.5 * 0.75 * 0.75)
    assert log_losses(table, truth, several=True)[0] == pytest.approx(expected)


def test_metrics_by_hand():
    some = ValidationExamples.of(np.log([[0.8, 0.2], [0.6, 0.4]]), [(0,), (1,)], several=False)
    found = calibration_metrics(some, some.log_probabilities, 2)
    # bins of 0.8 and 0.6: |0.8 - 1| and |0.6 - 0|, each of half of the examples
    assert found["expected calibration error"] == pytest.approx(0.4)
    assert found["Brier score"] == pytest.approx((0.04 + 0.04 + 0.36 + 0.36) / 2)
    assert found["log-loss"] == pytest.approx(-(np.log(0.8) + np.log(0.4)) / 2)


@pytest.mark.parametrize("keep", [5, 3])
@pytest.mark.parametrize("sharpness", [0.5, 3.0])
def test_the_temperature_is_found_of_softmax_and_sparse_softmax(sharpness, keep):
    some = examples(sharpness=sharpness, keep=keep)
    found = fit_calibration(some).calibration
    assert found is not None
    assert (found.method, found.examples) == ("temperature", 2000)
    assert found.temperature == pytest.approx(sharpness, rel=0.15)
    after = found.table(some.log_probabilities)
    assert (after.argmax(1) == some.log_probabilities.argmax(1)).all()
    assert (np.isinf(after) == np.isinf(some.log_probabilities)).all()


def test_calibrated_probabilities_are_left_as_they_are_or_hardly_changed():
    found = fit_calibration(examples()).calibration
    assert found is None or found.temperature == pytest.approx(1, abs=0.1)


def test_vector_scaling_wins_where_classes_are_shifted():
    some = examples(4000)
    shifted = log_softmax(some.log_probabilities + np.array([3.0, 0, 0, 0, -3.0]))
    found = fit_calibration(ValidationExamples(shifted, some.truth)).calibration
    assert found is not None
    assert found.method == "vector scaling"
    assert found.offsets[0] - found.offsets[4] == pytest.approx(-6, abs=1)
    before, after = (log_losses(each, some.truth, several=False).mean() for each in (shifted, found.table(shifted)))
    assert after < before


def test_examples_that_are_all_right_do_not_make_probabilities_of_1():
    table = log_softmax(np.tile([[2.0, 0.0, 0.0]], (25, 1)))
    found = fit_calibration(ValidationExamples.of(table, [(0,)] * 25, several=False)).calibration
    assert found is not None
    assert 0.9 < np.exp(found.table(table)).max() < 0.98, "as if one of 26 were wrong"


def test_several_labels_get_probabilities_by_themselves():
    generator = np.random.default_rng(0)
    truth = generator.random((1500, 6)) < 0.4
    truth[~truth.any(1), 0] = True
    table = log_softmax(np.where(truth, 2.0, 0.0) + generator.normal(size=truth.shape))
    some = ValidationExamples(table, truth, several=True)
    found = CalibratedClasses.of(some, 6)
    assert found.fitted.calibration is not None
    assert found.fitted.calibration.method == "logistic"
    assert found.sets is None
    metrics = found.held_out_metrics()
    for name in ("expected calibration error", "Brier score", "log-loss"):
        assert metrics[name] < metrics[f"{name}, uncalibrated"]


def test_too_few_examples_are_not_fitted_on():
    some = examples(19)
    found = CalibratedClasses.of(some, 5)
    assert (found.fitted.calibration, found.sets, dict(found.files)) == (None, None, {})


def test_the_files_are_scores_and_a_diagram():
    found = CalibratedClasses.of(examples(1000, sharpness=3.0), 5)
    assert set(found.files) == {SCORES, DIAGRAM}
    assert found.sets is not None
    assert found.sets.examples == 800, "a fifth chooses the penalty"
    assert len(found.files[SCORES]) == 16 * 800
    assert b"<svg" in found.files[DIAGRAM]
    assert found.files == CalibratedClasses.of(examples(1000, sharpness=3.0), 5).files, "nothing is drawn by chance"


def test_scores_are_those_of_calibrated_probabilities():
    some = examples(60)
    sets = fit_sets(some, Calibration(method="temperature", temperature=2.0, examples=60))
    assert sets is not None
    rows = np.frombuffer(sets[1], "<f4").reshape(-1, 4)
    halved = np.exp(log_softmax(some.log_probabilities / 2))
    np.testing.assert_allclose(np.sort(rows[:, 3]), np.sort(halved[some.truth]), rtol=1e-5)
    assert SetPredictor.of(rows.astype(float), sets[0].penalty, 5).examples == 60


def test_labels_that_the_model_lacks_are_left_out():
    some = ValidationExamples.of(np.log(np.full((3, 2), 0.5)), [(0,), (2,), (1,)], several=False)
    assert some.truth.tolist() == [[True, False], [False, True]]


def test_a_bundle_of_very_many_labels_is_measured_without_the_table_of_all_probabilities():
    count, classes = 3000, 5000  # 120 MB of float64
    labels = [(row % classes,) for row in range(count)]

    def log_probabilities(rows):
        found = np.full((len(rows), classes), -12.0, np.float32)
        found[np.arange(len(rows)), rows] = np.log(0.75)
        return found

    config = SimpleNamespace(classes=SimpleNamespace(threshold=None, calibration=None))
    model = SimpleNamespace(config=config, labels=range(classes))
    tracemalloc.start()
    try:
        found = BundlePredictions.of(model, range(count), labels, log_probabilities)
        assert tracemalloc.get_traced_memory()[1] < 90e6
    finally:
        tracemalloc.stop()
    assert found.ranked.best.tolist() == list(range(count))
    assert found.ranked.classes.shape == (count, 20)
    assert found.metrics()["log-loss"] == pytest.approx(-np.log(0.75))


def test_so_many_labels_are_fitted_on_fewer_examples():
    assert fitting_sample(range(1000), 150) == list(range(1000))
    some = fitting_sample(range(10_000), 10_000)
    assert len(some) == 838
    assert some == sorted(set(some))
