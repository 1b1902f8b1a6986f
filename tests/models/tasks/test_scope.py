"""Tests of the rule for inputs out of scope: thresholds by the rate of errors."""

import pytest
from pydantic import ValidationError

from models import QueryError
from models.tasks.scope import OutOfScope, ScopePoint

POINTS = tuple(
    ScopePoint(threshold=threshold, rejected=rejected, detected=detected)
    for threshold, rejected, detected in ((0.2, 0.0, 0.5), (0.6, 0.02, 0.8), (0.9, 0.1, 0.9))
)
RULE = OutOfScope(threshold=0.6, rejected=0.02, detected=0.8, trade_off=POINTS)


def decisions(rule):
    return rule.threshold, rule.rejected, rule.detected


@pytest.mark.parametrize(
    ("rate", "expected"), [(0.02, (0.6, 0.02, 0.8)), (0.06, (0.75, 0.06, 0.85)), (0.0, (0.2, 0.0, 0.5))]
)
def test_a_threshold_by_the_rate_of_refused_inputs(rate, expected):
    assert decisions(RULE.with_reject_rate(rate)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rate", "expected"), [(0.2, (0.6, 0.02, 0.8)), (0.1, (0.9, 0.1, 0.9)), (0.35, (0.4, 0.01, 0.65))]
)
def test_a_threshold_by_the_rate_of_inputs_that_pass(rate, expected):
    assert decisions(RULE.with_pass_rate(rate)) == pytest.approx(expected)


def test_a_threshold_has_the_fractions_of_the_trade_off():
    assert decisions(RULE.with_threshold(0.7)) == pytest.approx((0.7, 0.02 + 0.08 / 3, 0.8 + 0.1 / 3), abs=1e-6)
    assert RULE.with_threshold(0.7).trade_off == POINTS


def test_what_is_refused():
    with pytest.raises(QueryError, match=r"reject_rate must be from 0\.0000 to 0\.1000, not 0\.5"):
        RULE.with_reject_rate(0.5)
    with pytest.raises(QueryError, match=r"pass_rate must be from 0\.1000 to 0\.5000"):
        RULE.with_pass_rate(0.05)
    with pytest.raises(QueryError, match="run softserve-train calibrate"):
        OutOfScope(threshold=0.5, rejected=0.1, detected=0.9).with_reject_rate(0.1)
    alone = OutOfScope(
        threshold=0.2, rejected=0.0, trade_off=tuple(point.model_copy(update={"detected": None}) for point in POINTS)
    )
    assert decisions(alone.with_reject_rate(0.02)) == (0.6, 0.02, None)
    with pytest.raises(QueryError, match="no examples of inputs out of scope"):
        alone.with_pass_rate(0.1)
    with pytest.raises(QueryError, match="threshold must be from 0 to 1"):
        RULE.with_threshold(2.0)
    with pytest.raises(ValidationError, match="must be from 0 to 1"):
        OutOfScope(threshold=2.0, rejected=0.1)
    with pytest.raises(ValidationError, match="must ascend"):
        OutOfScope(threshold=0.5, rejected=0.1, trade_off=POINTS[::-1])


def test_thresholds_of_scores_are_any_number():
    rule = OutOfScope(threshold=8.5, rejected=0.02, score="logit")
    assert rule.with_threshold(-3.0).threshold == -3.0
    assert rule.described() == "a score before the softmax below 8.5"
    assert RULE.described() == "a probability below 0.6"
    with pytest.raises(QueryError, match="must be a finite number"):
        rule.with_threshold(float("inf"))
