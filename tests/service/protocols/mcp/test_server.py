"""Hosts, origins, bodies and bugs of the MCP endpoint."""

import pytest
from fastapi.testclient import TestClient

from service.protocols.mcp import tools
from service.protocols.mcp.server import allowed_origins
from service.server.app import create_app
from service.settings import Settings

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def client():
    settings = Settings(
        models=(), protocols="mcp", mcp_hosts="mcp.example.org", cors_origins="https://page.example.org"
    )
    with TestClient(create_app(settings), base_url="http://localhost") as found:
        yield found


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8000", 200),
        ("127.0.0.1:1", 200),
        ("mcp.example.org", 200),
        ("evil.example.org", 421),
        ("localhost.example.org", 421),
    ],
)
def test_other_hosts_are_refused(client, host, status):
    assert client.post("/mcp", json=LIST, headers={**ACCEPT, "Host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("https://page.example.org", 200),
        ("https://evil.example.org", 403),
        ("null", 403),
    ],
)
def test_other_origins_are_refused(client, origin, status):
    assert client.post("/mcp", json=LIST, headers={**ACCEPT, "Origin": origin}).status_code == status


def test_origins_are_those_of_the_hosts_and_of_pages_that_may_call():
    found = allowed_origins(["localhost"], Settings(cors_origins="https://a.org, https://b.org"))
    assert {"http://localhost", "https://localhost:*", "https://a.org", "https://b.org"} <= set(found)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"jsonrpc": "2.0"}', b"[" * 100_000, b"\xff"])
def test_rubbish_is_refused(client, content):
    answer = client.post("/mcp", content=content, headers={**ACCEPT, "Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500


def test_there_are_no_sessions_and_no_streams(client):
    assert client.get("/mcp", headers=ACCEPT).status_code == 405
    assert client.delete("/mcp").status_code == 405
    assert "mcp-session-id" not in client.post("/mcp", json=LIST, headers=ACCEPT).headers


def test_a_bug_is_logged_and_not_shown(client, monkeypatch, caplog):
    async def broken(request, arguments):
        raise ZeroDivisionError("secret")

    tool = tools.Tool("classify", "it breaks", tools.NoArguments, broken)
    monkeypatch.setitem(tools.TOOLS, "break", tool)
    content = {**LIST, "method": "tools/call", "params": {"name": "break", "arguments": {}}}
    found = client.post("/mcp", json=content, headers=ACCEPT).json()["result"]
    assert found["isError"] is True
    assert "secret" not in found["content"][0]["text"]
    assert "an error in the tool break" in caplog.text
