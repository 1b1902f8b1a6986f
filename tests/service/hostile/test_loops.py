"""Tests of a bundle whose graph loops for ever, and of a process that is paused for longer than its timeouts."""

import pytest

from service.settings import BUNDLED
from tests.fixtures.looping import looping_models
from tests.support.hostile.loops import LOOPS, PAUSED


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    looping = looping_models(tmp_path_factory.mktemp("looping"))
    return ["--model-dirs", BUNDLED, looping, "--models", "next-word:4", "intents:1", "--hang-timeout", "6"]


def test_the_bundle_is_served(target):
    assert target.server.post("/v1/classify", {"text": "hello", "model": "intents:1"}, 30_000).status == 200


@pytest.mark.parametrize("attack", [*LOOPS, PAUSED], ids=lambda attack: attack.name)
def test_the_server_withstands(attack, withstand):
    withstand(attack)
