"""How many nodes a load of translations needs: measured costs, a simulation fed with them, and real nodes.

    python -m benchmarks.scaling TEXTS.de --figure docs/figures/scaling.svg

A node is one processor that serves the bundled `de-en`, beam size 5. The costs of a decoder step and of encoding are
measured in this process, that of a request over HTTP by a server. `benchmarks.scaling_simulation` then predicts
latencies under load, and one and two real servers, each on a processor of its own, show how well. The load is sent from
the same processors.
"""

import asyncio
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import tyro
import uvloop

from benchmarks.load.client import Client
from benchmarks.prefixes import WORDS
from benchmarks.scaling_simulation import (
    NodeCost,
    Router,
    Text,
    first_of_two,
    latencies,
    poisson_arrivals,
    random_node,
)
from benchmarks.server import post_json, wait_until_ready
from models import ModelStore
from models.store import BUNDLED
from service.engine.cost_model import Sample, Terms, fit
from tests.support.ports import free_port

__all__ = ["main"]

_COUNTS = 1, 2, 4, 8, 16, 32
_REPETITIONS = 6
_ALONE = 60
"""Requests one after the other, by which the cost of HTTP is measured."""
_SIMULATED = 20_000
_PATH = "/v1/translate"


def _decode(model: Any, texts: Sequence[str]) -> tuple[list[Sample], Sample, list[Text]]:
    """Decode texts together; return a sample of each step after the first, of encoding with that one, and the texts."""
    parts = [part for text in texts for part in model.query(text, 5).parts()]
    decoding = model.start_decoding(5)
    started = time.perf_counter()
    decoding.add(
        [part.tokens for part in parts], [(place, part.options, part.max_tokens) for place, part in enumerate(parts)]
    )
    steps: list[Sample] = []
    ended: dict[int, int] = {}
    number = 0
    while live := len(decoding):
        number += 1
        ended |= dict.fromkeys((key for key, _ in decoding.step()), number)
        steps.append(Sample(live, number, time.perf_counter() - started))
        started = time.perf_counter()
    first = Sample(len(parts), max(part.length for part in parts), steps[0].seconds)
    return steps[1:], first, [Text(part.length, ended[place]) for place, part in enumerate(parts)]


def _measured(texts: Sequence[str], generator: random.Random) -> tuple[NodeCost, list[Text]]:
    """Return the cost of a node of one thread, without HTTP, and what each text needs.

    A step costs by its sequences alone: in texts of one sentence, how much was decoded before makes no difference that
    could be measured. Steps in which most sequences have ended do not count, for a node fills their place.
    """
    model: Any = ModelStore(BUNDLED).load("de-en", threads=1)
    steps: list[Sample] = []
    firsts: list[Sample] = []
    for repetition in range(_REPETITIONS + 1):
        for count in _COUNTS:
            found, first, _ = _decode(model, generator.sample(texts, count))
            if repetition:  # the first one warms up
                steps += [each._replace(longest=1) for each in found if 2 * each.items > count]
                firsts.append(first)
    fixed, item, token = fit(steps)
    step = Terms(fixed, item + token, 0.0)
    encode = fit([each._replace(seconds=max(1e-6, each.seconds - step.seconds(each.items, 1))) for each in firsts])
    needed = [text for start in range(0, len(texts), 32) for text in _decode(model, texts[start : start + 32])[2]]
    return NodeCost(step, encode), needed


@contextmanager
def _node(processor: int) -> Iterator[int]:
    """Serve on one processor; yields the port."""
    port = free_port()
    flags = ["--port", port, "--models", "de-en", "--threads", 1, "--parallel-batches", 1, "--log-level", "warning"]
    command = ["taskset", "--cpu-list", processor, sys.executable, "-m", "service.cli", "serve", *flags]
    process = subprocess.Popen(list(map(str, command)))
    try:
        wait_until_ready(port)
        yield port
    finally:
        process.terminate()
        process.wait()


async def _send(ports: Sequence[int], arrivals: Sequence[tuple[float, str]], generator: random.Random) -> list[float]:
    """Send each text when it is due, to a random node, and return the latencies."""
    found: list[float] = []
    async with _Clients(ports) as clients, asyncio.TaskGroup() as tasks:

        async def ask(client: Client, text: str, due: float) -> None:
            status, answer = await post_json(client, _PATH, {"text": text})
            assert status == 200, answer
            found.append(time.perf_counter() - due)

        began = time.perf_counter()
        for after, text in arrivals:
            await asyncio.sleep(began + after - time.perf_counter())
            tasks.create_task(ask(generator.choice(clients), text, began + after))
    return found


