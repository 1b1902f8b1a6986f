"""Chromium, driven by Playwright, and a server of the page in a thread."""

import contextlib
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import uvicorn
from playwright.sync_api import Browser, expect, sync_playwright

from service.server.app import create_app
from service.settings import Settings

__all__ = ["Playground", "Running", "chromium"]

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_PATIENCE = 60_000
"""Milliseconds, for a machine that is busy with other tests."""
expect.set_options(timeout=_PATIENCE)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run the system's Chromium without a window."""
    with sync_playwright() as library:
        browser = library.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Running:
    """The service on a free port, in a thread."""

    def __init__(self, port: int = 0, **settings: Any) -> None:
        self.app = create_app(Settings(threads=1, **settings))
        config = uvicorn.Config(self.app, port=port, log_level="critical", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._server.started

    @property
    def ready(self) -> bool:
        return bool(self.app.state.served_models.ready)

    @property
    def port(self) -> int:
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(self.address + path, timeout=60)

    def post(self, path: str, body: Any) -> Any:
        """Return the JSON of an answer."""
        return httpx2.post(self.address + path, json=body, timeout=60).raise_for_status().json()


class Playground:
    """The page, its requests and the messages of its console."""

    def __init__(
        self,
        browser: Browser,
        address: str,
        fragment: str = "",
        *,
        width: int = 1180,
        scheme: Any = "light",
        noise: bool = False,
    ) -> None:
        """`noise` is for a page that meets errors, which browsers write to the console whatever the page does."""
        self._noise = noise
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(_PATIENCE)
        self.console: list[str] = []
        self.posts: list[Any] = []
        self.addresses: list[str] = []
        self.page.on("console", lambda message: self.console.append(message.text))
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("request", self._note)
        self.page.goto(f"{address}/{fragment}")

    def _note(self, request: Any) -> None:
        self.addresses.append(request.url)
        if request.method == "POST" and "json" in request.headers.get("content-type", ""):
            self.posts.append(request.post_data_json)

    def close(self) -> None:
        """Close the page; fails where its console was not clean."""
        self.context.close()
        assert self._noise or self.console == []

    def settle(self, said: str = "") -> str:
        """Wait for an answer and return the announcement."""
        page = self.page
        page.wait_for_function(
            "said => { const found = document.querySelector('.results');"
            " return found?.ariaBusy === 'false' && found.querySelector('[role=status]').textContent.includes(said)"
            " && found.querySelector('[role=status]').textContent; }",
            arg=said,
        )
        return self.status

    @property
    def status(self) -> str:
        expect(self.page.get_by_role("status")).to_have_count(1)
        return self.page.get_by_role("status").inner_text().replace("\u00a0", " ")

    def rows(self, table: Any) -> list[list[str]]:
        """Return the cells of the body of a table."""
        return [
            [cell.strip().replace("\u00a0", " ") for cell in row.locator("th, td").all_inner_texts()]
            for row in table.locator("tbody tr").all()
        ]
