"""A server of a small application, and clients that write bytes to it: what the tests of connections share."""

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from types import SimpleNamespace

from service.http.middleware import RequestMiddleware
from service.observability.metrics import Metrics
from service.server.process import Server
from service.settings import Settings

LARGE = 16 << 20


class App:
    """`/echo` tells the length of its body, `/gate` waits for the gate, `/large` is large, `/early` reads no body.

    `/pieces` is as large in pieces of 64 KiB, `/slow` takes two seconds for its small parts.
    """

    def __init__(self, settings):
        self.state = SimpleNamespace(metrics=Metrics(), served_models=SimpleNamespace(draining=False))
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
        if path in ("/pieces", "/slow"):
            count, piece, pause = (LARGE >> 16, b"x" * (1 << 16), 0) if path == "/pieces" else (20, b"part", 0.1)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for number in range(1, count + 1):
                await send({"type": "http.response.body", "body": piece, "more_body": number < count})
                await asyncio.sleep(pause)
            return
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


def everything(connection):
    """Return all bytes until the server closes the connection."""
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
