"""A client that disconnects, on a real server: its request is never computed."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
import uvicorn

from service.server.app import create_app
from service.settings import Settings
from tests.fixtures.bundled import NEXT_WORD_VERSION


@pytest.fixture
def address(library, gate, monkeypatch, wait_until):
    """The port of a server whose model waits behind the gate."""
    gate.guard(library, monkeypatch)
    app = create_app(Settings(threads=1, models=("next-word:4",), parallel_batches=1))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started and app.state.served_models.ready)
        gate.reset()
        yield server.servers[0].sockets[0].getsockname()
    finally:
        gate.opened.set()
        server.should_exit = True
        thread.join(20)


def ask(address, context):
    url = f"http://{address[0]}:{address[1]}/v1/next-word"
    return httpx2.post(url, json={"context": context}, timeout=20)


def metrics(address):
    return httpx2.get(f"http://{address[0]}:{address[1]}/metrics").text


def test_abandoned_requests_are_never_computed(address, gate, wait_until):
    gate.opened.clear()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(ask, address, "thank you")
        assert gate.entered.wait(10)
        with socket.create_connection(address[:2]) as connection:
            body = json.dumps({"context": "never to be read"}).encode()
            head = ["POST /v1/next-word HTTP/1.1", "Host: a", "Content-Type: application/json"]
            head.append(f"Content-Length: {len(body)}")
            connection.sendall("\r\n".join([*head, "", ""]).encode() + body)
            wait_until(
                lambda: (
                    f'softserve_queue_items{{model="next-word",version="{NEXT_WORD_VERSION}"}} 1.0' in metrics(address)
                )
            )
        wait_until(
            lambda: f'softserve_queue_items{{model="next-word",version="{NEXT_WORD_VERSION}"}} 0.0' in metrics(address)
        )
        found = metrics(address)
        assert (
            f'softserve_rejected_total{{model="next-word",reason="cancelled",version="{NEXT_WORD_VERSION}"}} 1.0'
            in found
        )
        assert (
            'softserve_requests_total{deadline="",endpoint="/v1/next-word",model="next-word",status="499"} 1.0' in found
        )
        gate.opened.set()
        assert first.result().status_code == 200
    assert ask(address, "you are").status_code == 200
    assert gate.contexts == ["thank you", "you are"]
