"""Tests of the answer while no process serves."""

import contextlib
import socket
import threading

import pytest

from service.server.unavailable import Unavailable


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def unavailable(listener, clock):
    made = Unavailable([listener], clock)
    yield made
    made.close()


@pytest.fixture
def connect(listener):
    with contextlib.ExitStack() as opened:

        def connect():
            return opened.enter_context(socket.create_connection(listener.getsockname(), timeout=30))

        yield connect


def answer(connection, unavailable):
    """Read until the server closes, while it is polled."""
    received, over = bytearray(), threading.Event()

    def read():
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(1 << 16):
                received.extend(chunk)
        over.set()

    threading.Thread(target=read, daemon=True).start()
    for _ in range(3000):
        unavailable.poll(accept=True)
        if over.wait(0.01):
            return bytes(received)
    raise AssertionError("the connection stays open")


def test_a_request_is_answered_with_503(unavailable, connect):
    connection = connect()
    connection.sendall(b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + 100_000 * b"a")
    head, _, body = answer(connection, unavailable).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\nConnection: close" in head
    assert f"\r\nContent-Length: {len(body)}\r\n".encode() in head
    assert b'"status":503' in body


def test_a_client_that_sends_nothing_is_closed_after_a_time(unavailable, connect, clock, wait_until):
    connection = connect()
    wait_until(lambda: unavailable.poll(accept=True) or unavailable._open)
    clock.now += 3
    unavailable.poll(accept=False)
    assert connection.recv(100) == b""


def test_the_oldest_of_too_many_are_closed(unavailable, connect, monkeypatch, wait_until):
    monkeypatch.setattr("service.server.unavailable._MOST", 2)
    oldest, *_ = connections = [connect() for _ in range(3)]
    oldest.setblocking(False)

    def is_closed(connection):
        with contextlib.suppress(BlockingIOError):
            return connection.recv(100) == b""
        return False

    wait_until(lambda: unavailable.poll(accept=True) or is_closed(oldest))
    assert len(unavailable._open) == len(connections) - 1


def test_connections_are_left_to_processes_that_serve(unavailable, connect, listener):
    connect()
    unavailable.poll(accept=False)
    assert unavailable._open == {}
    listener.setblocking(True)
    listener.accept()[0].close()


def test_a_socket_on_which_nothing_listens_yet_is_no_error():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        Unavailable([bound]).poll(accept=True)
