"""`/v1/documents`: upload, progress, result, cancellation, refusals."""

import io
import json

import docx
import pytest
from fastapi.testclient import TestClient

from models.documents import Limits, format_of, read_document
from service.jobs.worker import document_options
from service.server.app import create_app
from service.settings import Settings
from tests.models.documents.samples import SRT, word_document
from tests.support.waiting import wait_until

KEYS = ("key-of-the-first-client-1", "key-of-the-second-client-2")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    directory = tmp_path_factory.mktemp("jobs")
    (directory / "keys.txt").write_text("\n".join(KEYS))
    settings = Settings(
        threads=1,
        models=("de-en",),
        database=f"sqlite:///{directory / 'jobs.db'}",
        max_document_bytes=100_000,
        max_documents=2,
        api_keys=directory / "keys.txt",
    )
    with TestClient(create_app(settings, load_first=True), headers={"x-api-key": KEYS[0]}) as client:
        yield client


def done(client, accepted):
    """Wait for the end of a job, and return its status."""
    assert accepted.status_code == 202, accepted.text
    path, key = f"/v1/documents/{accepted.json()['id']}", {"X-Document-Key": accepted.json()["key"]}
    wait_until(lambda: client.get(path, headers=key).json()["status"] in ("done", "error"))
    return client.get(path, headers=key).json(), client.get(f"{path}/result", headers=key)


def test_a_form_is_translated(client):
    name = "../../etc/a.docx"
    status, result = done(client, client.post("/v1/documents", files={"file": (name, word_document())}))
    assert (status["status"], status["format"], status["percent"], status["failed"]) == ("done", "docx", 100.0, 0)
    assert docx.Document(io.BytesIO(result.content)).paragraphs[0].text == "The report"
    assert result.headers["content-disposition"] == 'attachment; filename="translated.docx"'


def test_a_body_is_translated(client):
    path = "/v1/documents?name=a.srt&source_language=de&target_language=en"
    status, result = done(client, client.post(path, content=SRT.encode()))
    assert status["status"] == "done"
    assert result.text.endswith("- Yes.\r\n- No.\r\n")


def test_parameters_and_options_count(client):
    content = json.dumps({"a": "Das Hauptmenü ist offen.", "b": "Ja"}, ensure_ascii=False).encode()
    data = {"params": '{"protect": ["Hauptmenü"]}', "paths": "a"}
    _, result = done(client, client.post("/v1/documents", files={"file": ("a.json", content)}, data=data))
    assert "Hauptmenü" in result.json()["a"]
    assert result.json()["b"] == "Ja"


def test_attributes_that_people_see_are_translated(client):
    content = b"<p>Der <b>Hund</b>.</p><q>Ja</q><img alt=Katze title='Der Hund'>"
    _, result = done(client, client.post("/v1/documents?name=a.html", content=content))
    assert result.text == "<p>The <b>dog</b>.</p><q>Yes</q><img alt=\"cat\" title='The dog'>"
    params = json.dumps({"ignore_tags": ["q"], "translate_attributes": ["title"]})
    accepted = client.post("/v1/documents", files={"file": ("a.html", content)}, data={"params": params})
    _, result = done(client, accepted)
    assert result.text == "<p>The <b>dog</b>.</p><q>Ja</q><img alt=Katze title='The dog'>"


def test_a_job_of_a_version_without_attributes_has_the_segments_of_that_version():
    html = b"<img alt=Katze><p>Ja</p>"
    options = document_options({"columns": []}, Limits())
    assert [each.text for each in read_document(html, format_of("html"), options).segments] == ["Ja"]


def test_the_format_of_the_parameters_is_that_of_values(client):
    content, data = b'{"a": "<q>Ja</q> <b>Nein</b>"}', {"params": '{"format": "html", "ignore_tags": ["q"]}'}
    _, result = done(client, client.post("/v1/documents", files={"file": ("a.json", content)}, data=data))
    assert result.json()["a"] == "<q>Ja</q> <b>No</b>"


