"""Compare batching policies by a discrete-event simulation: the service's own, fixed delays, token budgets.

    python -m benchmarks.batching --data data
    python -m benchmarks.batching --policy-time

The first command replays traces of arrivals through the queue of the service and through models of other servers'
policies, on cost models of a CPU and of a GPU, and prints a Markdown table. Every value is the median over seeds. Each
of the others has the best of its settings for each value separately. The second command measures how long the queue
takes to choose a batch.
"""

import dataclasses
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import tokenizers
import tyro

from benchmarks.batching_simulation import (
    Arrivals,
    Bounds,
    CostModel,
    Device,
    FixedDelay,
    Ours,
    Policy,
    Result,
    TokenBudget,
    backlog,
    bursts,
    closed_loop,
    poisson,
    simulate,
)
from service.engine.queue import BatchQueue, Entry, Limits
from service.settings import BUNDLED
from training.data.corpora import get_corpus

DEVICES = (
    Device("CPU", CostModel(fixed=0.85e-3, per_item=0.0, per_token=0.1e-3), Bounds(32, 4096)),
    Device("GPU", CostModel(fixed=4e-3, per_item=0.0, per_token=1e-6), Bounds(256, 65536)),
)
"""The CPU is a fit to the bundled `intents` (int8) with 2 threads of a 2.5 GHz Xeon; the GPU is an assumption."""
_LOADS = 0.1, 0.3, 0.6
_BURST_LOADS, _BURST, _SPREAD = (0.1, 0.3), 64, 2e-3
_CLIENTS = 1, 4, 16, 64, 256

_TICKS = 1.0, 1.2, 1.5, 2.0, 2.5

Make = Callable[[], Policy]
Metric = Literal["texts/s", "p50 ms", "p99 ms"]
Trace = Callable[[random.Random], Arrivals]


@dataclass(frozen=True)
class Row:
    """A value of all policies: what the service reaches, and the best of each other policy with its setting."""

    device: str
    trace: str
    metric: Metric
    ours: float
    others: Mapping[str, tuple[float, str]]

    def advantage(self, other: float) -> float:
        """Return how many times better the service is than a value."""
        return self.ours / other if self.metric == "texts/s" else other / self.ours

    @property
    def least_advantage(self) -> float:
        """Return the advantage over the best of the others."""
        return min(self.advantage(value) for value, _ in self.others.values())


def main(
    data: Path = Path("data"),
    corpus: Literal["clinc150", "multi30k"] = "clinc150",
    requests: int = 4000,
    seeds: int = 3,
    quick: bool = False,
    plot: Path | None = None,
    policy_time: bool = False,
) -> None:
    """Print a Markdown table.

    Args:
        data: Directory that holds the corpora; without the corpus, lengths are log-normal.
        corpus: Corpus whose test texts give the lengths, in tokens of the bundled model.
        requests: Requests of each trace on the CPU; on the GPU, whose batches are larger, four times as many.
        seeds: Seeds of arrivals and order of texts: 0, 1, ...
        quick: One seed and fewer requests.
        plot: File for a plot of the table; its suffix names the format.
        policy_time: Print the time that the choice of a batch takes instead.
    """
    if policy_time:
        print_policy_times()
        return
    source, lengths = text_lengths(corpus, data)
    rows = compare(lengths, *((500, 1) if quick else (requests, seeds)))
    print(f"Lengths: {source}; mean {statistics.fmean(lengths):.1f}, longest {max(lengths)} tokens.\n")
    print_table(rows)
    best = [row.least_advantage for row in rows]
    print(f"\nThe best in {sum(ratio >= 1 for ratio in best)} of {len(best)} rows; smallest ratio {min(best):.3f}.")
    if plot is not None:
        draw(rows, plot)


def text_lengths(corpus: str, data: Path) -> tuple[str, list[int]]:
    """Return a description and the tokens of each test text of a corpus, or log-normal lengths without the corpus."""
    model = {"clinc150": "intents", "multi30k": "de-en"}[corpus]
    try:
        texts = list(
            get_corpus(corpus).texts("test", data, get_corpus(corpus).columns[-1 if corpus == "clinc150" else 0])
        )
    except FileNotFoundError:
        generator = random.Random(0)
        lengths = [max(3, round(generator.lognormvariate(2.4, 0.4))) for _ in range(4096)]
        return f"log-normal (mu 2.4, sigma 0.4), as {corpus} is not in {data}", lengths
    file = max((BUNDLED / model).iterdir(), key=lambda path: int(path.name)) / "tokenizer.json"
    encoded = tokenizers.Tokenizer.from_file(str(file)).encode_batch(texts)
    return f"{corpus} (test), tokens of {model}", [len(encoding.ids) + 2 for encoding in encoded]


def compare(lengths: Sequence[int], requests: int, seeds: int) -> list[Row]:
    """Return the rows of all devices and traces."""
    rows = []
    for device in DEVICES:
        count = requests if device.bounds.items <= 32 else 4 * requests
        for trace, (metrics, make) in traces(device, device.capacity(lengths), count).items():
            results: dict[str, list[tuple[str, Sequence[Result]]]] = {}
            for name, settings in policies(device).items():
                results[name] = [
                    (setting, [_run(policy, device, make, lengths, count, seed) for seed in range(seeds)])
                    for setting, policy in settings.items()
                ]
            rows += [_row(device.name, trace, metric, results) for metric in metrics]
    return rows


def _run(
    policy: Make,
    device: Device,
    make: Callable[[random.Random], Arrivals],
    lengths: Sequence[int],
    count: int,
    seed: int,
) -> Result:
    generator = random.Random(seed)
    return simulate(policy(), device.cost, make(generator), generator.choices(lengths, k=count))


