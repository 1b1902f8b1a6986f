"""Throughput and latency through `softserve serve`, in requests of one text and, of classifiers, of 32.

Two servers run, one after the other: one with the bundled models, one with the made ones.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.clients import Clients, clients
from benchmarks.gpu.machine import usage
from benchmarks.gpu.results import Context, Values
from benchmarks.gpu.subjects import Subject, subjects, texts
from benchmarks.load.client import Client
from benchmarks.load.model_list import ListedModel, choose, list_models
from benchmarks.load.options import LoadOptions
from benchmarks.load.run import scrape, server_part
from benchmarks.load.workload import Workload
from benchmarks.server import post_json, serving
from models.store import BUNDLED

__all__ = ["CONNECTIONS", "row_name", "run", "write_texts"]

CONNECTIONS, _SMALL_CONNECTIONS = (1, 16, 64, 256), (1, 4)
_MANY, _SMALL_MANY = 32, 4
"""Texts in a request, besides one; of classifiers alone."""
_WARM_UP = 64, 10.0
"""Connections and seconds of the load before the first measurement of a model and size of request."""
_SMALL_WARM_UP = 2, 0.2
_SECONDS, _SMALL_SECONDS = 3.0, 0.3
_SETTLING, _SMALL_SETTLING = 0.5, 0.0
"""Seconds of each load that are not counted."""
_READY_SECONDS = 120.0
_TEXTS = 500
_FLAGS = ("--max-batch-items", "256", "--max-queue-items", "16384", "--max-queue-tokens", "4194304")
_SMALL_FLAGS = ("--max-batch-items", "4", "--parallel-batches", "1")
"""Settings of the servers: batches as large as those in process, and queues that hold all requests of a load."""
_REQUESTS, _LAST = 100, 11
"""Requests after the start, and how many of the last ones stand for the hundredth: their median."""


def run(context: Context) -> None:
    """Write a row of each model, size of request and number of connections; one of each start, and one of memory."""
    chosen = subjects(context)
    with clients() as load:
        _serve(context, "bundled models", BUNDLED, [each for each in chosen if not each.made], load)
        _serve(context, "made models", context.work / "models", [each for each in chosen if each.made], load)


def row_name(model: str, operation: str, each: int, connections: int) -> str:
    """Return the name of a row."""
    return f"{model}, {operation}, {each} a request, {connections} connections"


def write_texts(context: Context, name: str) -> Path:
    """Write inputs of a model to a file, one on each line, and return its path."""
    path = context.work / "texts" / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in texts(name, _TEXTS)), encoding="utf-8")
    return path


def _serve(context: Context, name: str, directory: Path, chosen: Sequence[Subject], load: Clients) -> None:
    """Measure the models of one server, unless all is known; an error of the server is the result of a row."""
    if not chosen or context.done(f"{name}, memory"):  # the last row of a server
        return
    complete = True
    try:
        with usage(context.device, os.getpid()) as used:
            started = time.perf_counter()
            flags = ("--device", context.device, *(_SMALL_FLAGS if context.small else _FLAGS))
            names = [each.name for each in chosen if any((directory / each.name).glob("*/manifest.json"))]
            with serving(directory, names, *flags, seconds=_READY_SECONDS) as (port, _):
                ready = time.perf_counter() - started
                url = f"http://127.0.0.1:{port}"
                listed = asyncio.run(_listed(url))
                first = chosen[0]
                context.measure(f"{name}, start", lambda: _start(url, choose(listed, first.name), first, ready))
                for subject in chosen:
                    served = f"{subject.name}, served"
                    if context.measure(served, partial(_version, listed, subject.name)):
                        complete &= _loads(context, subject, choose(listed, subject.name), url, load)
                    else:
                        complete = False
    except Exception as error:
        context.fail([f"{name}, memory"], error)
        return
    if complete:
        context.measure(f"{name}, memory", used.values)


def _version(listed: Sequence[ListedModel], name: str) -> Values:
    """Return the version that is served; raises `UsageError` where the model is not."""
    return {"version": choose(listed, name).version}


async def _listed(url: str) -> list[ListedModel]:
    async with Client(url, None, 1) as client:
        return await list_models(client, url)


def _start(url: str, model: ListedModel, subject: Subject, ready: float) -> Values:
    """Return the seconds until the server was ready, and the times of the first and of the hundredth request."""
    seconds = asyncio.run(_one_by_one(url, Workload(model, LoadOptions()), texts(subject.name, 1)[0]))
    return {
        "ready_seconds": ready,
        "first_ms": 1000 * seconds[0],
        "hundredth_ms": 1000 * statistics.median(seconds[-_LAST:]),
    }


async def _one_by_one(url: str, workload: Workload, text: str) -> list[float]:
    """Return the time of each of a hundred requests of one text."""
    found: list[float] = []
    async with Client(url, None, 1) as client:
        await client.get("/livez", 10)  # which opens the connection
        for _ in range(_REQUESTS):
            started = time.perf_counter()
            status, answer = await post_json(client, workload.path, {"text": text})
            found.append(time.perf_counter() - started)
            if status != 200:
                raise RuntimeError(f"{workload.path} answers {status}: {answer}")
    return found


def _loads(context: Context, subject: Subject, model: ListedModel, url: str, load: Clients) -> bool:
    """Measure a model by each operation, size of request and number of connections; return whether all is known."""
    connections = _SMALL_CONNECTIONS if context.small else CONNECTIONS
    many = _SMALL_MANY if context.small else _MANY
    file = write_texts(context, subject.name) if subject.made or subject.name == "intents" else None
    complete = True
    for operation in model.operations:
        for each in (1, many) if operation == "classify" else (1,):
            rows = {row_name(subject.name, operation, each, count): count for count in connections}
            known = all(map(context.done, rows))
            options: dict[str, Any] = {"endpoint": operation, "texts_per_request": each, "file": file}
            options["beam_size"] = subject.beam
            one = partial(_load, context, url, model, load, options)
            if not known and time.monotonic() < context.deadline:
                warm_up = _SMALL_WARM_UP if context.small else _WARM_UP
                one(*warm_up)
            for row, count in rows.items():
                seconds = _SMALL_SECONDS if context.small else _SECONDS
                complete &= context.measure(row, partial(one, count, seconds))
    return complete


def _load(
    context: Context,
    url: str,
    model: ListedModel,
    load: Clients,
    options: Mapping[str, Any],
    connections: int,
    seconds: float,
) -> Values:
    """Return rates and latencies of a load, and the server's metrics of that time, the warm-up of the load included.

    Raises `RuntimeError` where no request was answered.
    """
    settling = _SMALL_SETTLING if context.small else _SETTLING
    chosen = LoadOptions(seconds=seconds, warm_up=settling, connections=connections, **options)
    with usage(context.device, os.getpid()) as used:
        before = asyncio.run(_scraped(url))
        found = load.load(url, partial(Workload, model, chosen), chosen.texts_per_request, chosen)
        server = server_part(before, asyncio.run(_scraped(url)), model.name)
    if not found["answered"]:
        raise RuntimeError(f"no request was answered: {found['statuses']}, {found['failures']}, {found['details']}")
    means = {
        f"{name}_mean": server[name]["mean"]
        for name in ("batch_items", "queue_ms", "tokenize_ms", "inference_ms", "padding_ratio")
        if name in server
    }
    return {
        "requests_per_second": found["requests_per_second"],
        "texts_per_second": found["texts_per_second"],
        "tokens_per_second": server.get("generated_tokens_per_second", 0.0),
        "p50_ms": found["latency_ms"]["p50"],
        "p99_ms": found["latency_ms"]["p99"],
        **means,
        "batch_items_p99": server.get("batch_items", {}).get("p99", 0.0),
        "failed": sum(found["failures"].values()) + found["refused"]["count"],
        "client_processor_share": found["client"]["processor_share"],
        **used.values(),
    }


async def _scraped(url: str) -> Any:
    async with Client(url, None, 1) as client:
        return await scrape(client)
