"""The calls of README, quick start and how-to pages, to a server with the bundled models, and their answers."""

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.docs.blocks import ROOT, blocks
from tests.docs.workplace import Workplace, workplace

PAGES = [
    "README.md",
    "docs/quick-start.md",
    *sorted(
        str(path.relative_to(ROOT))
        for path in ROOT.glob("docs/how-to/*.md")
        if path.stem != "retrain" and not path.stem.startswith("own-")
    ),
]
"""Other pages have models of their own: `test_tutorials.py`, `test_tutorials_own.py`."""


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace in which `make serve` runs."""
    with workplace(tmp_path_factory.mktemp("bundled")) as place:
        place.serve("make serve")
        yield place


@pytest.mark.parametrize("page", PAGES)
def test_the_calls_of_a_page_have_its_answers(serving: Workplace, page: str) -> None:
    for block in blocks(page):
        serving.run(block)


@pytest.fixture(scope="module")
def program() -> types.ModuleType:
    """The program of the page on calls from Python."""
    (block,) = (each for each in blocks("docs/how-to/calling-from-python.md") if each.option("file"))
    module = types.ModuleType("translate_file")
    exec(block.code, vars(module))
    return module


def client_of(*responses: httpx2.Response) -> tuple[httpx2.Client, list[httpx2.Request]]:
    """A client that gets these responses, and the requests that it sends."""
    left, requests = list(responses), []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return left.pop(0)

    return httpx2.Client(base_url="http://service", transport=httpx2.MockTransport(answer)), requests


def test_the_program_waits_as_long_as_the_service_asks(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(program.time, "sleep", waits.append)
    refused = [httpx2.Response(429, headers={"Retry-After": "7"}), httpx2.Response(503, headers={"Retry-After": "2"})]
    client, requests = client_of(*refused, httpx2.Response(200, json={"results": []}))
    assert program.post(client, "/v1/translate", {"text": []}) == {"results": []}
    assert waits == [7.0, 2.0]
    assert len(requests) == 3


def test_the_program_repeats_no_other_error(program: Any) -> None:
    client, requests = client_of(httpx2.Response(422, json={"detail": "text: it is too long"}))
    with pytest.raises(SystemExit, match="422: text: it is too long"):
        program.post(client, "/v1/translate", {"text": ["..."]})
    assert len(requests) == 1


def test_the_program_sends_many_lines_at_a_time_with_a_deadline(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, int]] = []

    def post(client: httpx2.Client, path: str, body: dict[str, list[str]]) -> dict[str, Any]:
        sent.append((client.headers["X-Request-Timeout-Ms"], len(body["text"])))
        return {"results": [{"translations": [{"text": text.upper()}]} for text in body["text"]]}

    monkeypatch.setattr(program, "post", post)
    (tmp_path / "in").write_text("eins\n\nzwei\n" + "drei\n" * 80, encoding="utf-8")
    program.main(str(tmp_path / "in"), str(tmp_path / "out"))
    assert (tmp_path / "out").read_text(encoding="utf-8") == "EINS\n\nZWEI\n" + "DREI\n" * 80
    assert sent == [("30000", 63), ("30000", 19)]
