"""Tests of deadlines that cannot be met or pass while a batch runs."""

import pytest

from benchmarks.hostile.deadlines import DEADLINES


@pytest.mark.parametrize("attack", DEADLINES, ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
