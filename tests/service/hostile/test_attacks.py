"""Tests of requests that are hostile: bodies of up to 1 MB, HTTP itself (headers, chunks, pipelines, idle clients, slow
readers, hang-ups), images that are small to send and large to decode, and requests that are long to compute or large to
answer, with deadlines and over other protocols. The loop is not blocked, refusals are short, memory comes back."""

import pytest

from tests.support.hostile.bodies import BODIES
from tests.support.hostile.connections import CONNECTIONS
from tests.support.hostile.deadlines import DEADLINES
from tests.support.hostile.images import IMAGES
from tests.support.hostile.protocols import PROTOCOLS
from tests.support.hostile.results import RESULTS
from tests.support.hostile.texts import TEXTS
from tests.support.hostile.translations import TRANSLATIONS

SOME_TEXTS = [text for text in TEXTS if text.name.startswith("translate") or "single word" in text.name]
"""All texts go through the sentence splitter; `python -m benchmarks.attacks` sends all of them everywhere."""
WORK = [*DEADLINES, *PROTOCOLS, *RESULTS, *TRANSLATIONS]


@pytest.mark.parametrize("attack", [*BODIES, *SOME_TEXTS, *CONNECTIONS, *IMAGES, *WORK], ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
