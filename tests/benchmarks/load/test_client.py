"""Tests of the HTTP client: addresses, keys, and the names of failures."""

import asyncio
import contextlib
import socket
import threading

import pytest

from benchmarks.load.client import Client, TransportError, base_url
from benchmarks.load.options import UsageError


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://example.org/", "https://example.org"),
        ("http://[::1]:8000/models/", "http://[::1]:8000/models"),
    ],
)
def test_an_address_may_have_a_path(url, base):
    assert base_url(url) == base


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://", "is not an address"),
        ("http://:80", "is not an address"),
        ("http://host:0", "is not an address"),
        ("http://host:99999", "is not an address"),
        ("http://host:abc", "is not an address"),
        ("http://[::1", "is not an address"),
        ("http://me:secret@host", "must not hold a user or password"),
        ("http://host/?a=b", "has a query"),
        ("http://host/#a", "has a query or fragment"),
    ],
)
def test_what_is_no_address_is_refused(url, text):
    with pytest.raises(UsageError, match=text) as caught:
        base_url(url)
    assert "secret" not in str(caught.value)


def ask(base, key=None, seconds=20.0):
    async def call():
        async with Client(base, key, 1) as client:
            return await client.post("/v1/classify", b"{}", {"X-Some": "thing"}, seconds)

    return asyncio.run(call())


@contextlib.contextmanager
def answering(content, wait=0.0):
    """Run a server that sends those bytes to one connection and closes it; yields its address and the bytes it read."""
    read = []
    over = threading.Event()

    def serve():
        connection, _ = listener.accept()
        with connection:
            read.append(connection.recv(65536))
            over.wait(wait)
            connection.sendall(content)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", read
        finally:
            over.set()
            thread.join(20)


def test_an_answer_is_read_whole():
    content = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nbusy"
    with answering(content) as (base, read):
        answer = ask(base + "/models", key="the-key")
    assert (answer.status, answer.content, answer.retry_after) == (429, b"busy", "3")
    head = read[0].decode().lower()
    assert head.startswith("post /models/v1/classify http/1.1\r\n")
    assert "\r\nauthorization: bearer the-key\r\n" in head
    assert "\r\nx-some: thing\r\n" in head
    assert "\r\ncontent-type: application/json\r\n" in head


def test_a_redirect_is_an_answer_and_not_followed():
    with answering(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n") as (base, _):
        assert ask(base).status == 302


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "server disconnected"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfour", "incomplete response"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "invalid HTTP response"),
    ],
)
def test_failures_have_names(content, text):
    with answering(content) as (base, _), pytest.raises(TransportError) as caught:
        ask(base)
    assert str(caught.value) == text


def test_the_client_gives_up_in_time():
    with answering(b"", wait=20) as (base, _), pytest.raises(TransportError, match=r"^no response in time$"):
        ask(base, seconds=0.1)


def test_a_refused_connection():
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(TransportError, match=r"^connection refused$"):
            ask(f"http://127.0.0.1:{taken.getsockname()[1]}")


def test_a_host_that_is_not_there():
    with pytest.raises(TransportError, match=r"^unknown host$"):
        ask("http://no-such-host.invalid")


def test_http_where_https_was_asked_for():
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (base, _), pytest.raises(TransportError) as caught:
        ask(base.replace("http:", "https:"))
    assert str(caught.value) in ("TLS error", "server disconnected", "connection reset by peer")
