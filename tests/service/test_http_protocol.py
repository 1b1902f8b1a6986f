"""Clients that send too much, or more than one request at a time: over real sockets."""

import contextlib
import re
import socket
import struct
import threading
import time

import pytest

from service.server.http_protocol import (
    MAX_HEAD_BYTES,
    MAX_HEADER_FIELDS,
    MAX_WAITING_BYTES,
    MAX_WAITING_REQUESTS,
)
from tests.service.raw_http import LARGE, answer, answers, everything, get, post, refused

TOO_LARGE = f"the headers are larger than the {MAX_HEAD_BYTES} bytes this service accepts"


@pytest.mark.parametrize("pieces", [1, 50], ids=["at once", "in pieces"])
@pytest.mark.parametrize(
    ("start", "rest", "status", "detail"),
    [
        (b"GET / HTTP/1.1\r\nA: ", b"a" * 60000, 431, TOO_LARGE),
        (b"GET / HTTP/1.1\r\n", b"a" * 60000, 431, TOO_LARGE),
        (b"GET / HTTP/1.1\r\n", (b"A: " + b"d" * 995 + b"\r\n") * 40, 431, TOO_LARGE),
        (
            b"GET / HTTP/1.1\r\n",
            b"A: b\r\n" * 200,
            431,
            f"the request has more than the {MAX_HEADER_FIELDS} headers this service accepts",
        ),
        (
            b"GET /",
            b"a" * 60000,
            414,
            f"the request target is larger than the {MAX_HEAD_BYTES} bytes this service accepts",
        ),
        (b"", b"\r\n" * 20000, 431, TOO_LARGE),
        (
            b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            (b"A: " + b"d" * 995 + b"\r\n") * 40,
            431,
            TOO_LARGE,
        ),
        (
            b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;",
            b"a" * 60000,
            431,
            TOO_LARGE,
        ),
    ],
    ids=["value", "name", "headers", "number", "target", "empty lines", "trailers", "chunk extension"],
)
def test_headers_without_end_are_refused(served, start, rest, status, detail, pieces):
    server = served()
    connection = server.connect(start)
    size = len(rest) // pieces + 1
    with contextlib.suppress(ConnectionError):
        for begin in range(0, len(rest), size):
            connection.sendall(rest[begin : begin + size])
            time.sleep(0.001 if pieces > 1 else 0)
    data = everything(connection)
    refused(data, status, detail)
    assert server.app.seen == []


def test_headers_at_the_limit_pass(served):
    server = served()
    counted = len("/echo") + len("Hosta") + 4 + len("Connectionclose") + 4 + len("A") + 4
    for value, status in [("a" * (MAX_HEAD_BYTES - counted), 200), ("a" * (MAX_HEAD_BYTES - counted + 1), 431)]:
        connection = server.connect(get("/echo", "Connection: close", f"A: {value}"))
        assert answers(everything(connection))[0][0] == status
    for number, status in [(MAX_HEADER_FIELDS - 2, 200), (MAX_HEADER_FIELDS - 1, 431)]:
        connection = server.connect(get("/echo", "Connection: close", *["A: a"] * number))
        assert answers(everything(connection))[0][0] == status


def test_trailers_are_no_headers(served):
    server = served()
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection = server.connect(get("/gate") + head + b"5\r\nhello\r\n0\r\nX-API-Key: secret\r\n\r\n")
    server.app.gate.set()
    assert answers(everything(connection)) == [(200, "/gate 0"), (200, "/echo 5")]
    assert [b"x-api-key" in headers for _, _, headers in server.app.seen] == [False, False]


def test_refusals_are_counted(served):
    server = served()
    everything(server.connect(b"rubbish\r\n\r\n"))
    everything(server.connect(b"GET /" + b"a" * 60000))
    assert (server.counted(400), server.counted(414)) == (1, 1)


# ---- bodies ----


