"""Tests of bodies of up to 1 MB: the loop is not blocked, refusals are short, memory comes back."""

import pytest

from benchmarks.hostile.bodies import BODIES
from benchmarks.hostile.texts import TEXTS

SOME_TEXTS = [text for text in TEXTS if text.name.startswith("translate") or "single word" in text.name]
"""All texts go through the sentence splitter; `python -m benchmarks.attacks` sends all of them everywhere."""


@pytest.mark.parametrize("attack", [*BODIES, *SOME_TEXTS], ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
