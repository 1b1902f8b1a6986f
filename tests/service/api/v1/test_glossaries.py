"""`/v1/glossaries`, and `glossary_id` of texts and documents."""

import pytest
from fastapi.testclient import TestClient

from service.server.app import create_app
from service.settings import Settings
from tests.support.waiting import wait_until

TEXT = "Wo ist der Bahnhof?"
TERMS = {"Bahnhof": "railway depot", "Haus": "residence"}
KEYS = ("key-of-the-first-client-1", "key-of-the-second-client-2")
LANGUAGES = {"source_language": "de", "target_language": "en"}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    directory = tmp_path_factory.mktemp("glossaries")
    (directory / "keys.txt").write_text("\n".join(KEYS))
    settings = Settings(
        threads=1,
        models=("de-en",),
        database=f"sqlite:///{directory / 'store.db'}",
        max_glossaries=4,
        api_keys=directory / "keys.txt",
    )
    with TestClient(create_app(settings, load_first=True), headers={"x-api-key": KEYS[0]}) as client:
        yield client


@pytest.fixture
def glossary(client):
    body = {"name": "Terms", "dictionaries": [{**LANGUAGES, "entries": TERMS}]}
    made = client.post("/v1/glossaries", json=body)
    assert made.status_code == 201, made.text
    yield made.json()
    client.delete(f"/v1/glossaries/{made.json()['id']}")


def test_a_glossary_is_stored_listed_and_deleted(client, glossary):
    assert (glossary["name"], glossary["dictionaries"]) == ("Terms", [{**LANGUAGES, "entry_count": 2}])
    path = f"/v1/glossaries/{glossary['id']}"
    assert client.get(path).json() == glossary
    assert client.get("/v1/glossaries").json() == {"glossaries": [glossary]}
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404
    assert client.get("/v1/glossaries").json() == {"glossaries": []}


def test_entries_are_json_and_rows(client, glossary):
    path = f"/v1/glossaries/{glossary['id']}/entries"
    assert client.get(path).json() == {"entries": TERMS}
    assert client.get(path, headers={"Accept": "text/csv"}).text == "Bahnhof,railway depot\nHaus,residence\n"
    tsv = client.get(path, params={"format": "tsv", **LANGUAGES})
    assert tsv.text == "Bahnhof\trailway depot\nHaus\tresidence\n"
    assert tsv.headers["content-type"] == "text/tab-separated-values; charset=utf-8"
    replaced = client.put(
        path, params=LANGUAGES, content="Kind\tinfant\n", headers={"Content-Type": "text/tab-separated-values"}
    )
    assert replaced.json()["dictionaries"] == [{**LANGUAGES, "entry_count": 1}]
    assert client.put(path, params=LANGUAGES, json={"entries": TERMS}).json() == glossary


def test_a_glossary_of_rows(client):
    query = {"name": "Rows", **LANGUAGES}
    made = client.post("/v1/glossaries", params=query, content="Haus,residence\n", headers={"Content-Type": "text/csv"})
    assert made.status_code == 201, made.text
    assert client.get(f"/v1/glossaries/{made.json()['id']}/entries").json() == {"entries": {"Haus": "residence"}}
    client.delete(f"/v1/glossaries/{made.json()['id']}")


def translated(client, **body):
    found = client.post("/v1/translate", json={"text": TEXT, **body})
    assert found.status_code == 200, found.text
    return found.json()["results"][0]["translations"][0]


def test_texts_are_translated_by_a_glossary(client, glossary):
    expected = translated(client, glossary=TERMS)
    assert "railway depot" in expected["text"]
    for body in ({"glossary_id": glossary["id"]}, {"glossary_id": [glossary["id"]], **LANGUAGES}):
        assert translated(client, **body) == expected


def test_a_document_keeps_the_glossary_it_was_sent_with(client, glossary):
    query = {"name": "a.txt", "glossary_id": glossary["id"]}
    accepted = client.post("/v1/documents", params=query, content=TEXT.encode()).json()
    client.delete(f"/v1/glossaries/{glossary['id']}")
    path, key = f"/v1/documents/{accepted['id']}", {"key": accepted["key"]}
    wait_until(lambda: client.get(path, params=key).json()["status"] in ("done", "error"))
    assert "railway depot" in client.get(f"{path}/result", params=key).text


def test_glossaries_belong_to_their_key(client, glossary):
    path, other = f"/v1/glossaries/{glossary['id']}", {"x-api-key": KEYS[1]}
    assert client.get("/v1/glossaries", headers=other).json() == {"glossaries": []}
    for method in ("GET", "DELETE"):
        assert client.request(method, path, headers=other).status_code == 404
    assert client.get(f"{path}/entries", headers=other).status_code == 404
    refused = client.post("/v1/translate", json={"text": TEXT, "glossary_id": glossary["id"]}, headers=other)
    assert refused.status_code == 404
    assert client.get(path, headers={"x-api-key": "wrong"}).status_code == 401


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"glossary_id": "x"}, 404, "no such glossary"),
        ({"glossary_id": "x", "glossary": TERMS}, 422, "either glossary or glossary_id"),
        ({"glossary_id": ["x"] * 6}, 422, "glossary_id"),
        ({"glossary_id": 1}, 422, "glossary_id"),
    ],
)
def test_requests_are_refused(client, body, status, words):
    found = client.post("/v1/translate", json={"text": TEXT, **body})
    assert (found.status_code, words in found.text) == (status, True), found.text
    assert "valid string" not in found.text


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"name": "a", "dictionaries": []}, 422, "dictionaries"),
        ({"name": "a", "dictionaries": [{**LANGUAGES, "entries": {}}]}, 422, "no entries"),
        ({"name": "a", "dictionaries": [{**LANGUAGES, "entries": {"a": "b"}}] * 2}, 422, "same languages"),
        ({"name": "", "dictionaries": [{**LANGUAGES, "entries": {"a": "b"}}]}, 422, "name"),
        ({"name": "a", "dictionaries": [{**LANGUAGES, "entries": {"a": "b"}, "x": 1}]}, 422, "x: unknown field"),
        (
            {"name": "a", "dictionaries": [{"source_language": "de", "target_language": "de", "entries": TERMS}]},
            422,
            "same",
        ),
    ],
)
def test_glossaries_that_cannot_be_used_are_refused(client, body, status, words):
    found = client.post("/v1/glossaries", json=body)
    assert (found.status_code, words in found.text) == (status, True), found.text


def test_glossaries_of_a_key_are_limited(client):
    made = []
    for _ in range(5):
        body = {"name": "Terms", "dictionaries": [{**LANGUAGES, "entries": TERMS}]}
        made.append(client.post("/v1/glossaries", json=body))
    assert [each.status_code for each in made] == [201, 201, 201, 201, 409]
    for each in made[:4]:
        client.delete(f"/v1/glossaries/{each.json()['id']}")


def test_without_a_database_the_reason_is_named(tmp_path):
    with TestClient(create_app(Settings(model_dirs=(tmp_path,), watch_seconds=60))) as client:
        assert client.get("/v1/glossaries").status_code == 404
        found = client.post("/v1/translate", json={"text": TEXT, "glossary_id": "x", **LANGUAGES})
        assert (found.status_code, "without --database" in found.text) == (422, True)
