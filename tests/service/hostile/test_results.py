"""Tests of requests whose answers are far larger than they are."""

import pytest

from benchmarks.hostile.results import RESULTS


@pytest.mark.parametrize("attack", RESULTS, ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
