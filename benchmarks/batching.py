"""Compare batching policies by a discrete-event simulation: the service's own, fixed delays, token budgets.

    python -m benchmarks.batching --data data
    python -m benchmarks.batching --data data --buckets
    python -m benchmarks.batching --policy-time

The first command replays traces of arrivals through the queue of the service and through models of other servers'
policies, on cost models of a CPU and of a GPU, and prints a Markdown table. Every value is the median over seeds; the
first and the last tenth of the answers do not count. Each of the others has the best of its settings for each value
separately, in hindsight. Where the service is behind, the row says why: that the difference is no larger than that
between seeds, or what the same setting loses elsewhere. The second command pads the batches of the service on a GPU to
few shapes; see `print_buckets`. The third one measures how long the queue takes to choose a batch.
"""

import dataclasses
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Literal

import tokenizers
import tyro

from benchmarks.batching_simulation import (
    Arrivals,
    Bounds,
    Cost,
    CostModel,
    Device,
    FixedDelay,
    Ours,
    Policy,
    Result,
    ShapedCost,
    TokenBudget,
    backlog,
    bursts,
    closed_loop,
    poisson,
    simulate,
)
from benchmarks.shape_buckets import Shape, choose, powers_of_two
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

_BUCKET_TRACES = "Poisson, load 0.1", "Poisson, load 0.6", "bursts, load 0.1", "closed loop, 64", "backlog"
_BUCKETS = 12, 24, 54
_COLD = 0.05
"""Seconds that the first batch of a shape takes in addition: an assumption."""
_TRANSIENT = 0.1
"""Fraction of the answers that do not count, of the first and of the last ones."""
_CONFIDENCE = 0.95
_EQUAL = 1e-9
"""Relative difference of equal values: sums of times in another order."""

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
    interval: tuple[float, float] = (1.0, 1.0)
    """Confidence interval, over the seeds, of the advantage over the best of the others."""
    why: str = ""
    """What the setting that is better than the service loses elsewhere."""

    def advantage(self, other: float) -> float:
        """Return how many times better the service is than a value."""
        return self.ours / other if self.metric == "texts/s" else other / self.ours

    @property
    def least_advantage(self) -> float:
        """Return the advantage over the best of the others."""
        return min(self.advantage(value) for value, _ in self.others.values())

    @property
    def standing(self) -> Literal["best", "equal", "behind"]:
        """Return where the service is; equal where it is behind by no more than seeds differ."""
        if self.least_advantage >= 1 - _EQUAL:
            return "best"
        return "equal" if self.interval[1] >= 1 else "behind"

    @property
    def reason(self) -> str:
        """Return why the service is not the best; empty where it is."""
        if self.standing == "equal":
            return f"equal: {self.interval[0]:.3f} to {self.interval[1]:.3f} over seeds"
        return self.why if self.standing == "behind" else ""


