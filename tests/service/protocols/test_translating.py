"""Tests of translation by languages, with a model of several targets."""

import threading

import pytest
from fastapi.testclient import TestClient

from models.store import load_bundle
from service.protocols import libretranslate
from service.protocols.languages import language_name, same_language, two_letters
from service.server.app import create_app
from service.settings import Settings

TEXT = "Das ist ein Haus."


@pytest.fixture(scope="module")
def client(many_languages_bundle, wait_until):
    with TestClient(create_app(Settings(model_dirs=(many_languages_bundle.parents[1],), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@pytest.fixture(scope="module")
def library(many_languages_bundle):
    return load_bundle(many_languages_bundle, threads=1)


def test_the_target_chooses_the_language(client, library):
    languages = library.config.languages
    listed = client.get("/languages").json()
    targets = next(each["targets"] for each in listed if each["code"] == languages.source[:2])
    assert len(targets) == len(languages.known_targets())
    for target in languages.known_targets():
        expected = library.translate([TEXT], target_language=target)[0].translations[0].text
        for code in (target, target.upper()):
            answer = client.post("/translate", json={"q": TEXT, "source": languages.source, "target": code})
            assert answer.json() == {"translatedText": expected}


def test_a_language_that_no_model_writes_is_refused(client):
    answer = client.post("/v2/translate", json={"text": [TEXT], "target_lang": "QQ"})
    assert answer.status_code == 400
    assert "no model translates to 'QQ'; served: " in answer.json()["message"]


def test_without_a_translation_model_there_are_no_languages(tiny_bundle, wait_until):
    with TestClient(create_app(Settings(model_dirs=(tiny_bundle.parents[1],), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert client.get("/languages").json() == []
        assert client.get("/v2/languages").json() == []
        answer = client.post("/v2/translate", json={"text": [TEXT], "target_lang": "EN-US"})
        assert answer.json()["message"] == "no model translates to 'EN-US'; served: none"


def test_more_sentences_than_the_queue_holds_are_refused(many_languages_bundle, wait_until):
    settings = Settings(model_dirs=(many_languages_bundle.parents[1],), threads=1, max_queue_items=2)
    with TestClient(create_app(settings)) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        target = client.get("/languages").json()[0]["targets"][0]
        answer = client.post("/translate", json={"q": TEXT * 5, "source": "auto", "target": target})
        assert answer.status_code == 413
        assert set(answer.json()) == {"error"}


def test_languages_of_admitted_texts_are_detected_away_from_the_event_loop(client, monkeypatch):
    threads = []
    listed = client.get("/languages").json()[0]
    source, target = listed["code"], listed["targets"][0]

    def detected_languages(text):
        threads.append(threading.current_thread().name.rpartition("_")[0])
        return [(source if text == TEXT else target, 0.9)]

    monkeypatch.setattr(libretranslate, "detected_languages", detected_languages)
    fields = {"source": "auto", "target": target}
    assert client.post("/translate", json={"q": [TEXT] * 2000, **fields}).status_code == 413
    assert len(threads) == 1  # that of the first text chooses the model
    threads.clear()
    found = client.post("/translate", json={"q": [TEXT, *["a"] * 79], **fields}).json()
    assert [each["language"] for each in found["detectedLanguage"]] == [source, *[target] * 79]
    assert threads[1:] == ["softserve-texts"] * 80


@pytest.mark.parametrize(
    ("code", "expected"),
    [("EN-GB", "en"), ("eng", "en"), ("srp_Cyrl", "sr"), ("de", "de"), ("zh-Hans", "zh"), ("xyz", "xyz"), ("", "")],
)
def test_codes_without_region_or_script(code, expected):
    assert two_letters(code) == expected


def test_the_same_language_has_several_codes():
    assert same_language("EN-GB", "eng")
    assert not same_language("de", "en")


def test_names():
    assert [language_name(code) for code in ("de", "deu", "EN-US", "xyz")] == ["German", "German", "English", "xyz"]