def traces(device: Device, capacity: float, requests: int) -> dict[str, tuple[Sequence[Metric], Trace]]:
    """Return each trace by its name, with the values that it is judged by."""
    throughput: Sequence[Metric] = ("texts/s",)
    latency: Sequence[Metric] = ("p50 ms", "p99 ms")
    found: dict[str, tuple[Sequence[Metric], Trace]] = {"backlog": (throughput, lambda generator: backlog(requests))}
    for load in _LOADS:
        found[f"Poisson, load {load:g}"] = latency, partial(poisson, load * capacity, requests)
    for load in _BURST_LOADS:
        found[f"bursts, load {load:g}"] = latency, partial(bursts, load * capacity, requests, _BURST, _SPREAD)
    for clients in _CLIENTS:
        found[f"closed loop, {clients}"] = throughput, partial(closed_loop, clients)
    return found


def policies(device: Device) -> dict[str, dict[str, Make]]:
    """Return the settings of each policy by name."""
    items, tokens = device.bounds.items, device.bounds.tokens
    triton: dict[str, Make] = {}
    litserve: dict[str, Make] = {}
    for milliseconds in (0, 2, 5):
        for largest in (items, items // 4):
            bounded = dataclasses.replace(device, bounds=Bounds(largest, tokens))
            name, delay = f"{milliseconds} ms, {largest}", milliseconds / 1000
            triton[name] = partial(FixedDelay, bounded, delay)
            litserve[name] = partial(FixedDelay, bounded, delay, from_free=True)
        preferred = items // 8, items // 2
        triton[f"{milliseconds} ms, {preferred[0]} or {preferred[1]}"] = partial(FixedDelay, device, delay, preferred)
    budgets: dict[str, Make] = {
        f"{budget} tokens": partial(TokenBudget, device, budget) for budget in (tokens // 32, tokens // 8, tokens)
    }
    return {"ours": {"": partial(Ours, device)}, "Triton": triton, "LitServe": litserve, "TEI": budgets}


def _row(
    device: str,
    trace: str,
    metric: Metric,
    results: Mapping[str, Sequence[tuple[str, Sequence[Result]]]],
) -> Row:
    def value(result: Result) -> float:
        return result.throughput if metric == "texts/s" else 1000 * (result.p50 if metric == "p50 ms" else result.p99)

    best = {}
    for name, settings in results.items():
        medians = [(statistics.median(map(value, found)), setting) for setting, found in settings]
        best[name] = (max if metric == "texts/s" else min)(medians, key=lambda found: found[0])
    ours, _ = best.pop("ours")
    return Row(device, trace, metric, ours, best)


def print_table(rows: Sequence[Row]) -> None:
    """Print the rows as a Markdown table; a ratio above 1 says that the service is better than the best other."""
    names = list(rows[0].others)
    print(f"| device | trace | value | Softserve | {' | '.join(names)} | ratio to best |")
    print("| --- " * (len(names) + 5) + "|")
    for row in rows:
        others = " | ".join(f"{_digits(value)} ({setting})" for value, setting in (row.others[name] for name in names))
        ratio = f"{row.least_advantage:.2f}"
        print(f"| {row.device} | {row.trace} | {row.metric} | {_digits(row.ours)} | {others} | {ratio} |")


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def draw(rows: Sequence[Row], file: Path) -> None:
    """Write a plot of how many times better the service is than the best of the settings of each other policy."""
    from matplotlib.figure import Figure  # slow to import, and most runs draw nothing

    devices = sorted({row.device for row in rows})
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    axes = figure.subplots(1, len(devices))
    for plot, device in zip(axes, devices, strict=True):
        shown = [row for row in rows if row.device == device][::-1]
        places = range(len(shown))
        for name, marker in zip(shown[0].others, "os^", strict=True):
            plot.plot([row.advantage(row.others[name][0]) for row in shown], places, marker, label=name, alpha=0.8)
        plot.axvline(1.0, color="black", linewidth=1)
        plot.set_xscale("log")
        plot.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        plot.minorticks_off()
        plot.set_yticks(places, [f"{row.trace}: {row.metric}" for row in shown], fontsize=9)
        plot.set_title(device)
        plot.set_xlabel("times better than each policy's best setting")
        plot.grid(axis="both", alpha=0.3)
        plot.legend()
    figure.savefig(file)


def print_policy_times(rounds: int = 50) -> None:
    """Print the median time in which the queue chooses and removes a batch of 1,024 waiting texts."""
    generator = random.Random(0)
    print("| max. items | batch cost | max. tokens | items in the batch | ms |\n| --- | --- | --- | --- | --- |")
    for items in (32, 128, 256):
        for cost, tokens in ((16, 4096), (4000, 65536)):
            limits = Limits(
                max_batch_items=items,
                max_batch_tokens=tokens,
                batch_cost=cost,
                max_delay=0.0,
                starvation_limit=2.0,
                max_wait=math.inf,
                max_queue_items=1024,
                max_queue_tokens=1 << 20,
            )
            measured = [_policy_time(limits, generator) for _ in range(rounds)]
            seconds, size = (statistics.median(values) for values in zip(*measured, strict=True))
            print(f"| {items} | {cost} | {tokens} | {size:g} | {1000 * seconds:.2f} |")


def _policy_time(limits: Limits, generator: random.Random) -> tuple[float, int]:
    queue: BatchQueue[None] = BatchQueue(limits)
    lengths = (max(3, round(generator.lognormvariate(2.4, 0.5))) for _ in range(limits.max_queue_items))
    queue.push([Entry(batch_key="classify", length=each, arrived=0.0, deadline=30.0, payload=None) for each in lengths])
    started = time.perf_counter()
    batch = queue.next_batch(1.0)
    return time.perf_counter() - started, len(batch)


if __name__ == "__main__":
    tyro.cli(main)
