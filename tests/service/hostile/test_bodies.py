"""Tests of bodies of up to 1 MB: the loop is not blocked, refusals are short, memory comes back."""

import pytest

from benchmarks.hostile.bodies import BODIES
from benchmarks.hostile.texts import TEXTS


@pytest.mark.parametrize("attack", [*BODIES, *TEXTS], ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
