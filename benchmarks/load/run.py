"""Run a load test, from the choice of the model to the report."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

from benchmarks.load.client import Client, TransportError, base_url
from benchmarks.load.generator import LoadTest
from benchmarks.load.model_list import choose, list_models
from benchmarks.load.options import LoadOptions, UsageError
from benchmarks.load.progress import progress_bar
from benchmarks.load.report import client_results, print_report, server_results
from benchmarks.load.scrape import Difference, Scrape, ScrapeError
from benchmarks.load.workload import Workload

__all__ = ["new_event_loop", "run", "scrape", "server_part"]

_SCRAPE_TIMEOUT = 5.0
"""Seconds within which `GET /metrics` must respond."""


def run(url: str, options: LoadOptions) -> int:
    """Run a load test and print its report; return 0 if every response was right, else 1. Raises `UsageError`."""
    base, key = base_url(url), options.key()
    if options.json is not None and not options.json.parent.is_dir():
        raise UsageError(f"--json: there is no directory {options.json.parent}")
    with asyncio.Runner(loop_factory=new_event_loop()) as runner:
        result, good = runner.run(_run(base, key, options))
    print_report(Console(), result)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if good else 1


def new_event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's event loop where it is installed: a request takes the client a third less processor time."""
    with contextlib.suppress(ModuleNotFoundError):
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


async def _run(base: str, key: str | None, options: LoadOptions) -> tuple[dict[str, Any], bool]:
    connections, console = options.most_connections(), Console(stderr=True)
    async with Client(base, key, 1) as control, Client(base, key, connections) as client:
        model = choose(await list_models(control, base), options.model)
        workload = Workload(model, options)
        console.print(f"testing {model.name}:{model.version} at {base}{workload.path}", highlight=False, markup=False)
        test = LoadTest(client, workload, options)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, test.stop)  # the results so far are reported
        with progress_bar(test, options, console):
            before = await test.run(lambda: scrape(control))
        server = server_part(before, await scrape(control), model.name)
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


async def scrape(client: Client) -> Scrape | ScrapeError:
    """Return the server's metrics, or the error where there are none."""
    try:
        response = await client.get("/metrics", _SCRAPE_TIMEOUT)
        if response.status != 200:
            return ScrapeError(f"/metrics answers with status {response.status}")
        return Scrape.parse(response.content, time.perf_counter())
    except TransportError as error:
        return ScrapeError(f"/metrics: {error}")
    except ScrapeError as error:
        return error


def server_part(before: Scrape | ScrapeError, after: Scrape | ScrapeError, model: str) -> dict[str, Any]:
    """Return the server's metrics between two scrapes, or why there are none: a load test stands without them."""
    try:
        if isinstance(before, ScrapeError):
            raise before
        if isinstance(after, ScrapeError):
            raise after
        return server_results(Difference(before, after, model))
    except ScrapeError as error:
        return {"missing": str(error)}