def test_a_bad_document_ends_with_an_error(client):
    status, result = done(client, client.post("/v1/documents?name=a.docx", content=b"no archive"))
    assert (status["status"], status["error"]) == ("error", "docx: File is not a zip file")
    assert (result.status_code, result.json()["detail"]) == (409, status["error"])


def test_texts_that_are_refused_stay(client):
    content = "Guten Morgen!\n" + "wort " * 5000 + "\nJa.\n"
    status, result = done(client, client.post("/v1/documents?name=a.txt", content=content.encode()))
    assert (status["failed"], result.text) == (1, "Good morning!\n" + "wort " * 5000 + "\nYes.\n")


def test_texts_of_low_confidence_are_counted_and_named(client):
    content = "Guten Morgen!\nThis sentence is in English already.\nThis sentence is in English already.\n"
    status, _ = done(client, client.post("/v1/documents?name=a.txt", content=content.encode()))
    named = [{"context": "line 2", "text": "This sentence is in English already."}]
    assert (status["low_confidence"], status["low_confidence_texts"]) == (2, named)


@pytest.mark.parametrize(
    ("query", "content", "status", "words"),
    [
        ("name=a.pdf", b"x", 422, "no format"),
        ("name=a.txt", b"", 400, "empty"),
        ("name=a.txt", bytes(200_000), 413, "larger"),
        ("name=a.txt&nothing=1", b"x", 422, "nothing: unknown field"),
        ("name=a.txt&params={", b"x", 422, "JSON"),
        ("name=a.txt&params=%7B%22beam_size%22:1000%7D", b"x", 422, "beam_size"),
        ("name=a.txt&params=%7B%22coverage%22:0.9%7D", b"x", 422, "coverage: there is none of documents"),
        ("name=a.txt&model=nope", b"x", 404, "unknown model"),
        ("name=a.txt&target_language=xx", b"x", 422, "no model translates"),
    ],
)
def test_requests_are_refused(client, query, content, status, words):
    found = client.post(f"/v1/documents?{query}", content=content)
    assert (found.status_code, words in found.text) == (status, True), found.text


def test_a_form_needs_a_file(client):
    assert client.post("/v1/documents", files={"other": ("a.txt", b"x")}).status_code == 400
    assert client.post("/v1/documents", files={"file": (None, b"x")}).status_code == 400


def test_documents_belong_to_the_key_that_sent_them(client):
    accepted = client.post("/v1/documents?name=a.txt", content=b"Ja").json()
    path, key = f"/v1/documents/{accepted['id']}", {"X-Document-Key": accepted["key"]}
    assert client.get(path, headers=key).status_code == 200
    assert client.get(path, params={"key": accepted["key"]}).status_code == 200
    assert client.get(path).status_code == 404
    assert client.get(path, headers={"X-Document-Key": "x"}).status_code == 404
    assert client.get(path, headers={**key, "x-api-key": KEYS[1]}).status_code == 404
    assert client.get(path, headers={**key, "x-api-key": "wrong"}).status_code == 401
    assert client.delete(path, headers=key).status_code == 204
    assert client.get(path, headers=key).status_code == 404
    assert client.get(f"{path}/result", headers=key).status_code == 404


def test_unfinished_documents_of_a_key_are_limited_and_can_be_cancelled(client):
    long = "\n".join(f"Das ist der Satz Nummer {number}, und er ist lang." for number in range(1500)).encode()
    sent = [client.post("/v1/documents?name=a.txt", content=long) for _ in range(3)]
    assert [each.status_code for each in sent] == [202, 202, 429]
    assert "Retry-After" in sent[2].headers
    for each in sent[:2]:
        accepted = each.json()
        assert client.delete(f"/v1/documents/{accepted['id']}?key={accepted['key']}").status_code == 204
    status, _ = done(client, client.post("/v1/documents?name=a.txt", content=b"Ja."))
    assert status["status"] == "done"


def test_without_a_database_there_are_no_documents(tmp_path):
    with TestClient(create_app(Settings(model_dirs=(tmp_path,), watch_seconds=60))) as client:
        assert client.post("/v1/documents?name=a.txt", content=b"x").status_code == 404
