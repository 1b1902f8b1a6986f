"""Tests of what holds for every protocol: keys, errors in its own form, and that it can be left out."""

import re

import pytest
from fastapi.testclient import TestClient
from starlette.responses import PlainTextResponse

from service.protocols.protocol import Protocol, error_forms, load_protocols
from service.server.app import create_app
from service.settings import NATIVE, PROTOCOLS, Settings

KEY = "key-of-the-tests-0123456789"
SHARED = {"/v1/models"}
"""Paths of the native endpoints, too, which come first."""
VALUES = {"{model}": "intents", "{version}": "2"}
ROUTES = [
    (name, method, re.sub(r"{\w+(:path)?}", lambda part: VALUES.get(part[0], "status"), route.path))
    for name in PROTOCOLS
    for protocol in load_protocols([name])
    for route in protocol.router.routes
    for method in sorted(route.methods - {"HEAD"})
    if route.path not in SHARED
]
OPEN = [re.compile(path) for protocol in load_protocols(PROTOCOLS) for path in protocol.open_paths]
MEMBERS = {
    "oip": {"error"},
    "openai": {"error"},
    "deepl": {"message", "detail"},
    "libretranslate": {"error"},
    "tei": {"error", "error_type"},
    "hf": {"error"},
    "mcp": {"jsonrpc", "id", "error"},
}
REFUSALS = {"oip": 401, "openai": 401, "deepl": 403, "libretranslate": 403, "tei": 401, "hf": 401, "mcp": 401}
WITHOUT_BODY = re.compile(
    r"/v2/(repository/index|.*(logging|trace|sharedmemory).*)|/v1/(chat/completions|embeddings|responses)"
)


@pytest.fixture(scope="module")
def closed(tmp_path_factory, wait_until):
    """A client of a service that needs a key."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(KEY)
    with TestClient(
        create_app(Settings(threads=1, api_keys=keys, max_body_bytes=1000, protocols=",".join(PROTOCOLS)))
    ) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def test_longer_prefixes_are_before_shorter_ones():
    def protocol(*prefixes):
        return Protocol(router=None, prefixes=prefixes, error=lambda failure: PlainTextResponse(prefixes[0]))

    forms = error_forms([protocol("/v2"), protocol("/v2/translate", "/a")])
    assert list(forms) == ["/v2/translate", "/v2", "/a"]


@pytest.mark.parametrize(("name", "method", "path"), ROUTES)
def test_every_route_needs_a_key(closed, name, method, path):
    if path.endswith("/health") or any(each.fullmatch(path) for each in OPEN):
        assert closed.request(method, path).status_code == 200
        return
    for body in ({}, {"api_key": "wrong"}, {"api_key": None}):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "DeepL-Auth-Key wrong"}):
            answer = closed.request(method, path, json=body, headers=headers)
            assert answer.status_code == REFUSALS[name], answer.text
            assert set(answer.json()) == MEMBERS[name]
    refused = (401,) if "/repository/models/" in path else (401, 403)  # which take an administrator's key
    assert closed.request(method, path, headers={"Authorization": f"Bearer {KEY}"}).status_code not in refused


@pytest.mark.parametrize(("name", "method", "path"), ROUTES)
def test_errors_are_in_its_form(closed, name, method, path):
    key = {"Authorization": f"Bearer {KEY}"}
    wrong = [closed.request("PUT", path, headers=key)]
    if name == "mcp":  # the body is for its package
        wrong.append(closed.request(method, path, content=b"x" * 2000, headers=key))
    elif method == "POST" and not WITHOUT_BODY.fullmatch(path):
        wrong.append(closed.request(method, path, content=b"x" * 2000, headers=key))
        wrong.append(closed.request(method, path, content=b"{", headers=key | {"Content-Type": "application/json"}))
        wrong.append(closed.request(method, path, content=b"{}", headers=key | {"Content-Encoding": "gzip"}))
        wrong.append(closed.request(method, path, json=[], headers=key))
        wrong.append(closed.request(method, path, content=b"a=%ff", headers=key | {"Content-Type": FORM}))
    for answer in wrong:
        assert 400 <= answer.status_code < 500, answer.text
        assert set(answer.json()) == MEMBERS[name]
        assert answer.headers["x-request-id"]


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize("name", PROTOCOLS)
def test_each_can_be_left_out(name):
    others = ",".join(each for each in (NATIVE, *PROTOCOLS) if each != name)
    client = TestClient(create_app(Settings(models=("next-word:4",), protocols=others)))
    for each, method, path in ROUTES:
        if each == name:
            answer = client.request(method, path)
            assert answer.status_code == 404


def test_native_endpoints_can_be_left_out():
    client = TestClient(create_app(Settings(models=("next-word:4",), protocols="deepl")))
    assert client.post("/v1/next-word", json={"context": "a"}).status_code == 404
    assert client.get("/livez").status_code == 200
    assert client.get("/v1/models").status_code == 404
    client = TestClient(create_app(Settings(models=("next-word:4",), protocols="openai")))
    assert client.get("/v1/models").json() == {"object": "list", "data": []}


def test_pages_of_other_origins_may_call_where_they_are_allowed():
    headers = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    for origins, expected in (("", None), ("https://example.org", "https://example.org"), ("*", "*")):
        client = TestClient(create_app(Settings(models=("next-word:4",), cors_origins=origins)))
        answer = client.options("/translate", headers=headers)
        assert answer.headers.get("access-control-allow-origin") == expected
