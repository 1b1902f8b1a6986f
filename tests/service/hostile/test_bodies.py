"""Tests of bodies that are refused: the loop is not blocked, answers are short, memory comes back."""

import pytest

from benchmarks.hostile.bodies import BODIES


@pytest.mark.parametrize("attack", BODIES, ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
