"""Clients that send too much, too slowly or not at all, or do not read: over real sockets."""

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from types import SimpleNamespace

import pytest
import uvicorn

from service.metrics import Metrics
from service.middleware import RequestMiddleware
from service.protocol import MAX_HEAD_BYTES, MAX_HEADER_FIELDS, MAX_WAITING_BYTES, MAX_WAITING_REQUESTS
from service.server import Server
from service.settings import Settings

LARGE = 16 << 20


class App:
    """`/echo` tells the length of its body, `/gate` waits for the gate, `/large` is large, `/early` reads no body."""

    def __init__(self, settings):
        self.state = SimpleNamespace(metrics=Metrics())
        self.gate, self.started, self.seen, self.trailers = threading.Event(), [], [], None
        self._stack = RequestMiddleware(
            self._answer,
            metrics=self.state.metrics,
            max_body_bytes=settings.max_body_bytes,
            body_timeout=settings.body_timeout,
        )

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            await self._stack(scope, receive, send)
            return
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})

    async def _answer(self, scope, receive, send):
        path, body, more = scope["path"], b"", True
        self.started.append(path)
        while more and path != "/early":
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message.get("more_body")
        while path.startswith("/gate") and not self.gate.is_set():
            await asyncio.sleep(0.01)
        self.seen.append((path, body, dict(scope["headers"])))
        answer = b"x" * LARGE if path == "/large" else b"%s %d" % (path.encode(), len(body))
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 401 if path == "/early" else 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


class Served:
    """A server in a thread, and raw connections to it."""

    def __init__(self, loop, **settings):
        chosen = Settings(port=0, log_level="critical", **settings)
        self.app = App(chosen)
        self.server = Server(chosen, self.app)
        self.server.config.loop = loop
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()
        self._sockets = contextlib.ExitStack()
        while not self.server.started:
            time.sleep(0.01)

    @property
    def open(self):
        return len(self.server.server_state.connections)

    def connect(self, sent=b"", buffer=None):
        connection = socket.socket()
        if buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(10)
        connection.connect(self.server.servers[0].sockets[0].getsockname())
        self._sockets.enter_context(connection)
        connection.sendall(sent)
        return connection

    def counted(self, status):
        samples = [s for family in self.app.state.metrics.requests.collect() for s in family.samples]
        return sum(s.value for s in samples if s.name.endswith("_total") and s.labels["status"] == str(status))

    def stop(self):
        self.app.gate.set()
        self._sockets.close()
        self.server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture(params=["uvloop", "asyncio"])
def served(request, monkeypatch):
    """Starts a server with some settings."""
    monkeypatch.setattr(Server, "capture_signals", uvicorn.Server.capture_signals)  # not in the main thread
    running = []

    def start(**settings):
        running.append(Served(request.param, **settings))
        return running[-1]

    yield start
    for each in running:
        each.stop()


def everything(connection):
    """What comes until the server closes."""
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def answers(data):
    """Statuses and bodies of several answers."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head)[1])
        found.append((int(head.split()[1]), data[:length].decode()))
        data = data[length:]
    return found


def answer(connection):
    """The next answer, of a server that may write it in parts, and keeps the connection open."""
    data = b""
    while not (b"\r\n\r\n" in data and len(answers(data)[0][1]) == int(re.search(rb"content-length: (\d+)", data)[1])):
        part = connection.recv(1 << 16)
        assert part, data
        data += part
    ((_, body),) = answers(data)
    return body


def get(path="/echo", *headers):
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: a", *headers, "", ""]).encode()


def post(path="/echo", body=b"", *headers):
    lines = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def refused(data, status, detail):
    """Checks that the last of some answers is a problem, and that it closes the connection."""
    head, _, body = data[data.rindex(b"HTTP/1.1") :].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), data[:200]
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head.lower()
    problem = json.loads(body)
    assert (problem["status"], problem["detail"]) == (status, detail)
    assert f"x-request-id: {problem['request_id']}".encode() in head


# ---- headers ----

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


# ---- clients that do not read ----


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


def test_idle_connections_do_not_keep_clients_out(served):
    server = served(limit_connections=20)
    kept = server.connect(get())
    assert answer(kept) == "/echo 0"
    idle = [server.connect() for _ in range(100)]
    assert everything(server.connect(get("/echo", "Connection: close"))).endswith(b"/echo 0")
    assert server.open <= 20
    assert kept.recv(1) == b""  # idle for longest
    assert idle[0].recv(1) == b""
    idle[-1].sendall(get())
    assert answer(idle[-1]) == "/echo 0"


def test_incomplete_headers_do_not_keep_clients_out(served):
    server = served(limit_connections=20)
    slow = [server.connect(b"GET / HTTP/1.1\r\nA: ") for _ in range(100)]
    time.sleep(0.2)
    assert everything(server.connect(get("/echo", "Connection: close"))).endswith(b"/echo 0")
    slow[0].settimeout(1)
    with contextlib.suppress(ConnectionError):
        everything(slow[0])


def test_where_all_connections_are_busy_new_ones_are_refused(served, wait_until):
    server = served(limit_connections=5)
    busy = [server.connect(get("/gate", "Connection: close")) for _ in range(5)]
    wait_until(lambda: len(server.app.started) == 5)
    for _ in range(10):
        data = everything(server.connect(get()))
        refused(data, 503, "too many connections")
        assert b"retry-after: 1" in data
    assert server.counted(503) == 10
    server.app.gate.set()
    assert [answers(everything(connection)) for connection in busy] == [[(200, "/gate 0")]] * 5
    wait_until(lambda: server.open == 0, 5)
    assert everything(server.connect(get("/echo", "Connection: close"))).endswith(b"/echo 0")


def test_many_refused_connections_are_not_kept(served, wait_until):
    server = served(limit_connections=1)
    server.connect(get("/gate"))
    wait_until(lambda: server.app.started)
    for _ in range(200):
        server.connect()
    time.sleep(0.2)
    assert server.open <= 1 + 100 + 1
    wait_until(lambda: server.open == 1, 5)
