"""Clients that send headers or read answers too slowly: over real sockets."""

import contextlib
import threading
import time

import pytest

from tests.service.raw_http import LARGE, answer, everything, get, refused


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"G", b"GET / HTTP/1.1\r\nHost: a\r\n"], ids=ascii)
@pytest.mark.parametrize("before", [b"", get()], ids=["new", "kept alive"])
def test_headers_must_arrive_in_time(served, sent, before):
    server = served(header_timeout=0.5)
    connection = server.connect(before)
    if before:
        assert answer(connection) == "/echo 0"
        if not sent:
            return  # the connection is idle, which it may be for longer
    began = time.monotonic()
    connection.sendall(sent)
    trickling = threading.Event()

    def trickle():
        with contextlib.suppress(OSError):
            while sent and not trickling.wait(0.1):
                connection.sendall(b"\r\n" if sent == b"\r\n" else b"a")

    if sent != b"G":
        threading.Thread(target=trickle).start()
    with contextlib.suppress(ConnectionError):
        data = everything(connection)
        if sent.startswith(b"GET"):
            refused(data, 408, "the headers did not arrive within 0.5 seconds")
    trickling.set()
    assert 0.4 < time.monotonic() - began < 3


def test_headers_that_begin_while_a_request_runs_have_their_time_after_it(served):
    server = served(header_timeout=0.5)
    connection = server.connect(get("/gate") + b"GET /ec")
    time.sleep(1.2)
    server.app.gate.set()
    assert answer(connection) == "/gate 0"
    connection.sendall(b"ho HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer(connection) == "/echo 0"
    connection.sendall(b"GET /ec")
    refused(everything(connection), 408, "the headers did not arrive within 0.5 seconds")


@pytest.mark.parametrize("trickle", [False, True])
def test_a_client_that_does_not_read_is_cut_off(served, wait_until, trickle):
    server = served(send_timeout=1)
    connection = server.connect(get("/large"), buffer=4096)
    wait_until(lambda: server.app.seen)
    began = time.monotonic()
    while server.open and time.monotonic() - began < 5:
        if trickle:
            with contextlib.suppress(OSError):
                connection.recv(1)
        time.sleep(0.05)
    assert server.open == 0
    assert time.monotonic() - began < 3


def test_a_client_that_does_not_read_small_answers_is_cut_off(served):
    """Answers too small for the transport to stop the application; requests come one after the other."""
    server = served(send_timeout=1, header_timeout=60)
    connection = server.connect(buffer=2048)
    connection.settimeout(0.2)
    request = get("/echo" + "a" * 20000)  # the answer holds the path
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while time.monotonic() - began < 10:
            with contextlib.suppress(TimeoutError):
                connection.sendall(request)
    assert time.monotonic() - began < 8
    assert server.open == 0


def test_a_client_that_reads_slowly_but_in_time_gets_all(served):
    server = served(send_timeout=5)
    connection = server.connect(get("/large", "Connection: close"), buffer=65536)
    time.sleep(0.7)
    assert len(everything(connection)) > LARGE


def test_a_client_that_reads_a_large_answer_slowly_is_cut_off_however_often_all_that_was_written_is_sent(served):
    server = served(send_timeout=2)
    connection = server.connect(get("/pieces", "Connection: close"), buffer=1 << 17)
    read, began = 0, time.monotonic()
    with contextlib.suppress(ConnectionError):
        while (part := connection.recv(1 << 18)) and time.monotonic() - began < 20:
            read += len(part)
            time.sleep(0.1)
    assert read < LARGE
    assert server.open == 0
    assert time.monotonic() - began < 9


def test_a_client_that_waits_for_the_parts_of_an_answer_has_its_time_for_reading_them(served):
    server = served(send_timeout=0.5)
    connection = server.connect(get("/slow", "Connection: close"))
    assert everything(connection).count(b"part") == 20