def main(
    data: Path = Path("data"),
    corpus: Literal["clinc150", "multi30k"] = "clinc150",
    requests: int = 4000,
    seeds: int = 10,
    quick: bool = False,
    plot: Path | None = None,
    buckets: bool = False,
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
        buckets: Print the cost of padding the batches of the service on a GPU to few shapes instead.
        policy_time: Print the time that the choice of a batch takes instead.
    """
    if policy_time:
        print_policy_times()
        return
    source, lengths = text_lengths(corpus, data)
    requests, seeds = (500, 1) if quick else (requests, seeds)
    print(f"Lengths: {source}; mean {statistics.fmean(lengths):.1f}, longest {max(lengths)} tokens.\n")
    if buckets:
        print_buckets(lengths, requests, seeds)
        return
    rows = compare(lengths, requests, seeds)
    print_table(rows)
    counts = Counter(row.standing for row in rows)
    print(
        f"\nThe best in {counts['best']} of {len(rows)} rows, equal within what seeds differ in {counts['equal']},"
        f" behind in {counts['behind']}; smallest ratio {min(row.least_advantage for row in rows):.3f}."
    )
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
    cost: Cost | None = None,
) -> Result:
    generator = random.Random(seed)
    arrivals, drawn = make(generator), generator.choices(lengths, k=count)
    return simulate(policy(), cost or device.cost, arrivals, drawn, transient=_TRANSIENT)


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
    medians = {
        name: [(_median(metric, found), setting) for setting, found in settings] for name, settings in results.items()
    }
    best = {name: (max if metric == "texts/s" else min)(found, key=itemgetter(0)) for name, found in medians.items()}
    ours, _ = best.pop("ours")
    row = Row(device, trace, metric, ours, best)
    name, (_, setting) = min(best.items(), key=lambda other: row.advantage(other[1][0]))
    rival, service = dict(results[name])[setting], results["ours"][0][1]
    pairs = [(_value(metric, mine), _value(metric, theirs)) for mine, theirs in zip(service, rival, strict=True)]
    advantages = [mine / theirs if metric == "texts/s" else theirs / mine for mine, theirs in pairs]
    other: Metric = "p99 ms" if metric == "p50 ms" else "p50 ms"
    theirs, mine = (_digits(_median(other, each)) for each in (rival, service))
    why = f"with {name}'s {setting} {other[:3]} is {theirs} ms, not {mine}"
    return dataclasses.replace(row, interval=_interval(advantages), why=why)


def _value(metric: Metric, result: Result) -> float:
    """Return a value of a result."""
    return result.throughput if metric == "texts/s" else 1000 * (result.p50 if metric == "p50 ms" else result.p99)


def _median(metric: Metric, results: Sequence[Result]) -> float:
    return statistics.median(_value(metric, result) for result in results)


def _interval(advantages: Sequence[float]) -> tuple[float, float]:
    """Return the confidence interval of the mean, by Student's distribution; of a single value, of any size."""
    if len(advantages) < 2:
        return 0.0, math.inf
    from scipy.stats import t  # takes seconds to import

    mean, error = statistics.fmean(advantages), statistics.stdev(advantages) / math.sqrt(len(advantages))
    margin = float(t.ppf((1 + _CONFIDENCE) / 2, len(advantages) - 1)) * error
    return mean - margin, mean + margin


def print_table(rows: Sequence[Row]) -> None:
    """Print the rows as a Markdown table; a ratio above 1 says that the service is better than the best other."""
    names = list(rows[0].others)
    print(f"| device | trace | value | Softserve | {' | '.join(names)} | ratio to best | below 1, why |")
    print("| --- " * (len(names) + 6) + "|")
    for row in rows:
        others = [f"{_digits(value)} ({setting})" for value, setting in (row.others[name] for name in names)]
        cells = [
            row.device,
            row.trace,
            row.metric,
            _digits(row.ours),
            *others,
            f"{row.least_advantage:.2f}",
            row.reason,
        ]
        print(f"| {' | '.join(cells)} |")


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def print_buckets(lengths: Sequence[int], requests: int, seeds: int) -> None:
    """Print what the service reaches on a GPU where batches are padded to few shapes.

    The buckets are chosen from the batches of all traces with other seeds than those that they are tried on, by the
    cost of a batch. Compared are shapes as they come, none of them cold, and each cold at first; and powers of two.
    """
    device, longest = DEVICES[1], max(lengths)
    count = requests * (device.bounds.items // 64)
    chosen = traces(device, device.capacity(lengths), count)
    observed: Counter[Shape] = Counter()
    for trace in _BUCKET_TRACES:
        for seed in range(seeds, 2 * seeds):
            cost = ShapedCost(device.cost, 0.0)
            _run(partial(Ours, device), device, chosen[trace][1], lengths, count, seed, cost)
            observed.update(cost.shapes)
    bounds = {"max_items": device.bounds.items, "max_length": longest}
    powers = powers_of_two(*bounds.values())
    sets = {f"chosen, {most}": choose(observed, device.cost.of, most=most, **bounds) for most in _BUCKETS}
    alternatives = {
        "as they come, all warm": (partial(ShapedCost, device.cost, 0.0), ""),
        f"as they come, {1000 * _COLD:g} ms for the first of each": (partial(ShapedCost, device.cost, _COLD), ""),
        "powers of two": (partial(ShapedCost, device.cost, 0.0, powers), len(powers)),
        **{name: (partial(ShapedCost, device.cost, 0.0, each), len(each)) for name, each in sets.items()},
    }
    print(f"| shapes | to warm up | {' | '.join(_BUCKET_TRACES)} |\n| --- | --- {'| --- ' * len(_BUCKET_TRACES)}|")
    for name, (make, number) in alternatives.items():
        cells = []
        for trace in _BUCKET_TRACES:
            metrics, arrivals = chosen[trace]
            results = [
                _run(partial(Ours, device), device, arrivals, lengths, count, seed, make()) for seed in range(seeds)
            ]
            cells.append(", ".join(_digits(_median(metric, results)) for metric in metrics))
        print(f"| {name} | {number} | {' | '.join(cells)} |")


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
