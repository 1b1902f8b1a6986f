"""Errors of requests that never reach the application, each in the form of the protocol that its path belongs to."""

import json

import pytest

from service.protocols.protocol import error_forms, load_protocols
from service.server.http_protocol import MAX_HEAD_BYTES
from service.settings import PROTOCOLS
from tests.service.raw_http import everything, get, refused

NAMES = {
    "/v1/classify": {"type", "title", "status", "detail", "request_id"},
    "/v2/models/intents": {"error"},
    "/v2/translate": {"message", "detail"},
    "/translate": {"error"},
    "/predict": {"error", "error_type"},
    "/hf/intents": {"error"},
    "/v1/completions": {"error"},
}
"""Members of the bodies of errors."""


@pytest.fixture
def server(served):
    """A server that answers errors as one does that serves all protocols but mcp."""
    found = served()
    found.server._connections.forms = error_forms(load_protocols([name for name in PROTOCOLS if name != "mcp"]))
    return found


def error(data, status):
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), data[:200]
    assert b"connection: close" in head.lower()
    assert b"x-request-id: " in head
    return json.loads(body)


@pytest.mark.parametrize("path", NAMES)
@pytest.mark.parametrize(
    ("status", "target", "header"),
    [
        (414, "?" + "a" * MAX_HEAD_BYTES, "A: b"),
        (414, "/" + "a" * MAX_HEAD_BYTES, "A: b"),
        (431, "", "A: " + "b" * MAX_HEAD_BYTES),
        (431, "?a=b", "\r\n".join(["A: b"] * 200)),
        (400, "", "not a header"),
        (400, "", "Host: another"),
    ],
)
def test_each_protocol_has_its_form(server, path, status, target, header):
    body = error(everything(server.connect(get(path + target, header))), status)
    assert set(body) == NAMES[path]
    if path == "/v1/completions":
        assert body["error"]["type"] == "invalid_request_error"
    if path == "/predict" and status != 400:
        assert body["error_type"] == "Validation"


def test_headers_that_come_late(served):
    server = served(header_timeout=0.3)
    server.server._connections.forms = error_forms(load_protocols(["oip"]))
    connection = server.connect(b"GET /v2/models/intents HTTP/1.1\r\nA: ")
    assert set(error(everything(connection), 408)) == {"error"}


@pytest.mark.parametrize(
    ("version", "hosts", "detail"),
    [
        ("1.1", [], "the request has no Host header"),
        ("1.1", ["a", "a"], "the request has 2 Host headers"),
        ("1.1", ["a", "b"], "the request has 2 Host headers"),
        ("1.0", ["a", "b"], "the request has 2 Host headers"),
        ("1.1", ["a/b"], "the Host header is not a name or address with a port"),
        ("1.1", ["a@b"], "the Host header is not a name or address with a port"),
        ("1.1", ["a b"], "the Host header is not a name or address with a port"),
    ],
)
def test_requests_have_one_valid_host(served, version, hosts, detail):
    lines = [f"GET /echo HTTP/{version}", *(f"Host: {host}" for host in hosts), "", ""]
    refused(everything(served().connect("\r\n".join(lines).encode())), 400, detail)


@pytest.mark.parametrize(
    ("version", "hosts"),
    [
        ("1.0", []),
        ("1.0", ["a"]),
        ("1.1", [""]),
        ("1.1", ["[::1]:80"]),
        ("1.1", ["a-b.c_d:8000"]),
        ("1.1", ["127.0.0.1"]),
    ],
)
def test_other_requests_are_answered(served, version, hosts):
    lines = [f"GET /echo HTTP/{version}", *(f"Host: {host}" for host in hosts), "Connection: close", "", ""]
    assert everything(served().connect("\r\n".join(lines).encode())).startswith(b"HTTP/1.1 200 ")


def test_what_is_no_request_has_the_native_form_whatever_came_before(server):
    connection = server.connect(get("/v2/models/intents"))
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    connection.sendall(b"\x16\x03\x01 not a request\r\n\r\n")
    refused(everything(connection), 400, "the request is not valid HTTP")
