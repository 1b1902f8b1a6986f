"""The package `libretranslatepy` against a server."""

import json
import urllib.error
import urllib.parse
import urllib.request

import pytest
from libretranslatepy import LibreTranslateAPI

from models import ModelStore
from service.settings import BUNDLED
from tests.clients.conftest import KEY

TEXT = "Wo ist der Bahnhof?"


@pytest.fixture(scope="module")
def translations():
    return [each.text for each in ModelStore(BUNDLED).load("de-en", threads=1).translate([TEXT])[0].translations]


def posted(url, **fields):
    request = urllib.request.Request(url, json.dumps(fields).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def refusal(call):
    with pytest.raises(urllib.error.HTTPError) as caught:
        call()
    return caught.value.code, json.load(caught.value)["error"]


def test_a_text_is_translated(address, translations):
    assert LibreTranslateAPI(address).translate(TEXT, "de", "en") == translations[0]
    assert LibreTranslateAPI(address).translate(TEXT, "auto", "en") == translations[0]


def test_languages_are_listed(address):
    german, english = LibreTranslateAPI(address).languages()
    assert german == {"code": "de", "name": "German", "targets": ["en"]}
    assert english == {"code": "en", "name": "English", "targets": []}


def test_the_language_of_a_text_is_detected(address):
    found = LibreTranslateAPI(address).detect("Wo ist denn hier bitte der nächste Bahnhof?")
    assert found[0]["language"] == "de"
    assert 50 < found[0]["confidence"] <= 100
    assert [each["confidence"] for each in found] == sorted((each["confidence"] for each in found), reverse=True)


def test_only_languages_that_are_listed_are_detected(address):
    client = LibreTranslateAPI(address)
    listed = {each["code"] for each in client.languages()}
    for text in ("Où est la gare, s'il vous plaît ?", "Где вокзал?", "Where is the station?", "Guten Morgen", "Hallo"):
        assert {each["language"] for each in client.detect(text)} <= listed
    for text in ("", "123", "***", "www.bahn.de"):
        assert client.detect(text) == []
        found = posted(f"{address}/translate", q=text, source="auto", target="en")
        assert found == {"translatedText": text, "detectedLanguage": {"language": "de", "confidence": 0.0}}


def test_a_batch_with_alternatives(address, translations):
    found = posted(f"{address}/translate", q=[TEXT, "Danke!"], source="auto", target="en", alternatives=2)
    assert found["translatedText"][0] == translations[0]
    assert [len(each) for each in found["alternatives"]] == [2, 2]
    assert found["detectedLanguage"][0]["language"] == "de"
    single = posted(f"{address}/translate", q=TEXT, source="de", target="en")
    assert single == {"translatedText": translations[0]}


def test_a_key_is_in_the_body(closed, translations):
    client = LibreTranslateAPI(closed, KEY)
    assert client.translate(TEXT, "de", "en") == translations[0]
    assert len(client.languages()) == 2
    assert client.detect(TEXT)
    for other in (LibreTranslateAPI(closed, "wrong"), LibreTranslateAPI(closed)):
        for call in (lambda c=other: c.translate(TEXT, "de", "en"), other.languages, lambda c=other: c.detect(TEXT)):
            assert refusal(call)[0] == 403


def test_refusals_are_in_its_form(address):
    status, error = refusal(lambda: LibreTranslateAPI(address).translate(TEXT, "fr", "en"))
    assert (status, error) == (400, "no model translates from 'fr' to 'en'; served: de to en")
    for fields in ({}, {"q": TEXT, "source": "de", "target": "en", "format": "rtf"}, {"q": "", "source": "de"}):
        status, error = refusal(lambda fields=fields: posted(f"{address}/translate", **fields))
        assert status == 400
        assert "translate" not in error
    status, error = refusal(lambda: urllib.request.urlopen(f"{address}/translate"))
    assert (status, error) == (405, "/translate is served with POST, not with GET")


def test_its_page_finds_its_settings(address):
    with urllib.request.urlopen(f"{address}/frontend/settings") as response:
        settings = json.load(response)
    assert settings["language"]["source"]["code"] == "de"
    assert settings["keyRequired"] is False
    with urllib.request.urlopen(f"{address}/health") as response:
        assert json.load(response) == {"status": "ok"}