class _Clients:
    """A client for each port."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._clients = [Client(f"http://127.0.0.1:{port}", None, 1024) for port in ports]

    async def __aenter__(self) -> list[Client]:
        return [await client.__aenter__() for client in self._clients]

    async def __aexit__(self, *error: object) -> None:
        for client in self._clients:
            await client.__aexit__(*error)


async def _alone(port: int, texts: Sequence[str]) -> float:
    """Return the mean latency of requests one after the other."""
    async with _Clients([port]) as (client,):
        times = []
        for text in texts:
            started = time.perf_counter()
            await post_json(client, _PATH, {"text": text})
            times.append(time.perf_counter() - started)
    return statistics.fmean(times)


def _capacity(cost: NodeCost, needed: Sequence[Text]) -> float:
    """Return the texts/s of a node that always has enough to do."""
    texts = list(needed[:4000])
    generator = random.Random(0)
    return len(texts) / max(latencies([(0.0, text) for text in texts], [cost], random_node, generator))


def _quantiles(times: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile in milliseconds."""
    ordered = sorted(times)
    return 1000 * statistics.median(ordered), 1000 * ordered[int(0.99 * (len(ordered) - 1))]


def _simulated(cost: NodeCost, needed: Sequence[Text], rate: float, nodes: int, router: Router) -> tuple[float, float]:
    generator = random.Random(1)
    texts = generator.choices(needed, k=_SIMULATED)
    times = latencies(poisson_arrivals(rate, texts, generator), [cost] * nodes, router, generator)
    return _quantiles(times[len(times) // 10 :])


def _most(cost: NodeCost, needed: Sequence[Text], capacity: float, nodes: int, router: Router, bound: float) -> float:
    """Return the largest share of the capacity with which the 99th percentile is at most `bound` milliseconds."""
    low, high = 0.0, 1.0
    while high - low > 0.01:
        share = (low + high) / 2
        within = _simulated(cost, needed, share * capacity * nodes, nodes, router)[1] <= bound
        low, high = (share, high) if within else (low, share)
    return low


def _affinity() -> tuple[float, float]:
    """Return the seconds of a next word with its prefix in the cache, and of each word that is not."""
    model: Any = ModelStore(BUNDLED).load("next-word:4", threads=1)
    samples = []
    for _ in range(40):
        for count in (1, 5, 10, 15):
            started = time.perf_counter()
            model.next_words([" ".join(WORDS[:count])], top_k=5)
            samples.append((count, time.perf_counter() - started))
    medians = {count: statistics.median(each for number, each in samples if number == count) for count, _ in samples}
    slope = (medians[15] - medians[1]) / 14
    return medians[1], slope


def _uncached(nodes: int, words: int, generator: random.Random) -> float:
    """Return the mean number of words to read for each typed word, on a random node each time."""
    seen = [0] * nodes
    read = 0
    for count in range(1, words + 1):
        node = generator.randrange(nodes)
        read += count - seen[node]
        seen[node] = count
    return read / words


def main(
    file: Annotated[Path, tyro.conf.Positional],
    seconds: float = 25.0,
    loads: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 0.9),
    target: float = 10_000.0,
    figure: Path | None = None,
) -> None:
    """Print the measured costs, the simulated and measured latencies, and the nodes that a load needs, as Markdown.

    Args:
        file: A sentence to translate on each line.
        seconds: Duration of each measurement of the real nodes.
        loads: Shares of the capacity that are measured.
        target: Translations/s for which nodes are counted.
        figure: File to draw the latencies to.
    """
    generator = random.Random(0)
    texts = file.read_text(encoding="utf-8").splitlines()[:2000]
    cost, needed = _measured(texts, generator)
    with _node(0) as port:
        uvloop.run(_alone(port, texts[:_ALONE]))
        alone = uvloop.run(_alone(port, texts[:_ALONE]))
    modelled = statistics.fmean(latencies([(0.0, text)], [cost], random_node, generator)[0] for text in needed[:_ALONE])
    cost = NodeCost(cost.step, cost.encode, max(0.0, alone - modelled))
    capacity = _capacity(cost, needed)
    print(f"{os.uname().machine}, a node is one processor; {len(texts)} texts, {_mean(needed)}")
    for name, terms in (("step", cost.step), ("encoding", cost.encode)):
        values = ", ".join(f"{each} {1000 * value:.3f}" for each, value in terms._asdict().items())
        print(f"* {name} in ms: {values}")
    print(f"* request besides the model: {1000 * cost.request:.2f} ms; capacity: {capacity:.1f} texts/s\n")
    rows = _compare(cost, needed, texts, capacity, loads, seconds)
    print("\n| router | nodes | 99th percentile | share of the capacity | texts/s of a node | nodes for the target |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, router, nodes in (("random", random_node, 1), ("first of two", first_of_two, 16)):
        for bound in (500.0, 1000.0, 2000.0):
            share = _most(cost, needed, capacity, nodes, router, bound)
            rate = share * capacity
            needed_nodes = math.ceil(target / max(rate, 1e-9))
            print(f"| {name} | {nodes} | {bound:.0f} ms | {share:.2f} | {rate:.1f} | {needed_nodes} |")
    base, word = _affinity()
    print(f"\nnext word: {1000 * base:.2f} ms, and {1000 * word:.3f} ms for each further word that is read")
    print("| nodes | words read for each typed word | ms, random node | ms, always the same node |")
    print("| --- | --- | --- | --- |")
    for nodes in (1, 2, 4, 16, 64):
        read = statistics.fmean(_uncached(nodes, 20, generator) for _ in range(2000))
        print(f"| {nodes} | {read:.2f} | {1000 * (base + word * (read - 1)):.2f} | {1000 * base:.2f} |")
    if figure is not None:
        _draw(rows, figure)


def _mean(needed: Sequence[Text]) -> str:
    tokens, steps = (statistics.fmean(each) for each in zip(*needed, strict=True))
    return f"{tokens:.1f} tokens and {steps:.1f} steps on average"


def _compare(
    cost: NodeCost,
    needed: Sequence[Text],
    texts: Sequence[str],
    capacity: float,
    loads: Sequence[float],
    seconds: float,
) -> list[Mapping[str, float]]:
    """Print and return the simulated and the measured latencies of one and two nodes."""
    print("| nodes | load | p50 simulated | p50 measured | p99 simulated | p99 measured |")
    print("| --- | --- | --- | --- | --- | --- |")
    rows: list[Mapping[str, float]] = []
    for nodes in (1, 2):
        with ExitStack() as stack:
            ports = [stack.enter_context(_node(number)) for number in range(nodes)]
            for port in ports:
                uvloop.run(_alone(port, texts[:_ALONE]))
            for load in loads:
                generator, rate = random.Random(2), load * capacity * nodes
                chosen = generator.choices(range(len(texts)), k=round(rate * seconds))
                arrivals = poisson_arrivals(rate, [needed[place] for place in chosen], generator)
                due = [(at, texts[place]) for (at, _), place in zip(arrivals, chosen, strict=True)]
                measured = _quantiles(uvloop.run(_send(ports, due, generator)))
                simulated = _simulated(cost, needed, rate, nodes, random_node)
                print(
                    f"| {nodes} | {load} | {simulated[0]:.0f} ms | {measured[0]:.0f} ms |"
                    f" {simulated[1]:.0f} ms | {measured[1]:.0f} ms |",
                    flush=True,
                )
                keys = ("nodes", "load", "p50 simulated", "p99 simulated", "p50 measured", "p99 measured")
                rows.append(dict(zip(keys, (nodes, load, *simulated, *measured), strict=True)))
    return rows


def _draw(rows: Sequence[Mapping[str, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, nodes in zip(figure.subplots(1, 2, sharey=True), (1, 2), strict=True):
        shown = [row for row in rows if row["nodes"] == nodes]
        for quantile, colour in (("p50", "#1f5f8b"), ("p99", "#c0532b")):
            loads = [row["load"] for row in shown]
            axes.plot(
                loads, [row[f"{quantile} simulated"] for row in shown], color=colour, label=f"{quantile}, simulated"
            )
            measured = [row[f"{quantile} measured"] for row in shown]
            axes.plot(loads, measured, "o", color=colour, label=f"{quantile}, measured")
        axes.set(title=f"{nodes} node{'s' * (nodes > 1)}", xlabel="share of the capacity", yscale="log")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("latency in ms")
    figure.axes[0].legend()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    tyro.cli(main)
