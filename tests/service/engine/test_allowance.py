"""Tests of what deadlines are too short for any answer."""

import pytest

from service.engine.allowance import Allowance, too_short


@pytest.mark.parametrize(
    ("seconds", "unloaded", "short"),
    [
        (0.001, 0.007, True),
        (0.033, 0.007, True),  # half of it is less than 7 ms and 10 ms of overhead
        (0.035, 0.007, False),
        (1.0, 0.007, False),
        (1.0, 0.6, True),
        (0.001, 0.0, False),  # nothing was measured
    ],
)
def test_an_unloaded_answer_must_take_half_of_the_time(seconds, unloaded, short):
    assert too_short(seconds, unloaded) == short
    assert Allowance(seconds, stated=True, unloaded=lambda: (unloaded, unloaded)).too_short == short


@pytest.mark.parametrize(
    ("whole", "first", "short"),
    [
        (40.0, 0.1, True),  # many inputs
        (29.0, 0.1, False),
        (40.0, 31.0, False),  # the default is shorter than the model takes for one input: the service is set up wrongly
    ],
)
def test_the_services_own_default_is_too_short_for_many_inputs_only(whole, first, short):
    assert Allowance(30.0, stated=False, unloaded=lambda: (whole, first)).too_short == short


def test_no_deadline_is_known_to_be_too_short_before_anything_is():
    assert not Allowance(0.001, stated=True).too_short


def test_a_deadline_that_passes_while_its_own_inputs_are_prepared_is_too_short_where_the_client_stated_it():
    stated, default = (Allowance(0.05, stated=each, preparing=True) for each in (True, False))
    assert (stated.too_short, default.too_short) == (True, False)
