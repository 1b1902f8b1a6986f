"""Translation of HTML, XML and Markdown over HTTP, on the bundled model."""

import pytest
from fastapi.testclient import TestClient

from service.server.app import create_app
from service.settings import Settings


@pytest.fixture(scope="module")
def client(wait_until, _no_settings_from_outside):
    protocols = "native,libretranslate,deepl"
    with TestClient(create_app(Settings(models=("de-en",), threads=1, protocols=protocols))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def translated(client, text, **body):
    response = client.post("/v1/translate", json={"text": text, **body})
    assert response.status_code == 200, response.text
    return response.json()["results"][0]["translations"][0]["text"]


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        (
            "html",
            "<p>Anna hat <b>3</b> Hunde und <i>zwei Katzen</i>.</p><!-- c -->",
            "<p>Anna has <b>3</b> dogs and <i>two cats</i>.</p><!-- c -->",
        ),
        ("xml", "<a>Gestern habe ich <q>Tom</q> gesehen.</a>", "<a>I saw <q>Tom</q> yesterday.</a>"),
        ("markdown", "# Das ist *ein Test*\n\n    nein", "# This is *a test*\n\n    nein"),
        ("text", "Guten Morgen!", "Good morning!"),
    ],
)
def test_formats(client, form, text, expected) -> None:
    assert translated(client, text, format=form) == expected


def test_branches_of_messages_are_translated(client) -> None:
    text = "{n, plural, one {# Hund} other {# Hunde}}"
    plain = client.post("/v1/translate", json={"text": text}).json()["results"][0]
    assert (plain["translations"][0]["text"], plain["low_confidence"]) == (text, True)
    pytest.importorskip("pyicumessageformat")
    assert translated(client, text, format="icu") == "{n, plural, one {# dog} other {# dogs}}"


def test_elements_and_attributes(client) -> None:
    text = "<p title='Guten Morgen!'>Tom wohnt in Berlin.</p><div>Ja</div>"
    assert translated(client, text, format="html", ignore_tags=["div"], translate_attributes=["title"]) == (
        "<p title='Good morning!'>Tom lives in Berlin.</p><div>Ja</div>"
    )


def test_n_best_translations_all_have_the_tags(client) -> None:
    body = {"text": "<p>Tom hat <b>3</b> Hunde.</p><p>Ja</p>", "format": "html", "n_best": 3}
    (found,) = client.post("/v1/translate", json=body).json()["results"]
    assert len(found["translations"]) == 3
    for each in found["translations"]:
        assert "<b>3</b>" in each["text"]
        assert each["text"].count("<p>") == each["text"].count("</p>") == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"format": "rtf"}, "format: must be "),
        ({"format": "xml", "text": "<a>"}, "format xml: mismatched tag"),
        ({"format": "html", "alignment": True}, "alignment: there is none of texts with markup"),
        ({"ignore_tags": ["p"]}, "ignore_tags is for the formats html and xml, not for text"),
        (
            {"format": "markdown", "translate_attributes": ["alt"]},
            "translate_attributes is for the formats html and xml",
        ),
        ({"format": "html", "ignore_tags": ["p"] * 101}, "ignore_tags: must have at most 100 items"),
        ({"format": "html", "text": "<p>" * 50_001}, "the text has more than 50000 tags"),
    ],
)
def test_what_is_refused(client, body, message) -> None:
    response = client.post("/v1/translate", json={"text": "<p>Hallo", **body})
    assert response.status_code == 422
    assert message in response.text


def test_libretranslate_translates_html(client) -> None:
    body = {"q": "<p>Tom <b>wohnt in Berlin</b>.</p>", "source": "auto", "target": "en", "format": "html"}
    found = client.post("/translate", json=body).json()
    assert found["translatedText"] == "<p>Tom <b>lives in Berlin</b>.</p>"
    assert found["detectedLanguage"]["language"] == "de"


@pytest.mark.parametrize("tags", [["q", "i"], "q,i"])
def test_deepl_handles_tags(client, tags) -> None:
    body = {"text": ["Tom wohnt in <b>Berlin</b>.<p><q>Nein</q></p>"], "target_lang": "EN", "tag_handling": "xml"}
    (found,) = client.post("/v2/translate", json={**body, "ignore_tags": tags}).json()["translations"]
    assert "<b>Berlin</b>" in found["text"]
    assert "<q>Nein</q>" in found["text"]
    refused = client.post("/v2/translate", json={**body, "tag_handling": "rtf"})
    assert refused.status_code == 400
