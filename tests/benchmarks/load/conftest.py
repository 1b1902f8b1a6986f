"""Servers on free ports of this machine, and load tests run against them in this process."""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from benchmarks.load.__main__ import main
from service.server.app import create_app
from service.settings import Settings
from tests.support.waiting import wait_until as until


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("SOFTSERVE_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., None]:
    return until


@contextlib.contextmanager
def _listening(app: Any, wait_until: Callable[..., None]) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="session")
def listening(wait_until: Callable[..., None]) -> Callable[..., Any]:
    """Return a context manager that serves an ASGI application and yields its address."""
    return lambda app: _listening(app, wait_until)


@pytest.fixture(scope="session")
def serving(listening: Callable[..., Any], wait_until: Callable[..., None]) -> Callable[..., Any]:
    """Return a context manager that runs the service with those settings and yields its address."""

    @contextlib.contextmanager
    def start(**settings: Any) -> Iterator[str]:
        app = create_app(Settings(**{"threads": 1, "models": ("next-word:4",), **settings}))
        with listening(app) as address:
            wait_until(lambda: app.state.served_models.ready)
            yield address

    return start


@pytest.fixture(scope="session")
def address(serving: Callable[..., Any], _no_settings_from_outside: None) -> Iterator[str]:
    """Yield the address of a service with a language model, a classifier and a translator."""
    with serving(models=("de-en", "intents", "next-word:4")) as found:
        yield found


class Stub:
    """An ASGI application that serves one classifier; `answer` makes each response from the number of texts."""

    def __init__(self, answer: Callable[[int], Any], metrics: Callable[[], bytes] = lambda: b"") -> None:
        self.answer = answer
        self.metrics = metrics
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[bytes, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/metrics":
            status, content, headers = 200, self.metrics(), {}
        elif scope["path"] == "/v1/models":
            model = {"name": "stub", "version": 1, "task": "text-classification", "limits": {}}
            model |= {"operations": ["classify"], "reads": "text"}
            status, content, headers = 200, json.dumps({"models": [model]}).encode(), {}
        else:
            body = b""
            while (message := await receive()).get("more_body"):
                body += message["body"]
            self.bodies.append(json.loads(body + message["body"]))
            self.headers.append(dict(scope["headers"]))
            status, content, headers = await self.answer(len(self.bodies[-1]["text"]))
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            }
        )
        await send({"type": "http.response.body", "body": content})


@pytest.fixture(scope="session")
def stub() -> type[Stub]:
    return Stub


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs `python -m benchmarks.load`: exit status, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setenv("COLUMNS", "200")
        try:
            status = main(list(map(str, arguments)))
        except SystemExit as ended:  # of the parser
            status = int(ended.code or 0)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call
