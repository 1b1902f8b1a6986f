"""Tests of the fields that validation examples decide in a manifest: by which score inputs are out of scope."""

import numpy as np
import pytest

from models.tasks.labels import Classes
from training.tasks.calibrated_classes import CalibratedClasses, ScopeRates
from training.tasks.class_calibration import ValidationExamples
from training.tasks.classification_quality import ScopeScores

INSIDE = np.log(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]]))
OUTSIDE = np.log(np.array([[0.65, 0.35], [0.45, 0.55]]))
"""By the probability of the best class, 7 of the 8 pairs of an example of a class and one of none are in order."""
CLASSES = Classes(file="labels.txt", count=2)


@pytest.fixture
def found() -> CalibratedClasses:
    return CalibratedClasses.of(ValidationExamples.of(INSIDE, [(0,), (1,), (0,), (1,)], several=False), 2)


def _scores(*outside: float) -> ScopeScores:
    return ScopeScores(np.array([5.0, 6.0, 7.0, 8.0]), np.array(outside))


def test_the_score_that_tells_examples_apart_better_is_taken(found: CalibratedClasses) -> None:
    for scores, by in ((_scores(3.0, 4.0), "logit"), (_scores(3.0, 7.5), "probability"), (None, "probability")):
        rule = found.section(CLASSES, OUTSIDE, scores=scores)["out_of_scope"]
        assert isinstance(rule, dict)
        assert rule["score"] == by
    assert ScopeScores(np.exp(INSIDE).max(1), np.exp(OUTSIDE).max(1)).auroc == 7 / 8


def test_a_rate_is_one_of_the_chosen_score(found: CalibratedClasses) -> None:
    section = found.section(CLASSES, OUTSIDE, ScopeRates(reject=0.0), _scores(3.0, 4.0))["out_of_scope"]
    assert isinstance(section, dict)
    assert section["score"] == "logit"
    assert section["threshold"] <= 5.0
    assert section["rejected"] == 0.0


def test_without_examples_of_no_class_thresholds_are_of_probabilities(found: CalibratedClasses) -> None:
    section = found.section(CLASSES, rates=ScopeRates(reject=0.25))["out_of_scope"]
    assert isinstance(section, dict)
    assert section["score"] == "probability"
