"""Tests of requests that stop in the middle or trickle in: they end at a timeout and hold no connection for ever."""

import pytest

from tests.support.hostile.connections import SLOW


@pytest.fixture(scope="module")
def flags(flags, timeouts):
    return [*flags, *timeouts]


@pytest.mark.parametrize("attack", SLOW, ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
