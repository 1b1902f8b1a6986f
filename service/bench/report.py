"""The report of a load test, as JSON and as tables."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from service.bench.load import Outcome
from service.bench.scrape import Difference, Distribution

__all__ = ["client_results", "print_report", "server_results"]

_PERCENTILES = (50, 90, 95, 99)


class _Histogram(NamedTuple):
    """How a histogram of the server is reported."""

    metric: str
    heading: str
    """Heading of its row in the table, with the unit."""
    scale: float = 1.0
    """Factor from the metric's unit to that of the JSON."""
    shown: float = 1.0
    """Factor from the unit of the JSON to that of the table."""
    whole: bool = False
    """Whether it is of counts: their quantiles are rounded up, for a bucket does not contain its lower bound."""


_HISTOGRAMS = {
    "queue_ms": _Histogram("queue_duration_seconds", "queue time per text, ms", scale=1000),
    "tokenize_ms": _Histogram("tokenize_duration_seconds", "tokenization per request, ms", scale=1000),
    "inference_ms": _Histogram("inference_duration_seconds", "inference per batch or step, ms", scale=1000),
    "batch_items": _Histogram("batch_items", "texts per batch", whole=True),
    "batch_tokens": _Histogram("batch_tokens", "tokens per batch", whole=True),
    "padding_ratio": _Histogram("batch_padding_ratio", "padding per batch, %", shown=100),
}
"""The reported histograms, by their keys in the JSON."""
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
    part: dict[str, Any] = {"seconds": difference.seconds}
    for key, histogram in _HISTOGRAMS.items():
        found = difference.distribution(histogram.metric)
        if found.count > 0:
            part[key] = _summary(found, histogram)
    part["refused"] = difference.by_label("rejected", "reason")
    part["prefix_cache"] = {kind: difference.counter(f"prefix_cache_{kind}") for kind in ("hits", "misses")}
    part["generated_tokens_per_second"] = difference.counter("generated_tokens") / difference.seconds
    part["resident_bytes"] = difference.gauge("process_resident_memory_bytes")
    return part


def _latency(seconds: Sequence[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    values = 1000 * np.asarray(seconds)
    percentiles = {f"p{percent}": float(np.percentile(values, percent)) for percent in _PERCENTILES}
    return {"mean": float(values.mean()), **percentiles, "max": float(values.max())}


def _summary(found: Distribution, histogram: _Histogram) -> dict[str, Any]:
    quantiles = {"p50": found.quantile(0.5), "p99": found.quantile(0.99)}
    if histogram.whole:
        quantiles = {name: float(math.ceil(value)) for name, value in quantiles.items()}
    beyond = [name for name, value in quantiles.items() if value >= found.largest]
    scaled = {name: histogram.scale * value for name, value in {"mean": found.mean, **quantiles}.items()}
    return {"count": found.count, **scaled, **({"at_least": beyond} if beyond else {})}


def print_report(console: Console, result: Mapping[str, Any]) -> None:
    """Print a report: the workload, the client's measurements, the server's metrics."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    say(_headline(result))
    if not result["requests"]:
        say("no request was completed in the measured time", style="bold red")
        return
    console.print(_requests(result))
    if result["latency_ms"] or result["refused"]["latency_ms"]:
        console.print(_latencies(result))
    for line in _remarks(result):
        say(line)
    server = result["server"]
    if "missing" in server:
        say(f"no metrics of the server: {server['missing']}")
        return
    console.print(_server(server))
    for line in _server_lines(server):
        say(line)


def _headline(result: Mapping[str, Any]) -> str:
    rate, inputs = result["rate"], result["texts_per_request"]
    loop = f"open loop, {rate:g} requests/s" if rate else f"closed loop, {result['connections']} connections"
    noun = f"{result['reads']}{'s' if inputs > 1 else ''}"
    early = ", ended early" if result["interrupted"] else ""
    return (
        f"{result['model']}:{result['version']} ({result['task']}) at {result['url']}{result['endpoint']}\n"
        f"{loop}, {inputs} {noun} per request, {result['texts']}; {result['seconds']:.1f} s{early}"
    )


def _table(title: str, *columns: str) -> Table:
    table = Table("", title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _requests(result: Mapping[str, Any]) -> Table:
    table = _table("Requests", "count", "per second")
    requests, answered, texts = result["requests"], result["answered"], result["texts_per_request"]
    table.add_row("due" if result["rate"] else "sent", str(requests), f"{requests / result['seconds']:.1f}")
    table.add_row("answered", str(answered), f"{result['requests_per_second']:.1f}")
    if texts > 1:
        table.add_row("texts answered", str(texts * answered), f"{result['texts_per_second']:.1f}")
    for status, count in result["statuses"].items():
        if status[0] != "2":
            table.add_row("refused (429)" if status == "429" else f"status {status}", str(count))
    for kind, count in result["failures"].items():
        table.add_row(kind, str(count))
    return table


def _latencies(result: Mapping[str, Any]) -> Table:
    table = _table("Latency, ms", "mean", *(f"p{percent}" for percent in _PERCENTILES), "max")
    for name, found in (("answered", result["latency_ms"]), ("refused", result["refused"]["latency_ms"])):
        if found:
            table.add_row(name, *map(_short, found.values()))
    return table


def _remarks(result: Mapping[str, Any]) -> list[str]:
    said = [f"status {status}: {detail}" for status, detail in result["details"].items()]
    if result["answered_after"] > _MANY * result["requests"]:
        said.append(f"{result['answered_after']} responses came after the measured time and do not count in the rates")
    if result["refused"]["count"]:
        seen = ", ".join(f"{value} ({count} x)" for value, count in result["refused"]["retry_after"].items())
        said.append(f"Retry-After of refused requests, in seconds: {seen}")
    share, late = result["client"]["processor_share"], result["client"]["late_ms"]
    if share > _BUSY:
        said.append(f"the client used {100 * share:.0f} % of a processor: it may limit the load, not the server")
    if late and late["p99"] > _LATE_MS:
        said.append(f"the client sent requests late: p99 {_short(late['p99'])} ms, which latencies include")
    return said


def _server(server: Mapping[str, Any]) -> Table:
    title = "Metrics of the server; p50 and p99 are interpolated within buckets"
    table = _table(title, "count", "mean", "p50", "p99")
    for key, histogram in _HISTOGRAMS.items():
        if found := server.get(key):
            cells = [
                (">" if column in found.get("at_least", ()) else "") + _short(histogram.shown * found[column])
                for column in ("mean", "p50", "p99")
            ]
            table.add_row(histogram.heading, f"{found['count']:.0f}", *cells)
    return table


def _server_lines(server: Mapping[str, Any]) -> list[str]:
    lines = []
    if server["refused"]:
        lines.append("texts refused: " + ", ".join(f"{count:.0f} {why}" for why, count in server["refused"].items()))
    hits, misses = server["prefix_cache"]["hits"], server["prefix_cache"]["misses"]
    if hits or misses:
        lines.append(f"prefix cache: {100 * hits / (hits + misses):.0f} % of {hits + misses:.0f} contexts hit")
    if server["generated_tokens_per_second"]:
        lines.append(f"generated tokens/s: {server['generated_tokens_per_second']:.1f}")
    if server["resident_bytes"]:
        lines.append(f"resident memory: {server['resident_bytes'] / 1e6:.0f} MB")
    return lines


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"
