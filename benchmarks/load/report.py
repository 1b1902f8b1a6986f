"""The report of a load test, as JSON and as tables."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.load.generator import Outcome
from benchmarks.load.scrape import Difference, Distribution
from models.escaping import escaped

__all__ = ["client_results", "print_report", "server_results"]

_SHARES = (50, 90, 95, 99)
_HISTOGRAMS = {
    "queue_ms": ("queue_duration_seconds", "queue time per text, ms"),
    "tokenize_ms": ("tokenize_duration_seconds", "tokenization per request, ms"),
    "inference_ms": ("inference_duration_seconds", "inference per batch or sequence, ms"),
    "batch_items": ("batch_items", "texts per batch"),
    "batch_tokens": ("batch_tokens", "tokens per batch"),
    "padding_ratio": ("batch_padding_ratio", "padding per batch, %"),
}
"""Metric of the server and heading of the row for each key of the results."""
_WHOLE = {"batch_items", "batch_tokens"}
"""Counts, whose interpolated quantiles are rounded up, because a bucket does not contain its lower bound."""
_BUSY = 0.9
"""Fraction of one processor above which the client limits the load."""
_LATE_MS = 20.0
"""Delay of requests by the client, in milliseconds, above which it is reported."""
_MANY = 0.02
"""Fraction of the requests that ended after the measured time above which it is reported."""


def client_results(outcome: Outcome, texts: int) -> dict[str, Any]:
    """Return the client's measurements, for requests of that many texts. Times in milliseconds, rates per second."""
    seconds = outcome.seconds
    rate = outcome.in_time / seconds if seconds else 0.0
    return {
        "seconds": seconds,
        "requests": outcome.requests,
        "requests_per_second": rate,
        "texts_per_second": rate * texts,
        "answered": len(outcome.answered),
        "answered_after": outcome.after,
        "latency_ms": _latency(outcome.answered),
        "statuses": {str(status): count for status, count in sorted(outcome.statuses.items())},
        "failures": dict(outcome.failures.most_common()),
        "details": {str(status): said for status, said in sorted(outcome.details.items())},
        "refused": {
            "count": len(outcome.refused),
            "latency_ms": _latency(outcome.refused),
            "retry_after": dict(outcome.retry_after.most_common()),
        },
        "client": {
            "processor_share": outcome.processor_seconds / seconds if seconds else 0.0,
            "late_ms": _latency(outcome.late),
        },
    }


def server_results(difference: Difference) -> dict[str, Any]:
    """Return the server's metrics. Times in milliseconds; metrics without observations are left out or 0."""
    found = {key: difference.distribution(metric) for key, (metric, _) in _HISTOGRAMS.items()}
    return {
        "seconds": difference.seconds,
        **{key: _summary(key, observed) for key, observed in found.items() if observed.count > 0},
        "refused": difference.by_label("rejected", "reason"),
        "prefix_cache": {kind: difference.counter(f"prefix_cache_{kind}") for kind in ("hits", "misses")},
        "generated_tokens_per_second": difference.counter("generated_tokens") / difference.seconds,
        "resident_bytes": difference.gauge("process_resident_memory_bytes"),
    }