def test_a_body_that_trickles_is_refused(served, wait_until):
    server = served(body_timeout=0.5)
    connection = server.connect(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
    began = time.monotonic()
    over = threading.Event()

    def trickle():
        with contextlib.suppress(OSError):
            while not over.wait(0.1):
                connection.sendall(b"a")

    thread = threading.Thread(target=trickle)
    thread.start()
    refused(everything(connection), 408, "the body did not arrive within 0.5 seconds")
    assert 0.4 < time.monotonic() - began < 3
    over.set()
    thread.join()
    wait_until(lambda: server.counted(408) == 1, 5)


@pytest.mark.parametrize(("path", "status"), [("/echo", 413), ("/early", 401)])
def test_a_client_that_is_still_sending_reads_why_it_is_refused(served, path, status):
    """A connection that was closed at once would be reset, and the answer lost."""
    server = served(max_body_bytes=LARGE - (path == "/echo"))
    connection = server.connect()
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n".encode())
    for _ in range(32):
        connection.sendall(b"a" * (LARGE // 64))
    data = everything(connection)
    assert data.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in data


def test_a_body_that_is_malformed_is_refused_once(served):
    server = served()
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = everything(server.connect(head + b"zz\r\n"))
    refused(data, 400, "the request is not valid HTTP")
    assert data.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
def test_a_request_for_an_upgrade_keeps_its_body(served, apart):
    """Clients that offer HTTP/2 in clear text do so; the body must not be taken for the next request."""
    server = served()
    body = get("/smuggled")
    head = post("/echo", b"", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    head = head.replace(b"Content-Length: 0", b"Content-Length: %d" % len(body))
    connection = server.connect(head)
    if apart:
        time.sleep(0.1)
    connection.sendall(body + get("/echo", "Connection: close"))
    assert answers(everything(connection)) == [(200, f"/echo {len(body)}"), (200, "/echo 0")]
    chunked = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head)
    connection = server.connect(chunked + b"5\r\nhello\r\n0\r\n\r\n" + get("/echo", "Connection: close"))
    assert answers(everything(connection)) == [(200, "/echo 5"), (200, "/echo 0")]


def test_a_request_for_an_upgrade_without_a_body_is_answered(served):
    connection = served().connect(
        get("/echo", "Connection: Upgrade", "Upgrade: websocket") + get("/echo", "Connection: close")
    )
    assert answers(everything(connection)) == [(200, "/echo 0"), (200, "/echo 0")]


# ---- answers ----


def test_an_answer_is_sent_with_its_headers(served):
    """In one segment: a process that is killed must not leave half an answer, which proxies cannot ask for again."""
    server = served()
    connection = server.connect()
    for count in (1, 2):
        connection.sendall(get())
        assert answer(connection) == "/echo 0"
        information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
        segments_received = struct.unpack_from("I", information, 152)[0]  # tcpi_data_segs_in of linux/tcp.h
        assert segments_received == count


def test_a_client_that_asks_whether_to_continue_is_told_before_the_answer(served):
    connection = served().connect(
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(b"ab")
    assert answer(connection) == "/echo 2"


def test_a_client_may_send_its_body_without_waiting(served):
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n"
    data = everything(served().connect(head + b"ab"))
    assert answers(data.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")) == [(200, "/echo 2")]


# ---- pipelines ----


def test_a_pipeline_is_answered_in_order(served):
    server = served()
    paths = [f"/gate{number}" for number in range(MAX_WAITING_REQUESTS)]
    requests = [post(path, b"a" * number) for number, path in enumerate(paths)]
    connection = server.connect(b"".join(requests) + get("/echo", "Connection: close"))
    time.sleep(0.1)
    server.app.gate.set()
    expected = [(200, f"{path} {number}") for number, path in enumerate(paths)]
    assert answers(everything(connection)) == [*expected, (200, "/echo 0")]


def test_what_is_beyond_the_pipeline_is_not_answered(served):
    server = served()
    connection = server.connect()
    with contextlib.suppress(ConnectionError):
        connection.sendall(get("/gate") * 20000)
    time.sleep(0.3)
    (protocol,) = server.server.server_state.connections
    assert len(protocol.pipeline) <= MAX_WAITING_REQUESTS
    server.app.gate.set()
    assert answers(everything(connection)) == [(200, "/gate 0")] * (1 + MAX_WAITING_REQUESTS)
    assert len(server.app.seen) == 1 + MAX_WAITING_REQUESTS


@pytest.mark.parametrize("size", [200_000, LARGE])
def test_the_body_of_a_request_that_waits_is_bounded(served, size):
    """The server stops reading, or refuses the request that waits where more had been read already."""
    server = served(max_body_bytes=1 << 30)
    head = f"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n".encode()
    connection = server.connect()
    connection.settimeout(0.5)
    with contextlib.suppress(ConnectionError, TimeoutError):
        connection.sendall(get("/gate") + head + b"a" * size)
    time.sleep(0.2)
    (protocol,) = server.server.server_state.connections
    assert sum(protocol._waiting) <= MAX_WAITING_BYTES
    assert sum(len(cycle.body) for cycle, _ in protocol.pipeline) <= MAX_WAITING_BYTES
    server.app.gate.set()
    assert answer(connection) == "/gate 0"


def test_a_request_that_runs_is_told_when_a_pipelining_client_disconnects(served, wait_until):
    server = served()
    with server.connect(get("/gate") + get("/echo")) as connection:
        wait_until(lambda: server.app.started)
        time.sleep(0.1)
        connection.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: server.counted(499) == 1, 5)


# ---- the number of connections ----
