"""Tests of prediction sets with a chosen coverage."""

import numpy as np
import pytest

from models import BundleError, QueryError
from models.tasks.labels import Choice, Ranking
from models.tasks.prediction_sets import (
    Coverage,
    Penalty,
    PredictionSets,
    SetPredictor,
    drawn,
    true_class_rows,
)

PROBABILITIES = np.array([[0.2, 0.7, 0.1], [0.5, 0.3, 0.2], [0.6, 0.4, 0.0], [0.1, 0.2, 0.7]])
LABELS = np.array([1, 1, 2, 0])
NO_PENALTY = Penalty()


def predictor(before, own=0.1, classes=0, penalty=NO_PENALTY, num_classes=3):
    """Return the predictor of examples whose true classes have these probabilities before them."""
    count = len(before)
    rows = [np.broadcast_to(each, count) for each in (classes, 2, before, own)]
    return SetPredictor.of(np.stack(rows, 1).astype(float), penalty, num_classes)


def test_the_score_of_a_true_class_is_the_probability_of_those_before_it():
    rows = true_class_rows(PROBABILITIES, LABELS)
    # class, rank, before, own; a class of probability 0 ranks last
    expected = [[1, 1, 0.0, 0.7], [1, 2, 0.5, 0.3], [2, 3, 1.0, 0.0], [0, 3, 0.9, 0.1]]
    np.testing.assert_allclose(rows, expected, atol=1e-12)


def test_the_threshold_is_the_conformal_quantile():
    sets = predictor(np.arange(1, 20) / 20)  # 19 scores: 0.05 to 0.95
    # ceil(20 * 0.9) = 18th score, ceil(20 * 0.95) = 19th score
    assert sets.coverage(0.9).thresholds == pytest.approx(0.90)
    assert sets.coverage(0.95).thresholds == pytest.approx(0.95)
    with pytest.raises(QueryError, match=r"0\.99 needs 99 calibration examples, and this model has 19: at most 0\.95"):
        sets.coverage(0.99)


def test_the_set_has_the_classes_whose_score_is_at_most_the_threshold():
    sets = predictor(np.full(19, 0.75))
    values, classes = np.log([0.7, 0.2, 0.1]), np.array([2, 0, 1])
    members = sets.members(values, classes, sets.coverage(0.9), b"")
    assert members.tolist() == [True, True, False]  # before them: 0, 0.7, 0.9
    members = sets.members(np.log([0.9, 0.1, 1e-9]), classes, Coverage(0.0, False), b"")
    assert members.tolist() == [True, False, False], "the most probable class is in every set that is not randomized"


def test_a_penalty_makes_scores_of_later_ranks_larger():
    penalty = Penalty(weight=0.1, free_ranks=1)
    sets = predictor(np.full(19, 0.75), penalty=penalty)
    assert sets.coverage(0.9).thresholds == pytest.approx(0.85)  # rank 2
    values = np.log([0.7, 0.1, 0.1, 0.1])
    assert sets.members(values, np.arange(4), Coverage(0.85, False), b"").tolist() == [True, True, False, False]


def test_classes_of_probability_0_are_in_no_set_and_limit_the_coverage():
    sets = predictor(np.full(20, 0.5), own=np.where(np.arange(20) < 2, 0.0, 0.1))
    assert sets.coverage(0.85).thresholds == pytest.approx(0.5)
    with pytest.raises(QueryError, match=r"the right one of 2 of 20 calibration examples is in no set; at most 0\.857"):
        sets.coverage(0.9)
    with np.errstate(divide="ignore"):
        values = np.log([1.0, 0.0])
    assert sets.members(values, np.arange(2), Coverage(2.0, False), b"").tolist() == [True, False]


def test_classes_with_enough_examples_have_thresholds_of_their_own():
    before = np.concatenate([np.full(19, 0.2), np.full(19, 0.6), np.full(3, 0.1)])
    classes = np.repeat([0, 1, 2], [19, 19, 3])
    sets = predictor(before, classes=classes)
    pooled = sets.coverage(0.9).thresholds
    found = sets.coverage(0.9, class_conditional=True).thresholds
    assert found.tolist() == pytest.approx([0.2, 0.6, pooled]), "three examples are too few"


def test_a_randomized_set_depends_on_the_input_alone():
    assert drawn(b"a text") == drawn(b"a text") != drawn(b"another text")
    numbers = [drawn(str(number).encode()) for number in range(2000)]
    assert min(numbers) >= 0
    assert max(numbers) < 1
    assert np.mean(numbers) == pytest.approx(0.5, abs=0.03)


def simulated(count, seed):
    """Return probabilities `[N, 6]` and classes drawn by them."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(count, 6)) * 2
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    labels = (probabilities.cumsum(1) > generator.random((count, 1))).argmax(1)
    return probabilities, labels


def covered(sets, coverage, probabilities, labels):
    """Return whether the sets hold the classes, and their sizes."""
    found, sizes = [], []
    for row, (some, label) in enumerate(zip(probabilities, labels, strict=True)):
        order = np.argsort(-some)
        members = order[sets.members(np.log(some[order]), order, coverage, str(row).encode())]
        found.append(label in members)
        sizes.append(len(members))
    return np.array(found), np.array(sizes)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("penalty", [Penalty(), Penalty(weight=0.1, free_ranks=2)])
def test_sets_have_their_coverage(level, penalty):
    sets = SetPredictor.of(true_class_rows(*simulated(4000, 1)), penalty, 6)
    probabilities, labels = simulated(4000, 2)
    exactly, _ = covered(sets, sets.coverage(level, randomized=True), probabilities, labels)
    assert exactly.mean() == pytest.approx(level, abs=0.03)
    at_least, sizes = covered(sets, sets.coverage(level), probabilities, labels)
    assert at_least.mean() > level - 0.03
    assert sizes.min() >= 1


def test_a_file_of_other_numbers_is_refused(tmp_path):
    rows = true_class_rows(*simulated(30, 1))
    (tmp_path / "scores.bin").write_bytes(SetPredictor.written(rows))
    section = PredictionSets(file="scores.bin", examples=30, penalty=Penalty())
    assert SetPredictor.read(tmp_path, section, 6).examples == 30
    with pytest.raises(BundleError, match="does not hold 31 calibration examples"):
        SetPredictor.read(tmp_path, section.model_copy(update={"examples": 31}), 6)
    with pytest.raises(BundleError, match="no scores of classes"):
        SetPredictor.read(tmp_path, section, 3)


def test_a_set_is_part_of_a_result():
    sets = predictor(np.full(19, 0.75), num_classes=3)
    ranking = Ranking(("a", "b"), True, None, sets=sets)
    choice = ranking.choice(coverage=0.9)
    assert ranking.requested([choice, Choice(1)]) == 3
    (found,) = ranking.best(np.log([[0.7, 0.2, 0.1]]), np.array([[2, 0, 1]]), [choice])
    assert [each.label for each in found.labels] == ["a"], "the unlisted class is in no set"
    assert found.calibration_examples == 19
