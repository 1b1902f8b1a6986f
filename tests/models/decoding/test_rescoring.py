import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.decoding.rescoring import MAX_WEIGHT, Hypothesis, Weights, rescored

LIST = [Hypothesis("a b", -1.0), Hypothesis("a", -2.0), Hypothesis("a b c", -0.5)]


def places(found):
    return [each.place for each in found]


def test_totals_by_hand():
    found = rescored(LIST, [-4.0, -1.0, -8.0], Weights(lm_weight=0.5, length_reward=0.25))
    assert [(each.text, each.total) for each in found] == [("a", -2.25), ("a b", -2.5), ("a b c", -3.75)]
    assert [(each.score, each.log_probability, each.words) for each in found][1] == (-1.0, -4.0, 2)


def test_words_are_separated_by_any_white_space():
    assert [Hypothesis(text).words for text in ("", " \t", "a\u00a0b\n c", "it's .")] == [0, 0, 3, 2]


def test_probability_0_comes_last_by_the_score_of_the_first_pass():
    found = rescored(LIST, [-math.inf, -1000.0, -math.inf], Weights(length_reward=-5.0))
    assert places(found) == [1, 2, 0]
    assert [each.total for each in found][1:] == [-math.inf, -math.inf]
    assert places(rescored(LIST, [-math.inf] * 3, Weights())) == [2, 0, 1]


def test_without_a_weight_the_model_does_not_count():
    found = rescored(LIST, [-math.inf, -1.0, -math.inf], Weights(lm_weight=0.0))
    assert places(found) == [2, 0, 1]
    assert found[0].total == -0.5


def test_equal_totals_are_ordered_by_score_then_place():
    same = [Hypothesis("x", -2.0), Hypothesis("y", -1.0), Hypothesis("z", -1.0)]
    assert places(rescored(same, [-1.0, -2.0, -2.0], Weights())) == [1, 2, 0]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_log_probability_is_a_number_or_minus_infinity(value):
    with pytest.raises(ValueError, match="hypothesis 2"):
        rescored(LIST, [-1.0, value, -1.0], Weights())


@pytest.mark.parametrize(
    "given", [{"lm_weight": -0.1}, {"lm_weight": math.nan}, {"length_reward": math.inf}, {"length_reward": 2e6}]
)
def test_weights_in_their_range(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        Weights(**given)


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(st.tuples(finite, st.floats(max_value=0, min_value=-1e6) | st.just(-math.inf)), max_size=8),
    st.floats(0, MAX_WEIGHT),
    st.floats(-MAX_WEIGHT, MAX_WEIGHT),
)
def test_no_total_of_finite_scores_is_not_a_number(values, weight, reward):
    hypotheses = [Hypothesis("a b", score) for score, _ in values]
    found = rescored(hypotheses, [value for _, value in values], Weights(lm_weight=weight, length_reward=reward))
    totals = [each.total for each in found]
    assert not any(map(math.isnan, totals))
    assert totals == sorted(totals, reverse=True)
