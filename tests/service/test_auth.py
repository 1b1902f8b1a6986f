"""Who may ask."""

import pytest
from fastapi.testclient import TestClient

from service.http.auth import KeyRing
from service.http.key_file import KeyFileError, key_identity, read_keys
from service.server.app import create_app
from service.settings import Settings

USER, OTHER, ADMIN = "user-key-of-some-length", "another-key-of-some-length", "admin-key-of-some-length"


@pytest.fixture(scope="module")
def client(tmp_path_factory, wait_until):
    """The service with a file of two keys."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"# of the front desk\n{USER}\n\n  {OTHER}  \n")
    with TestClient(create_app(Settings(threads=1, models=("next-word:4",), api_keys=keys))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def ask(client, **headers):
    return client.post("/v1/next-word", json={"context": "thank you", "top_k": 1}, headers=headers)


@pytest.mark.parametrize("key", [USER, OTHER])
@pytest.mark.parametrize(
    "header", [("Authorization", "Bearer {}"), ("authorization", "bearer  {}"), ("X-API-Key", "{}")], ids=str
)
def test_a_key_opens(client, key, header):
    name, value = header
    assert ask(client, **{name: value.format(key)}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": USER},
        {"Authorization": f"Basic {USER}"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {USER[:-1]}"},
        {"Authorization": f"Bearer {USER}x"},
        {"Authorization": f"Bearer {USER} {OTHER}"},
        {"X-API-Key": "# of the front desk"},
        {"X-API-Key": ""},
        {"X-API-Key": "\xff".encode("latin-1")},
    ],
    ids=ascii,
)
def test_what_is_no_key_is_refused(client, detail_of, headers):
    response = client.post("/v1/next-word", content=b"rubbish", headers=headers)
    assert detail_of(response, 401).startswith("a valid key is needed")
    assert response.headers["www-authenticate"] == "Bearer"
    assert USER not in response.text


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/docs", "/openapi.json"])
def test_probes_and_documentation_are_open(client, path):
    assert client.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/next-word", "/nowhere", "/livez/"])
def test_everything_else_is_closed(client, path, detail_of):
    detail_of(client.get(path, follow_redirects=False), 401)


def test_without_keys_everybody_may_ask(serve):
    assert ask(serve()).status_code == 200


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no key"),
        ("# nothing\n\n", "holds no key"),
        (f"{USER}\nshort\n", "line 2: a key has 16 visible characters or more"),
        ("two words that are long\n", "line 1"),
        ("schlüssel-von-einiger-länge\n", "ASCII"),
    ],
)
def test_a_file_without_proper_keys_keeps_the_service_from_starting(tmp_path, content, said):
    path = tmp_path / "keys"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(KeyFileError, match=said) as caught:
        create_app(Settings(api_keys=path))
    assert not any(key in str(caught.value) for key in (USER, "short", "two words"))


def test_a_byte_order_mark_is_no_part_of_a_key(tmp_path):
    (tmp_path / "keys").write_bytes(b"\xef\xbb\xbf" + USER.encode() + b"\n")
    assert read_keys(tmp_path / "keys") == [USER]


def test_a_missing_file_keeps_the_service_from_starting(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        create_app(Settings(api_keys=tmp_path / "nowhere"))


def test_a_ring_keeps_no_key():
    ring = KeyRing([ADMIN, USER])
    assert [ring.name(key) for key in (ADMIN, USER, OTHER)] == [key_identity(ADMIN), key_identity(USER), None]
    assert USER not in repr(vars(ring))


def test_the_document_says_how_to_send_a_key(client):
    assert isinstance(client, TestClient)
    document = client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert document["paths"]["/v1/score"]["post"]["security"] == [{"bearer": []}]
    assert "401" in document["paths"]["/v1/score"]["post"]["responses"]
