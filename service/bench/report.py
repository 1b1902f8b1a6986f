"""The report of a load test, as JSON and as tables."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from service.bench.load import Outcome
from service.bench.scrape import Difference, Distribution

__all__ = ["client_results", "print_report", "server_results"]

_SHARES = (50, 90, 95, 99)
_DURATIONS = {
    "queue": "queue_duration_seconds",
    "tokenize": "tokenize_duration_seconds",
    "inference": "inference_duration_seconds",
}
_BATCHES = {"batch_items": "batch_items", "batch_tokens": "batch_tokens", "padding_ratio": "batch_padding_ratio"}
_WHOLE = {"batch_items", "batch_tokens"}
"""Counts, whose interpolated quantiles are rounded up, because a bucket does not contain its lower bound."""
_ROWS = {
    "queue": ("queue time per text", "ms"),
    "tokenize": ("tokenization per request", "ms"),
    "inference": ("inference per batch or step", "ms"),
    "batch_items": ("texts per batch", ""),
    "batch_tokens": ("tokens per batch", ""),
    "padding_ratio": ("padding per batch", "%"),
}
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
    for names, scale in ((_DURATIONS, 1000.0), (_BATCHES, 1.0)):
        for key, name in names.items():
            found = difference.distribution(name)
            if found.count > 0:
                part[key if scale == 1.0 else f"{key}_ms"] = _summary(found, scale, whole=key in _WHOLE)
    part["refused"] = difference.by_label("rejected", "reason")
    part["prefix_cache"] = {kind: difference.counter(f"prefix_cache_{kind}") for kind in ("hits", "misses")}
    part["generated_tokens_per_second"] = difference.counter("generated_tokens") / difference.seconds
    part["resident_bytes"] = difference.gauge("process_resident_memory_bytes")
    return part


def _latency(seconds: Sequence[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    values = 1000 * np.asarray(seconds)
    found = {f"p{share}": float(np.percentile(values, share)) for share in _SHARES}
    return {"mean": float(values.mean()), **found, "max": float(values.max())}


def _summary(found: Distribution, scale: float, *, whole: bool) -> dict[str, Any]:
    quantiles = {name: found.quantile(share) for name, share in (("p50", 0.5), ("p99", 0.99))}
    if whole:
        quantiles = {name: float(math.ceil(value)) for name, value in quantiles.items()}
    beyond = [name for name, value in quantiles.items() if value >= found.largest]
    scaled = {name: scale * value for name, value in {"mean": found.mean, **quantiles}.items()}
    return {"count": found.count, **scaled, **({"at_least": beyond} if beyond else {})}


def print_report(console: Console, result: Mapping[str, Any]) -> None:
    """Print a report: the workload, the client's measurements, the server's metrics."""
    console.print(_headline(result), highlight=False, markup=False, soft_wrap=True)
    if not result["requests"]:
        console.print("no request was completed in the measured time", style="bold red")
        return
    console.print(_requests(result))
    if result["latency_ms"] or result["refused"]["latency_ms"]:
        console.print(_latencies(result))
    for line in _remarks(result):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    server = result["server"]
    if "missing" in server:
        console.print(f"no metrics of the server: {server['missing']}", highlight=False, markup=False, soft_wrap=True)
        return
    console.print(_server(server))
    for line in _server_lines(server):
        console.print(line, highlight=False, soft_wrap=True)


def _headline(result: Mapping[str, Any]) -> str:
    loop = (
        f"open loop, {result['rate']:g} requests/s"
        if result["rate"]
        else f"closed loop, {result['connections']} connections"
    )
    inputs = f"{result['texts_per_request']} {result['reads']}{'s' if result['texts_per_request'] > 1 else ''}"
    early = ", ended early" if result["interrupted"] else ""
    return (
        f"{result['model']}:{result['version']} ({result['task']}) at {result['url']}{result['endpoint']}\n"
        f"{loop}, {inputs} per request, {result['texts']}; {result['seconds']:.1f} s{early}"
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _requests(result: Mapping[str, Any]) -> Table:
    table = _table("Requests", "", "count", "per second")
    answered = result["answered"]
    table.add_row(
        "due" if result["rate"] else "sent", str(result["requests"]), f"{result['requests'] / result['seconds']:.1f}"
    )
    table.add_row("answered", str(answered), f"{result['requests_per_second']:.1f}")
    if result["texts_per_request"] > 1:
        texts = result["texts_per_request"]
        table.add_row("texts answered", str(texts * answered), f"{result['texts_per_second']:.1f}")
    for status, count in result["statuses"].items():
        if status[0] != "2":
            table.add_row("refused (429)" if status == "429" else f"status {status}", str(count), "")
    for kind, count in result["failures"].items():
        table.add_row(kind, str(count), "")
    return table


def _latencies(result: Mapping[str, Any]) -> Table:
    table = _table("Latency, ms", "", "mean", *(f"p{share}" for share in _SHARES), "max")
    for name, found in (("answered", result["latency_ms"]), ("refused", result["refused"]["latency_ms"])):
        if found:
            table.add_row(name, *(_short(value) for value in found.values()))
    return table


def _remarks(result: Mapping[str, Any]) -> list[str]:
    said = [f"status {status}: {detail}" for status, detail in result["details"].items()]
    if result["answered_after"] > _MANY * result["requests"]:
        said.append(f"{result['answered_after']} responses came after the measured time and do not count in the rates")
    if result["refused"]["count"]:
        seen = ", ".join(f"{value} ({count} x)" for value, count in result["refused"]["retry_after"].items())
        said.append(f"Retry-After of refused requests, in seconds: {seen}")
    client = result["client"]
    if client["processor_share"] > _BUSY:
        said.append(
            f"the client used {100 * client['processor_share']:.0f} % of a processor: "
            "it may limit the load, not the server"
        )
    if client["late_ms"] and client["late_ms"]["p99"] > _LATE_MS:
        said.append(
            f"the client sent requests late: p99 {_short(client['late_ms']['p99'])} ms, which latencies include"
        )
    return said


def _server(server: Mapping[str, Any]) -> Table:
    table = _table(
        "Metrics of the server; p50 and p99 are interpolated within buckets", "", "count", "mean", "p50", "p99"
    )
    for key, (name, unit) in _ROWS.items():
        found = server.get(f"{key}_ms" if unit == "ms" else key)
        if found:
            scale = 100 if unit == "%" else 1
            cells = [
                (">" if column in found.get("at_least", ()) else "") + _short(scale * found[column])
                for column in ("mean", "p50", "p99")
            ]
            table.add_row(f"{name}{f', {unit}' if unit else ''}", f"{found['count']:.0f}", *cells)
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
