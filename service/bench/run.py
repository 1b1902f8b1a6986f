"""Run a load test, from the choice of the model to the report."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console

from service.bench.client import Client, TransportError, base_url
from service.bench.load import LoadTest
from service.bench.model_list import ListedModel, choose, list_models
from service.bench.options import LoadOptions, UsageError
from service.bench.progress import progress_bar
from service.bench.report import client_results, print_report, server_results
from service.bench.scrape import Difference, Scrape, ScrapeError
from service.bench.workload import Workload

__all__ = ["run"]

_SCRAPE_TIMEOUT = 5.0
"""Seconds within which `GET /metrics` must respond."""


def run(url: str, options: LoadOptions) -> int:
    """Run a load test and print its report; return 0 if every response was right, else 1. Raises `UsageError`."""
    base, key = base_url(url), options.key()
    if options.json is not None and not options.json.parent.is_dir():
        raise UsageError(f"--json: there is no directory {options.json.parent}")
    with asyncio.Runner(loop_factory=_new_event_loop()) as runner:
        result, good = runner.run(_run(base, key, options))
    print_report(Console(), result)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if good else 1


def _new_event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's event loop where it is installed: a request takes the client a third less processor time."""
    with contextlib.suppress(ModuleNotFoundError):
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


async def _run(base: str, key: str | None, options: LoadOptions) -> tuple[dict[str, Any], bool]:
    connections = options.most_connections()
    async with Client(base, key, 1) as control, Client(base, key, connections) as client:
        model = choose(await list_models(control, base), options.model)
        workload = Workload(model, options)
        console = Console(stderr=True)
        console.print(f"testing {model.name}:{model.version} at {base}{workload.path}", highlight=False, markup=False)
        test = LoadTest(client, workload, options)
        statistics = _Statistics(control, model)
        with _stopped_by_sigint(test):
            async with progress_bar(test, options, console):
                await test.run(statistics.before)
            server = await statistics.after()
    result = {
        "url": base,
        "model": model.name,
        "version": model.version,
        "task": model.task,
        "reads": model.reads,
        "endpoint": workload.path,
        "connections": connections,
        "rate": options.rate,
        "warm_up": options.warm_up,
        "texts_per_request": workload.inputs_per_request,
        "texts": workload.description,
        "interrupted": test.stopped,
        **client_results(test.outcome, workload.inputs_per_request),
        "server": server,
    }
    return result, test.outcome.good


class _Statistics:
    """Scrape the server's metrics before and after the measured time; failures are reported, never raised."""

    def __init__(self, client: Client, model: ListedModel) -> None:
        self._client, self._model = client, model
        self._before: Scrape | ScrapeError = ScrapeError("the measurement did not begin")

    async def before(self) -> None:
        try:
            self._before = await self._scrape()
        except ScrapeError as error:
            self._before = error

    async def after(self) -> dict[str, Any]:
        try:
            if isinstance(self._before, ScrapeError):
                raise self._before
            return server_results(Difference(self._before, await self._scrape(), self._model.name))
        except ScrapeError as error:
            return {"missing": str(error)}

    async def _scrape(self) -> Scrape:
        try:
            answer = await self._client.get("/metrics", _SCRAPE_TIMEOUT)
        except TransportError as error:
            raise ScrapeError(f"/metrics: {error}") from None
        if answer.status != 200:
            raise ScrapeError(f"/metrics answers with status {answer.status}")
        return Scrape.parse(answer.content, time.perf_counter())


@contextlib.contextmanager
def _stopped_by_sigint(test: LoadTest) -> Iterator[None]:
    """End the load at the first Ctrl-C, so that the results so far are reported."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, test.stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
