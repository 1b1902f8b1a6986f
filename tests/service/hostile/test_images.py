"""Tests of image files that are small to send and large to decode."""

import pytest

from benchmarks.hostile.images import IMAGES


@pytest.mark.parametrize("attack", IMAGES, ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
