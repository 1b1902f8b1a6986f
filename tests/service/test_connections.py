"""More connections than there may be: over real sockets."""

import contextlib
import time

from service.server.connections import RESERVED
from tests.service.raw_http import answer, answers, everything, get, post, refused


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


def test_probes_and_metrics_are_answered_beyond_the_limit(served, wait_until):
    server = served(limit_connections=5)
    for _ in range(5):
        server.connect(get("/gate"))
    wait_until(lambda: len(server.app.started) == 5)
    waiting = [server.connect() for _ in range(100)]
    for path in ("/livez", "/readyz", "/health?a", "/metrics"):
        data = everything(server.connect(get(path)))
        assert data.endswith(b" 0")
        assert b"connection: close" in data
    for request in (get("/livez/"), get("/echo"), post("/livez", b"a"), get("/v1/models")):
        refused(everything(server.connect(request)), 503, "too many connections")
    kept = [each for each in waiting if not _is_closed(each)]
    assert len(kept) <= RESERVED
    wait_until(lambda: server.open == 5, 5)


def test_headers_that_do_not_arrive_in_time_beyond_the_limit_are_refused(served, wait_until):
    server = served(limit_connections=1)
    server.connect(get("/gate"))
    wait_until(lambda: server.app.started)
    began = time.monotonic()
    refused(everything(server.connect(b"GET /livez HTTP/1.1\r\n")), 503, "too many connections")
    assert 1.5 < time.monotonic() - began < 4


def _is_closed(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
