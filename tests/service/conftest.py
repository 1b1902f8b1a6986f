"""A served model for the tests that only ask, and a way to serve one with other settings and a gate before it."""

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from models import LanguageModel, ModelStore
from service.server.app import create_app
from service.server.process import Server
from service.settings import BUNDLED, Settings
from service.store.database import Database
from tests.service.process import Process
from tests.service.raw_http import Served
from tests.support.databases import database_url
from tests.support.waiting import wait_until as _wait_until

collect_ignore = ["deploy"]  # `make test-ray`


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("SOFTSERVE_")]:
            patch.delenv(name)
        yield


@pytest.fixture
def open_database() -> Iterator[Callable[[Path], Database]]:
    """Return a function that opens the database of a path; all of them are closed after the test."""
    with contextlib.ExitStack() as stack:

        def opened(path: Path) -> Database:
            return stack.enter_context(contextlib.closing(Database(database_url(path))))

        yield opened


@pytest.fixture(scope="session")
def library() -> LanguageModel:
    """The bundled language model, loaded apart from the service's."""
    return ModelStore(BUNDLED).load("next-word:4", threads=1)


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., None]:
    return _wait_until


@pytest.fixture(scope="session")
def client(_no_settings_from_outside: None) -> Iterator[TestClient]:
    """The service with the bundled language model, ready."""
    with TestClient(create_app(Settings(threads=1, models=("next-word:4",)))) as client:
        _wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


class Gate:
    """Lets batches of next words through while it is open; keeps the contexts that came, crashes at one."""

    def __init__(self) -> None:
        self.contexts: list[str] = []
        self.crashes_at: str | None = None
        self.entered, self.opened = threading.Event(), threading.Event()
        self.opened.set()

    def guard(self, library: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the gate before the library's model, which is loaded instead of any other."""

        def load(*_: object, **__: object) -> LanguageModel:
            return LanguageModel(library.manifest, library._tokenizer, library.backend)

        monkeypatch.setattr("service.engine.replicas.load_verified", load)
        monkeypatch.setattr(LanguageModel, "batch_functions", property(self.operations))

    def reset(self) -> None:
        """Forget the warm-up."""
        self.contexts.clear()
        self.entered.clear()

    def operations(self, model: LanguageModel) -> Mapping[str, Callable[[Sequence[Any]], Sequence[Any]]]:
        def next_words(queries: Sequence[Any]) -> Sequence[Any]:
            self.contexts += [query.context for query in queries]
            self.entered.set()
            if self.crashes_at in self.contexts:
                self.contexts.clear()
                raise ArithmeticError("secret")
            assert self.opened.wait(20)
            return model.run_next_words(queries)

        return {"next-word": next_words, "score": model.run_score}


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def serve(library: LanguageModel, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TestClient]]:
    """Serves the library's model behind the gate, with other settings; 500s are answered, not raised."""
    with contextlib.ExitStack() as running:
        running.callback(gate.opened.set)

        def start(**settings: Any) -> TestClient:
            gate.guard(library, monkeypatch)
            app = create_app(
                Settings(
                    **{"threads": 1, "models": ("next-word:4",), "parallel_batches": 1, "max_wait_ms": 1e9, **settings}
                )
            )
            client = running.enter_context(TestClient(app, raise_server_exceptions=False))
            running.callback(gate.opened.set)
            _wait_until(lambda: client.get("/readyz").status_code == 200)
            gate.reset()
            return client

        yield start


@pytest.fixture
def copied_models(tmp_path: Path) -> Path:
    """A model directory with a copy of the bundled language model as version 1, to be spoilt."""
    (bundled,) = (BUNDLED / "next-word").glob("4")
    manifest = Path(shutil.copytree(bundled, tmp_path / "models" / "next-word" / "1")) / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 1}))
    return tmp_path / "models"


@pytest.fixture
def two_versions(copied_models: Path) -> Path:
    """The bundled language model as versions 8 and 9."""
    (first,) = (copied_models / "next-word").iterdir()
    first.rename(first.with_name("8"))
    shutil.copytree(first.with_name("8"), first.with_name("9"))
    for version in (8, 9):
        path = first.with_name(str(version)) / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))
    return copied_models


@pytest.fixture
def broken_models(copied_models: Path) -> Path:
    (tokenizer,) = copied_models.glob("*/*/tokenizer.json")
    with tokenizer.open("ab") as file:
        file.write(b" ")
    return copied_models


@pytest.fixture(scope="session")
def detail_of() -> Callable[..., str]:
    """Checks that a response is a problem of that status (RFC 9457) and returns its detail."""

    def check(response: Any, status: int) -> str:
        problem = response.json()
        assert (response.status_code, problem["status"]) == (status, status), problem
        assert response.headers["content-type"] == "application/problem+json"
        assert set(problem) == {"type", "title", "status", "detail", "request_id"}
        assert problem["request_id"] == response.headers["x-request-id"]
        return str(problem["detail"])

    return check


@pytest.fixture(scope="session")
def metric() -> Callable[..., float]:
    """Sum of a metric's samples that have these labels, as `/metrics` says."""

    def read(client: TestClient, name: str, **labels: str) -> float:
        families = text_string_to_metric_families(client.get("/metrics").text)
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    return read


@pytest.fixture
def start(tmp_path):
    started = []

    def call(*arguments, **options):
        started.append(Process(tmp_path / f"log-{len(started)}", *arguments, **options))
        return started[-1]

    yield call
    for process in started:
        if process.process.poll() is None:
            process.process.kill()
        process.process.wait(30)


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
