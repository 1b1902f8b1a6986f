"""Tests of requests that are short to send and long to compute or large to answer, of deadlines and of
other protocols."""

import pytest

from benchmarks.hostile.deadlines import DEADLINES
from benchmarks.hostile.protocols import PROTOCOLS
from benchmarks.hostile.results import RESULTS
from benchmarks.hostile.translations import TRANSLATIONS


@pytest.mark.parametrize("attack", [*DEADLINES, *PROTOCOLS, *RESULTS, *TRANSLATIONS], ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
