"""Tests of translations that would fill memory, and of the batch job that must be let in."""

import pytest

from benchmarks.hostile.translations import TRANSLATIONS


@pytest.mark.parametrize("attack", TRANSLATIONS, ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
