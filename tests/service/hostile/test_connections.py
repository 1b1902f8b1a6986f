"""Tests of attacks on HTTP itself: headers, chunks, pipelines, idle clients, slow readers, hang-ups."""

import pytest

from benchmarks.hostile.connections import CONNECTIONS


@pytest.mark.parametrize("attack", CONNECTIONS, ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
