"""Alignment and protected parts over HTTP, on the bundled model."""

import pytest
from fastapi.testclient import TestClient

from service.server.app import create_app
from service.settings import Settings


@pytest.fixture(scope="module")
def client(wait_until, _no_settings_from_outside):
    with TestClient(create_app(Settings(models=("de-en",), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def results(client, **body):
    response = client.post("/v1/translate", json=body)
    assert response.status_code == 200, response.text
    return response.json()["results"]


def test_links_come_with_each_translation(client) -> None:
    text = "Anna hat 3 Hunde. Tom wohnt in Berlin."
    (found,) = results(client, text=text, alignment=True, n_best=2)
    assert len(found["translations"]) == 2
    for each in found["translations"]:
        words = {(text[slice(*link["source"])], each["text"][slice(*link["target"])]) for link in each["alignment"]}
        assert {("Anna", "Anna"), ("3", "3"), ("Berlin", "Berlin")} <= words


def test_links_do_not_depend_on_requests_beside(client) -> None:
    texts = ["Anna hat 3 Hunde.", "Guten Morgen!", "Tom wohnt in Berlin und Maria in Wien."]
    together = results(client, text=texts, alignment=True)
    assert together == [each for text in texts for each in results(client, text=text, alignment=True)]


def test_parts_are_kept(client) -> None:
    text = "Besuchen Sie {url} und Haus Grün."
    (found,) = results(client, text=text, protect=["Haus Grün"])
    assert found["translations"][0]["text"].count("{url}") == 1
    assert found["translations"][0]["text"].count("Haus Grün") == 1


def test_sentences_and_words_have_confidences(client) -> None:
    text = "Guten Morgen! Tom wohnt in Berlin."
    (found,) = results(client, text=text, confidences=True)
    (translation,) = found["translations"]
    sentences = translation["sentences"]
    assert [text[slice(*each["source"])] for each in sentences] == ["Guten Morgen!", "Tom wohnt in Berlin."]
    words = [translation["text"][slice(*word["target"])] for each in sentences for word in each["words"]]
    assert words == ["Good", "morning", "!", "Tom", "lives", "in", "Berlin", "."]
    assert all(0 <= word["confidence"] <= 1 for each in sentences for word in each["words"])
    (plain,) = results(client, text=text)
    assert "sentences" not in plain["translations"][0]


def test_a_coverage_returns_a_set(client) -> None:
    texts = ["Guten Morgen!", "Er ging hin, ohne zu zögern."]
    found = results(client, text=texts, coverage=0.9)
    assert [len(each["translations"]) for each in found] == [1, 1], "most first translations are acceptable"
    larger = results(client, text=texts, coverage=0.95)
    for few, more in zip(found, larger, strict=True):
        assert more["translations"][: len(few["translations"])] == few["translations"]
        assert more["calibration_examples"] > 1000
    assert "calibration_examples" not in results(client, text="Guten Morgen!")[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": "Er kommt. Sie geht."}, "a set is of the translations of one sentence, and the text has 2"),
        ({"text": "Ja", "coverage": 0.99}, "a coverage of 0.99 is out of reach"),
        ({"text": "Ja", "coverage": 1}, "coverage: must be less than 1"),
        ({"text": "Ja", "temperature": 0.5}, "temperature cannot be chosen"),
    ],
)
def test_a_coverage_that_sets_cannot_have_is_refused(client, fields, message) -> None:
    response = client.post("/v1/translate", json={"coverage": 0.9, **fields})
    assert response.status_code == 422
    assert message in response.json()["detail"]


def test_numbers_follow_the_target_language_where_asked(client) -> None:
    for numbers, expected in ((None, "1.000,50"), ("copy", "1.000,50"), ("localize", "1,000.50")):
        (found,) = results(
            client, text="Das kostet 1.000,50 Euro.", **({} if numbers is None else {"numbers": numbers})
        )
        assert expected in found["translations"][0]["text"]
    response = client.post("/v1/translate", json={"text": "a", "numbers": "round"})
    assert (response.status_code, "numbers" in response.text) == (422, True)
