"""Attacks on HTTP itself: headers, chunks, pipelines, idle connections, slow readers, clients that disconnect."""

import contextlib
import itertools
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator

from tests.support.hostile.attack import OVERLOADED, REFUSED, Attack
from tests.support.limited_server import CLOSED, SILENT, Answer, LimitedServer, read_answer

__all__ = ["CONNECTIONS", "SLOW"]

_BODY = json.dumps({"context": "we had", "top_k": 2}).encode()
_HEAD = b"POST /v1/next-word HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
_REQUEST = _HEAD + b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY
_GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_TRAILERS = b"2\r\n{}\r\n0\r\n"
_REFUSED = frozenset({CLOSED, *REFUSED, 408, 501, 505})
_ANSWERED = _REFUSED | {200} | OVERLOADED
_FLOOD = 32 << 20
"""Largest flood, in bytes, far above any limit of headers."""
_NEAR_LIMIT = 12
"""Contexts of the largest allowed response."""


def _raw(*parts: bytes, timeout: float = 5.0) -> Callable[[LimitedServer], list[Answer]]:
    return lambda server: [_flood(server, iter(parts), timeout)]


def _flood(server: LimitedServer, parts: Iterator[bytes], timeout: float = 1.0) -> Answer:
    """Send until the server closes the connection or responds; return the response."""
    with server.connect(timeout) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except OSError:  # refused meanwhile; an answer may still be there
            pass
        return read_answer(connection)


