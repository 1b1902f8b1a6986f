"""Redirects lead to a path of the same service, whatever Host, scheme or path a request has."""

import asyncio

import pytest

from service.http.redirects import RelativeRedirects


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/v1/models/", "/v1/models"),
        ("/v2/models/", "/v2/models"),
        ("/v2/models//", "/v2/models"),
        ("/docs/?a=b//c", "/docs?a=b//c"),
    ],
)
def test_paths_with_slashes_at_the_end(client, path, location):
    headers = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "gopher"}
    answer = client.get(path, headers=headers, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, location)


@pytest.mark.parametrize("path", ["//evil.example/", "//evil.example/docs/", "/%2fevil.example/docs/", "//docs//"])
def test_paths_that_begin_like_an_address_are_not_redirected(client, path):
    answer = client.request("GET", f"http://testserver{path}", follow_redirects=False)
    assert answer.status_code == 404
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("http://evil.example/a/b?c=d", "/a/b?c=d"),
        ("HTTPS://evil.example", "/"),
        ("https://user@evil.example:8080//other.example/a", "/other.example/a"),
        ("//evil.example/a", "/evil.example/a"),
        ("/\\\\evil.example", "/evil.example"),
        ("/a", "/a"),
    ],
)
def test_addresses_become_paths(given, sent):
    messages = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 308, "headers": [(b"Location", given.encode())]})

    async def send(message):
        messages.append(message)

    asyncio.run(RelativeRedirects(app)({"type": "http"}, None, send))
    assert messages[0]["headers"] == [(b"Location", sent.encode())]
