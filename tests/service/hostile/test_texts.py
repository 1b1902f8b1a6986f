"""Tests of texts that tokenizers and sentence splitters find hard."""

import pytest

from benchmarks.hostile.texts import TEXTS


@pytest.mark.parametrize("attack", TEXTS, ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
