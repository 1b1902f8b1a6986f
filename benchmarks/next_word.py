"""Measure the latency of one next-word request, in process and through HTTP, interleaved in one run.

    python -m benchmarks.next_word [--rounds 300]

The server runs in a process of its own on a free port of the loopback interface; the client keeps one connection. Its
prefix cache is off, because all requests have the same context.
"""

import http.client
import json
import os
import platform
import statistics
from collections.abc import Callable

import onnxruntime
import tyro

from benchmarks.server import serving
from benchmarks.timing import interleaved
from models import LanguageModel, ModelStore
from service.settings import BUNDLED

CONTEXT = "i have been looking for something like"


def main(rounds: int = 300, long_words: int = 200) -> None:
    """Print medians and 95th percentiles in milliseconds, and ratios to the in-process call.

    Args:
        rounds: Repetitions of each measurement.
        long_words: Length of the long prefix whose continuation is measured.
    """
    model = ModelStore(BUNDLED).load("next-word:4")
    assert isinstance(model, LanguageModel)
    prefix = model.next_words([" ".join(["word"] * long_words)])[0].prefix
    long_context = " ".join(["word"] * long_words) + " this"
    with serving(BUNDLED, "next-word:4", "--prefix-cache-mb", "0") as (port, _):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        calls: dict[str, Callable[[], object]] = {
            "in process, 7 words": lambda: model.next_words([CONTEXT]),
            "HTTP, 7 words": lambda: _post(connection, CONTEXT),
            f"in process, {long_words} words read again": lambda: model.next_words([long_context]),
            f"in process, {long_words} words continued": lambda: model.next_words(["this"], after=[prefix]),
        }
        times = interleaved(calls, rounds, warm_up=10)
    base = statistics.median(next(iter(times.values())))
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, onnxruntime {onnxruntime.__version__}"
    )
    for name, values in times.items():
        median, high = statistics.median(values), statistics.quantiles(values, n=20)[-1]
        print(f"{name:<38} {1000 * median:7.2f} ms   p95 {1000 * high:7.2f} ms   {median / base:5.2f} x")


def _post(connection: http.client.HTTPConnection, context: str) -> object:
    body = json.dumps({"context": context})
    connection.request("POST", "/v1/next-word", body, {"Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())


if __name__ == "__main__":
    tyro.cli(main)