def _endless(head: bytes, unit: bytes, size: int = _FLOOD) -> Callable[[LimitedServer], list[Answer]]:
    block = unit * max(1, (1 << 16) // len(unit))
    return lambda server: [_flood(server, itertools.chain([head], itertools.repeat(block, size // len(block))))]


def _get(line: bytes) -> bytes:
    return b"GET /livez HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\n"


def _pipelined(server: LimitedServer) -> list[Answer]:
    """Send thousands of requests at once and read the responses later."""
    with server.connect(2.0) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(_GET * 5000)
        time.sleep(0.2)
        return [read_answer(connection)]


def _pipelined_work(server: LimitedServer) -> list[Answer]:
    with server.connect(2.0) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(_REQUEST * 1000)
        return [read_answer(connection)]


def _idle(head: bytes, count: int = 500) -> Callable[[LimitedServer], list[Answer]]:
    """Open connections that send a part of a request, or nothing, while a new client sends requests."""

    def run(server: LimitedServer) -> list[Answer]:
        with server.connections(count) as connections:
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.sendall(head)
            time.sleep(0.3)
            answers = [server.request("GET", "/livez", timeout=5.0)]
            if answers[0].status == 503:  # too many connections; open ones are kept
                return answers
            return [*answers, server.request("POST", "/v1/next-word", _BODY, timeout=5.0)]

    return run


_BETWEEN_READERS = 1 / 3
"""Seconds that a slow reader waits for the first byte of its answer, before the next one connects."""


def _slow_readers(readers: int) -> Callable[[LimitedServer], list[Answer]]:
    """Open clients that request large responses, a third of a second apart at most, and read none of them."""

    def run(server: LimitedServer) -> list[Answer]:
        opened: list[socket.socket] = []
        body = json.dumps({"context": [f"s {n}" for n in range(_NEAR_LIMIT)], "top_k": 7729}).encode()
        try:
            for _ in range(readers):
                connection = server.connect(_BETWEEN_READERS, receive_buffer=4096)
                opened.append(connection)
                connection.sendall(_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                try:
                    connection.recv(1)  # it has begun to answer
                except TimeoutError:
                    continue
            return [server.request("POST", "/v1/next-word", _BODY, timeout=5.0)]
        except OSError:
            return [Answer(CLOSED)]
        finally:
            for connection in opened:
                connection.close()

    return run


def _hang_up(sent: bytes, pause: float, times: int, *, reset: bool) -> Callable[[LimitedServer], list[Answer]]:
    def run(server: LimitedServer) -> list[Answer]:
        for _ in range(times):
            with server.connect() as connection:
                if reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(sent)
                time.sleep(pause)
        return []

    return run


def _large(path: str, body: dict[str, object]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _phases() -> Iterator[tuple[str, bytes, float]]:
    """Yield the phases in which a client disconnects: a name, the bytes sent before, and the seconds it waits."""
    yield "before it sends anything", b"", 0.0
    yield "in the request line", _REQUEST[:9], 0.0
    yield "in the headers", _REQUEST[:40], 0.0
    yield "before the body", _REQUEST[: -len(_BODY)], 0.0
    yield "in the body", _REQUEST[:-5], 0.0
    yield "after the request", _REQUEST, 0.0
    translated = {"text": ["Ein Mann fährt mit dem Fahrrad durch die Stadt."] * 16, "beam_size": 8}
    yield "while it is computed", _large("/v1/translate", translated), 0.02
    words = {"context": [f"h {n}" for n in range(4)], "top_k": 7729}
    yield "in the middle of the answer", _large("/v1/next-word", words), 0.05


_MALFORMED: dict[str, bytes] = {
    "two different lengths": _HEAD + b"Content-Length: 5\r\nContent-Length: 50\r\n\r\n" + _BODY,
    "length and chunks": _HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a negative length": _HEAD + b"Content-Length: -1\r\n\r\n",
    "a length of 10^30": _HEAD + b"Content-Length: 1" + b"0" * 30 + b"\r\n\r\n",
    "a chunk of 2^63 bytes": _CHUNKED + b"7fffffffffffffff\r\n",
    "a chunk of 2^80 bytes": _CHUNKED + b"f" * 20 + b"\r\n",
    "HTTP/2 without upgrade": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(505),
    "HTTP/0.9": b"GET /livez\r\n\r\n",
    "CONNECT": b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "an upgrade to WebSocket": b"GET /v1/next-word HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "1 MB of line ends": b"\r\n" * 500_000,
    "NUL in a header": _get(b"X: a\0b"),
    "a method of 60 kB": b"A" * 60_000 + b" /livez HTTP/1.1\r\n\r\n",
    "16 MB of zeros": bytes(16 << 20),
}


def _attacks() -> Iterator[Attack]:
    refused = {
        "headers: 20,000 of them": _raw(_get(b"\r\n".join(b"X-%d: 1" % n for n in range(20_000)))),
        "headers: one of 1 MB": _raw(_get(b"X: " + b"a" * (1 << 20))),
        "headers: a name of 1 MB": _raw(_get(b"a" * (1 << 20) + b": 1")),
        "headers: never ending": _endless(b"GET /livez HTTP/1.1\r\nHost: x\r\n", b"X-Header: value\r\n"),
        "headers: one that never ends": _endless(b"GET /livez HTTP/1.1\r\nX: ", b"a"),
        "headers: a path of 1 MB": _raw(b"GET /v1/models/" + b"m" * (1 << 20) + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        "headers: a query that never ends": _endless(b"GET /livez?", b"a=1&"),
        "headers: a model's path of 60 kB": _raw(b"GET /v1/models/" + b"m" * 60_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        "chunks: trailers that never end": _endless(_CHUNKED + _TRAILERS, b"X-Trailer: value\r\n"),
        "chunks: a trailer that never ends": _endless(_CHUNKED + _TRAILERS + b"X: ", b"a"),
        "chunks: an extension that never ends": _endless(_CHUNKED + b"1;x=", b"a"),
        "chunks: of 1 byte, never ending": _endless(_CHUNKED, b"1\r\n \r\n", 8 << 20),
        "chunks: extensions of 1 kB": _endless(_CHUNKED, b"1;" + b"x" * 1000 + b"\r\n \r\n"),
        "body: never ending, chunked": _endless(_CHUNKED, b"10000\r\n" + bytes(1 << 16) + b"\r\n"),
        "body: a length of 10 GB": _endless(_HEAD + b"Content-Length: 10000000000\r\n\r\n", b"a"),
    }
    for name, run in refused.items():
        # Extensions are dropped as they come, so that they cost nothing but bandwidth until the body's timeout.
        statuses = {*_REFUSED, SILENT} if "extension" in name else _REFUSED
        yield Attack(name=name, run=run, statuses=statuses)
    yield Attack(
        name="headers: an escaped model's path of 50 kB",
        run=_raw(b"GET /v1/models/" + b"%41" * 16_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        statuses=_REFUSED,
    )
    for name, content in _MALFORMED.items():
        yield Attack(name=f"malformed: {name}", run=_raw(content, timeout=0.3), statuses={*_ANSWERED, SILENT})
    yield Attack(name="pipeline: 5,000 requests", run=_pipelined, statuses=_ANSWERED, max_answer=None)
    yield Attack(name="pipeline: 1,000 next words", run=_pipelined_work, statuses=_ANSWERED, max_answer=None)
    yield Attack(name="idle: 500 connections", run=_idle(b""), statuses={200, 503})
    yield Attack(name="idle: 500 halves of headers", run=_idle(_HEAD), statuses={200, 503})
    yield Attack(
        name="readers: 32 that read nothing of 8 MB each",
        run=_slow_readers(32),
        statuses={200, *OVERLOADED},
        max_stall=None,
        memory_back=False,
    )
    for phase, content, pause in _phases():
        for reset in (False, True):
            times = 8 if pause else 20
            yield Attack(
                name=f"hang-up{' with a reset' if reset else ''}: {phase}, {times} times",
                run=_hang_up(content, pause, times, reset=reset),
                statuses=(),
                max_stall=0.2,
                memory_back=not pause,
            )


CONNECTIONS: tuple[Attack, ...] = tuple(_attacks())


def _silent(head: bytes, wait: float) -> Callable[[LimitedServer], list[Answer]]:
    """Open ten connections that send a part of a request; they must get a response or be closed within that time."""

    def run(server: LimitedServer) -> list[Answer]:
        with server.connections(10, wait) as connections:
            for connection in connections:
                connection.sendall(head)
            end, answers = time.monotonic() + wait, []
            for connection in connections:
                connection.settimeout(max(0.01, end - time.monotonic()))
                answers.append(read_answer(connection))
            return answers

    return run


def _trickle(head: bytes, unit: bytes, seconds: float) -> Callable[[LimitedServer], list[Answer]]:
    """Open a connection that sends some bytes every 50 ms, so that it is never idle."""

    def parts() -> Iterator[bytes]:
        yield head
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.05)
            yield unit

    return lambda server: [_flood(server, parts(), 0.5)]


SLOW: tuple[Attack, ...] = (
    Attack(name="slow: half a request line", run=_silent(b"POST /v1", 4.0), statuses={408, CLOSED}),
    Attack(name="slow: half of the headers", run=_silent(_HEAD, 4.0), statuses={408, CLOSED}),
    Attack(name="slow: half a body", run=_silent(_REQUEST[:-5], 4.0), statuses={408, CLOSED}),
    Attack(name="slow: half a chunk", run=_silent(_CHUNKED + b"10\r\n{", 4.0), statuses={408, CLOSED}),
    Attack(name="slow: headers that trickle", run=_trickle(_HEAD, b"X: 1\r\n", 4.0), statuses={408, 431, CLOSED}),
    Attack(
        name="slow: a body that trickles",
        run=_trickle(_HEAD + b"Content-Length: 100000\r\n\r\n", b" ", 4.0),
        statuses={408, CLOSED},
    ),
)
"""Attacks that wait for timeouts; the server is to have timeouts of a second for headers and bodies."""
