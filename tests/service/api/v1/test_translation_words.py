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
