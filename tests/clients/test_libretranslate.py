"""The package `libretranslatepy` against a server."""

import io
import json
import urllib.error
import urllib.parse
import urllib.request

import docx
import httpx2
import pytest
from libretranslatepy import LibreTranslateAPI

from models import ModelStore
from service.settings import BUNDLED
from tests.clients.conftest import KEY
from tests.models.documents.samples import word_document

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


def test_pairs_through_a_third_language(pivot):
    client = LibreTranslateAPI(pivot)
    targets = {each["code"]: each["targets"] for each in client.languages()}
    assert targets == {"de": ["en", "fr"], "en": ["fr"], "fr": []}
    assert client.translate("Der Hund schläft.", "de", "fr") == "The dog is sleeping."
    found = posted(f"{pivot}/translate", q=["Der Hund schläft.", "Ja."], source="auto", target="fr", alternatives=1)
    assert (found["via"], [len(each) for each in found["alternatives"]]) == ("en", [1, 1])
    assert found["detectedLanguage"][0]["language"] == "de"
    english = posted(f"{pivot}/translate", q="Where is the next station, please?", source="auto", target="fr")
    assert "via" not in english
    marked = posted(f"{pivot}/translate", q="<b>Der</b> Hund<br>", source="de", target="fr", format="html")
    assert (marked["translatedText"].count("<b>"), marked["translatedText"].endswith("<br>")) == (1, True)


def test_a_target_can_be_a_setting(pivot, address):
    assert posted(f"{pivot}/translate", q="Der Hund schläft.", source="de")["translatedText"] == "The dog is sleeping."
    settings = httpx2.get(f"{pivot}/frontend/settings").json()
    assert settings["language"]["target"] == {"code": "fr", "name": "French"}
    status, error = refusal(lambda: posted(f"{address}/translate", q=TEXT, source="de"))
    assert (status, error) == (400, "target: is missing")


def test_html_keeps_its_tags(address):
    found = posted(f"{address}/translate", q="<p>Der <b>Hund</b> schläft.</p>", source="de", target="en", format="html")
    assert found == {"translatedText": "<p>The <b>dog</b> is sleeping.</p>"}


def sent(server, name, content, **fields):
    """Send a file as its page does."""
    data = {"source": "de", "target": "en", **fields}
    return httpx2.post(f"{server}/translate_file", files={"file": (name, content)}, data=data, timeout=60)


def test_a_file_is_translated_and_downloaded(closed):
    answer = sent(closed, "Mein Bericht.docx", word_document(), api_key=KEY)
    assert answer.status_code == 200, answer.text
    (url,) = answer.json().values()
    assert url.startswith(f"{closed}/download_file/")
    assert url.endswith(".Mein_Bericht_en.docx")
    found = httpx2.get(url)
    assert docx.Document(io.BytesIO(found.content)).paragraphs[0].text == "The report"
    assert found.headers["content-disposition"] == 'attachment; filename="Mein_Bericht_en.docx"'
    assert httpx2.get(url.replace("/download_file/", "/download_file/0")).status_code == 403
    identifier, key, name = url.rpartition("/")[2].split(".", 2)
    for other in (f"{identifier}.{key[::-1]}.{name}", f"{'0' * 32}.{key}.{name}"):
        assert httpx2.get(f"{closed}/download_file/{other}").status_code == 404


@pytest.mark.parametrize("source", ["de", "auto"])
def test_a_file_goes_through_a_third_language(pivot, source):
    (url,) = sent(pivot, "a.txt", b"Der Hund ist hier.\n\nJa!\n", source=source, target="fr").json().values()
    assert httpx2.get(url).text == "The dog is here.\n\nYes!\n"


@pytest.mark.parametrize(
    ("name", "content", "fields", "status", "words"),
    [
        ("a.pdf", b"x", {}, 400, "no format"),
        ("a.txt", b"", {}, 400, "empty"),
        ("a.docx", b"x", {}, 400, "docx"),
        ("a.txt", b"x", {"target": "es"}, 400, "no model translates"),
        ("a.txt", b"x", {"api_key": "wrong"}, 403, "key"),
    ],
)
def test_files_are_refused(closed, name, content, fields, status, words):
    answer = sent(closed, name, content, **{"api_key": KEY, **fields})
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


def test_files_need_a_database(address, pivot):
    assert sent(address, "a.txt", b"Ja").status_code == 404
    for server, expected in ((address, False), (pivot, True)):
        settings = httpx2.get(f"{server}/frontend/settings").json()
        assert settings["filesTranslation"] is expected
        assert (".docx" in settings["supportedFilesFormat"]) is expected
