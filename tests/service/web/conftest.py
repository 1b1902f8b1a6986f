"""Servers of the pages, and pages of a browser whose console must be clean."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.settings import BUNDLED
from tests.service.web.browser import Playground, Running, chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium. It ends with the file: Playwright's event loop runs in this thread, and others could not."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def running(wait_until: Callable[..., None]) -> Iterator[Callable[..., Running]]:
    """Starts servers that stop with the file."""
    with contextlib.ExitStack() as stack:

        def start(*, ready: bool = True, **settings: Any) -> Running:
            server = Running(**settings)
            stack.callback(server.stop)
            wait_until(lambda: server.started and (server.ready or not ready), 120)
            return server

        yield start


@pytest.fixture(scope="session")
def more_models(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory: the language model of the toy corpus, and the bundled translator as if from English."""
    models = tmp_path_factory.mktemp("more-models")
    shutil.copytree(tiny_bundle, models / "toy" / "1")
    (bundled,) = (BUNDLED / "de-en").iterdir()
    manifest = Path(shutil.copytree(bundled, models / "en-de" / "1")) / "manifest.json"
    facts = json.loads(manifest.read_text()) | {"name": "en-de", "version": 1}
    facts["config"]["languages"] |= {"source": "en", "target": "de"}
    manifest.write_text(json.dumps(facts))
    return models


@pytest.fixture(scope="module")
def server(running: Callable[..., Running], more_models: Path) -> Running:
    """The bundled models, next-word as a model of whole words, a second one of those, and the opposite translator."""
    return running(model_dirs=(BUNDLED, more_models), models=("next-word:4", "toy", "intents", "de-en", "en-de"))


@pytest.fixture
def playground(browser: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Playground]]:
    """Opens the page of `server`, or of another one, at a width and in a colour scheme."""
    opened: list[Playground] = []

    def start(fragment: str = "", *, address: str = "", **options: Any) -> Playground:
        address = address or request.getfixturevalue("server").address
        page = Playground(browser, address, fragment, **options)
        opened.append(page)
        return page

    yield start
    for page in opened:
        page.close()