def _latency(seconds: Sequence[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    values = 1000 * np.asarray(seconds)
    quantiles = zip(_SHARES, np.percentile(values, _SHARES).tolist(), strict=True)
    return {
        "mean": float(values.mean()),
        **{f"p{share}": value for share, value in quantiles},
        "max": float(values.max()),
    }


def _summary(key: str, found: Distribution) -> dict[str, Any]:
    scale = 1000.0 if key.endswith("_ms") else 1.0
    quantiles = {"p50": found.quantile(0.5), "p99": found.quantile(0.99)}
    if key in _WHOLE:
        quantiles = {name: float(math.ceil(value)) for name, value in quantiles.items()}
    beyond = [name for name, value in quantiles.items() if value >= found.largest]
    scaled = {name: scale * value for name, value in {"mean": found.mean, **quantiles}.items()}
    return {"count": found.count, **scaled, **({"at_least": beyond} if beyond else {})}


def print_report(console: Console, result: Mapping[str, Any]) -> None:
    """Print a report: the workload, the client's measurements, the server's metrics."""
    for part in _parts(result):
        if isinstance(part, str):  # with words of the server
            console.print(escaped(part, lines=True), highlight=False, markup=False, soft_wrap=True)
        else:
            console.print(part)


def _parts(result: Mapping[str, Any]) -> Iterator[str | Text | Table]:
    yield _headline(result)
    if not result["requests"]:
        yield Text("no request was completed in the measured time", "bold red")
        return
    yield _table("Requests", ["count", "per second"], _requests(result))
    latencies = {"answered": result["latency_ms"], "refused": result["refused"]["latency_ms"]}
    rows = [[name, *map(_short, found.values())] for name, found in latencies.items() if found]
    if rows:
        yield _table("Latency, ms", ["mean", *(f"p{share}" for share in _SHARES), "max"], rows)
    yield from _remarks(result)
    server = result["server"]
    if "missing" in server:
        yield f"no metrics of the server: {server['missing']}"
        return
    title = "Metrics of the server; p50 and p99 are interpolated within buckets"
    yield _table(title, ["count", "mean", "p50", "p99"], _server_rows(server))
    yield from _server_lines(server)


def _headline(result: Mapping[str, Any]) -> str:
    loop = f"closed loop, {result['connections']} connections"
    if result["rate"]:
        loop = f"open loop, {result['rate']:g} requests/s"
    inputs = f"{result['texts_per_request']} {result['reads']}{'s' if result['texts_per_request'] > 1 else ''}"
    early = ", ended early" if result["interrupted"] else ""
    return (
        f"{result['model']}:{result['version']} ({result['task']}) at {result['url']}{result['endpoint']}\n"
        f"{loop}, {inputs} per request, {result['texts']}; {result['seconds']:.1f} s{early}"
    )


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table("", title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _requests(result: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    requests, answered, texts = result["requests"], result["answered"], result["texts_per_request"]
    yield "due" if result["rate"] else "sent", str(requests), f"{requests / result['seconds']:.1f}"
    yield "answered", str(answered), f"{result['requests_per_second']:.1f}"
    if texts > 1:
        yield "texts answered", str(texts * answered), f"{result['texts_per_second']:.1f}"
    for status, count in result["statuses"].items():
        if status[0] != "2":
            yield "refused (429)" if status == "429" else f"status {status}", str(count)
    for kind, count in result["failures"].items():
        yield kind, str(count)


def _remarks(result: Mapping[str, Any]) -> Iterator[str]:
    for status, detail in result["details"].items():
        yield f"status {status}: {detail}"
    if result["answered_after"] > _MANY * result["requests"]:
        yield f"{result['answered_after']} responses came after the measured time and do not count in the rates"
    if result["refused"]["count"]:
        seen = ", ".join(f"{value} ({count} x)" for value, count in result["refused"]["retry_after"].items())
        yield f"Retry-After of refused requests, in seconds: {seen}"
    share, late = result["client"]["processor_share"], result["client"]["late_ms"]
    if share > _BUSY:
        yield f"the client used {100 * share:.0f} % of a processor: it may limit the load, not the server"
    if late and late["p99"] > _LATE_MS:
        yield f"the client sent requests late: p99 {_short(late['p99'])} ms, which latencies include"


def _server_rows(server: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for key, (_, heading) in _HISTOGRAMS.items():
        if found := server.get(key):
            scale = 100 if heading.endswith("%") else 1
            above = dict.fromkeys(found.get("at_least", ()), ">")
            cells = [above.get(column, "") + _short(scale * found[column]) for column in ("mean", "p50", "p99")]
            yield heading, f"{found['count']:.0f}", *cells


def _server_lines(server: Mapping[str, Any]) -> Iterator[str]:
    if server["refused"]:
        yield "texts refused: " + ", ".join(f"{count:.0f} {why}" for why, count in server["refused"].items())
    hits, misses = server["prefix_cache"]["hits"], server["prefix_cache"]["misses"]
    if hits or misses:
        yield f"prefix cache: {100 * hits / (hits + misses):.0f} % of {hits + misses:.0f} contexts hit"
    if server["generated_tokens_per_second"]:
        yield f"generated tokens/s: {server['generated_tokens_per_second']:.1f}"
    if server["resident_bytes"]:
        yield f"resident memory: {server['resident_bytes'] / 1e6:.0f} MB"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"
