"""The package `huggingface_hub` against a server."""

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from models import ModelStore
from service.settings import BUNDLED
from tests.clients.conftest import KEY


def client(url, model, **options):
    return InferenceClient(f"{url}/hf/{model}", provider="hf-inference", **options)


def test_a_text_is_classified(address):
    text = "play some music"
    (expected,) = ModelStore(BUNDLED).load("intents", threads=1).classify([text], 3)
    found = client(address, "intents").text_classification(text, top_k=3)
    assert [each.label for each in found] == [each.label for each in expected.labels]
    assert [each.score for each in found] == pytest.approx([each.probability for each in expected.labels], abs=1e-5)


def test_a_text_is_translated(address):
    text = "Wo ist der Bahnhof?"
    (expected,) = ModelStore(BUNDLED).load("de-en", threads=1).translate([text])
    for languages in ({}, {"src_lang": "de", "tgt_lang": "en"}):
        found = client(address, "de-en").translation(text, **languages)
        assert found.translation_text == expected.translations[0].text


def test_health_and_information(address):
    assert client(address, "intents").health_check()
    assert not client(address, "nothing").health_check()
    assert client(address, "intents").get_endpoint_info()["model_id"] == "intents"


@pytest.mark.parametrize(
    ("model", "call", "status"),
    [
        ("nothing", lambda c: c.text_classification("hello"), 404),
        ("next-word", lambda c: c.text_classification("hello"), 404),
        ("de-en", lambda c: c.translation("Hallo", src_lang="de", tgt_lang="fr"), 422),
        ("intents", lambda c: c.text_classification("hello", function_to_apply="sigmoid"), 422),
    ],
)
def test_refusals(address, model, call, status):
    with pytest.raises(HfHubHTTPError) as caught:
        call(client(address, model))
    assert caught.value.response.status_code == status
    assert caught.value.response.json()["error"]


def test_a_token_is_a_key(closed):
    assert client(closed, "intents", token=KEY).text_classification("hello", top_k=1)
    with pytest.raises(HfHubHTTPError) as caught:
        client(closed, "intents", token="another-key").text_classification("hello", top_k=1)
    assert caught.value.response.status_code == 401
