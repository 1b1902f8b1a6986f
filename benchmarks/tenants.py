"""Simulate API keys that share a model while one of them floods it: waits and refusals of the others.

    python -m benchmarks.tenants

A discrete-event simulation of one device, with the queue of the service and a model of the cost of batches or, for
decodings, of steps, so that it does not depend on what else the machine does. Ten keys have equal weights; nine send
80 % of their share of the capacity, as Poisson processes, and one sends nothing, its share, or ten times its share.
"One queue" gives all requests to one flow, as without keys.
"""

import heapq
import math
import random
import statistics
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import tyro

from service.engine.continuous_batching import SERVED, SLOWER
from service.engine.fairness import Flow
from service.engine.queue import BatchQueue, Entry, Limits, QueueFull

__all__ = ["Decoder", "Device", "Outcome", "main", "simulate", "simulate_decoding"]

_KEYS = 10
_LOAD = 0.8
"""Fraction of their share that the other keys send."""
_FLOODING = "0"


@dataclass(frozen=True)
class Device:
    """The time of a batch, in seconds: `fixed + count * (item + token * longest)`."""

    name: str
    fixed: float
    item: float
    token: float
    max_items: int = 32

    def seconds(self, count: int, longest: int) -> float:
        """Return the time of a batch."""
        return self.fixed + count * (self.item + self.token * longest)

    def capacity(self, length: float) -> float:
        """Return the texts/s of full batches of one length."""
        return self.max_items / self.seconds(self.max_items, round(length))


@dataclass(frozen=True)
class Decoder:
    """The time of a decoding step, in seconds: `fixed + count * sequence`; a text takes a step a token."""

    name: str
    fixed: float
    sequence: float
    max_items: int = 32

    def seconds(self, count: int) -> float:
        """Return the time of a step."""
        return self.fixed + count * self.sequence

    def capacity(self, length: float) -> float:
        """Return the texts/s of a full decoding of texts of one length."""
        return self.max_items / (self.seconds(self.max_items) * length)


DECODERS = (
    Decoder("Decoding on a CPU: a step of 2 ms + 1 ms a sequence", 2e-3, 1e-3),
    Decoder("Decoding on a GPU: a step of 8 ms + 0.02 ms a sequence", 8e-3, 2e-5),
)
DEVICES = (
    Device("CPU: 0.5 ms + 0.2 ms a text + 0.05 ms a token", 5e-4, 2e-4, 5e-5),
    Device("GPU: 5 ms + 0.01 ms a text + 0.001 ms a token", 5e-3, 1e-5, 1e-6),
)


@dataclass
class Outcome:
    """Latencies of the other keys in seconds, texts of all keys, and refusals."""

    latencies: list[float] = field(default_factory=list)
    answered: int = 0
    refused: int = 0
    refused_of_flood: int = 0
    answered_of_flood: int = 0

    def refuse(self, keys: Sequence[str]) -> None:
        """Count texts that are refused, by their keys."""
        self.refused_of_flood += keys.count(_FLOODING)
        self.refused += len(keys) - keys.count(_FLOODING)

    def answer(self, entry: Entry[str], now: float) -> None:
        """Count a text that is answered."""
        if entry.payload == _FLOODING:
            self.answered_of_flood += 1
        else:
            self.answered += 1
            self.latencies.append(now - entry.arrived)

    def quantile(self, fraction: float) -> float:
        """Return a quantile of the latencies of the other keys."""
        return statistics.quantiles(self.latencies, n=1000)[round(1000 * fraction) - 1]


def _arrivals(device: Device | Decoder, flood: float, seconds: float, seed: int) -> list[tuple[float, str, int]]:
    """Return times, keys and lengths of requests of one text; `flood` is the load of the first key in shares."""
    generator, share, found = random.Random(seed), device.capacity(_mean_length()) / _KEYS, []
    for key in range(_KEYS):
        rate, now = share * (flood if key == 0 else _LOAD), 0.0
        own = random.Random(generator.random())
        while rate and (now := now + own.expovariate(rate)) < seconds:
            found.append((now, str(key), _length(own)))
    return sorted(found)


def _length(generator: random.Random) -> int:
    return min(64, max(3, round(generator.lognormvariate(2.4, 0.5))))


def _mean_length() -> float:
    generator = random.Random(0)
    return statistics.fmean(_length(generator) for _ in range(10_000))


def _queue(device: Device | Decoder, batch_cost: float) -> BatchQueue[str]:
    decodes = isinstance(device, Decoder)
    return BatchQueue(
        Limits(
            max_batch_items=device.max_items,
            max_batch_tokens=4096,
            batch_cost=batch_cost,
            max_delay=0.0,
            starvation_limit=2.0,
            max_wait=math.inf,
            max_queue_items=1024,
            max_queue_tokens=131_072,
        ),
        served=SERVED if decodes else None,
    )


def _push(queue: BatchQueue[str], now: float, key: str, length: int, cost: float, *, fair: bool) -> list[str]:
    """Add a text to the queue; return the keys of those that are refused for it."""
    entry = Entry(
        batch_key="",
        length=length,
        cost=cost,
        arrived=now,
        deadline=math.inf,
        flow=Flow(key if fair else ""),
        payload=key,
    )
    try:
        return [each.payload for each in queue.push([entry])]
    except QueueFull:
        return [key]


def simulate(device: Device, *, flood: float, fair: bool, seconds: float, seed: int = 0) -> Outcome:
    """Return what happens in so many seconds of simulated time."""
    queue = _queue(device, device.fixed / device.token)
    outcome, free_at, completions = Outcome(), 0.0, []  # type: ignore[var-annotated]
    for now, key, length in _arrivals(device, flood, seconds, seed):
        free_at = _run(queue, device, free_at, now, outcome, completions)
        dropped = _push(queue, now, key, length, device.item + device.token * length, fair=fair)
        outcome.refuse(dropped)
    _run(queue, device, free_at, seconds, outcome, completions)
    return outcome


def _run(
    queue: BatchQueue[str], device: Device, free_at: float, until: float, outcome: Outcome, completions: list[float]
) -> float:
    """Compute batches that start before a time; return when the device is free again."""
    heapq.heapify(completions)
    while len(queue):
        start = max(free_at, queue.ready_at() or 0.0)
        if start >= until:
            break
        batch = queue.next_batch(start)
        free_at = start + device.seconds(len(batch), max(each.length for each in batch))
        queue.completed(free_at, batch)
        for each in batch:
            outcome.answer(each, free_at)
    return free_at


def simulate_decoding(device: Decoder, *, flood: float, fair: bool, seconds: float, seed: int = 0) -> Outcome:
    """Return what happens where texts join a running decoding at each step, as in the service."""
    queue, outcome, now = _queue(device, 0.0), Outcome(), 0.0
    arrivals = deque(_arrivals(device, flood, seconds, seed))
    running: dict[Entry[str], int] = {}
    yielding: set[Entry[str]] = set()
    cheap = math.floor(SLOWER * device.fixed / device.sequence)
    while now < seconds and (arrivals or len(queue) or running):
        if not running and not len(queue):
            now = max(now, arrivals[0][0])
        while arrivals and arrivals[0][0] <= now:
            arrived, key, length = arrivals.popleft()
            outcome.refuse(_push(queue, arrived, key, length, float(length), fair=fair))

        def fits(some: Sequence[Entry[str]]) -> bool:
            counts, flows = Counter(each.flow for each in (*some, *running)), {each.flow for each in running}
            yielding.update(each for each in some if queue.floods(each.flow) and not cheap)
            if len({each in yielding for each in some}) > 1:
                return False
            return all(
                counts[each.flow] <= queue.most_running(each.flow, cheap, alone=flows <= {each.flow}) for each in some
            )

        for entry in queue.next_joining(now, device.max_items - len(running), fits):
            running[entry] = entry.length
        yielding.intersection_update(running)
        stepping = [each for each in running if each not in yielding or not queue.floods(each.flow)] or list(running)
        now += device.seconds(len(stepping))
        for entry in stepping:
            running[entry] -= 1
            if not running[entry]:
                del running[entry]
                outcome.answer(entry, now)
    return outcome


def main(seconds: float = 60.0) -> None:
    """Print Markdown tables.

    Args:
        seconds: Simulated time of each row.
    """
    for device in (*DEVICES, *DECODERS):
        print(f"\n{device.name}; capacity {device.capacity(_mean_length()):.0f} texts/s\n")
        print(
            "| the first key sends | queue | p50 of the others | p99 | p99 / alone | refused of the others | texts/s |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- |")
        alone = 0.0
        for flood, fair in ((0.0, True), (1.0, True), (10.0, False), (10.0, True)):
            if isinstance(device, Decoder):
                found = simulate_decoding(device, flood=flood, fair=fair, seconds=seconds)
            else:
                found = simulate(device, flood=flood, fair=fair, seconds=seconds)
            p50, p99 = found.quantile(0.5), found.quantile(0.99)
            alone = alone or p99
            sent = "nothing" if not flood else f"{flood:g} x its share"
            rate = (found.answered + found.answered_of_flood) / seconds
            cells = f"{1000 * p50:.1f} ms | {1000 * p99:.1f} ms | {p99 / alone:.2f} | {found.refused} | {rate:.0f}"
            print(f"| {sent} | {'by key' if fair else 'one queue'} | {cells} |")
    _print_policy_time()


def _print_policy_time() -> None:
    """Print how long the policy takes for each text, by the number of keys."""
    print("\n| keys | time of the policy for a text of a full queue |\n| --- | --- |")
    for keys in (1, 10, 1000):
        print(f"| {keys} | {1e6 * min(_policy_time(keys) for _ in range(5)):.1f} us |")


def _policy_time(keys: int) -> float:
    limits = Limits(
        max_batch_items=32,
        max_batch_tokens=4096,
        batch_cost=10.0,
        max_delay=0.0,
        starvation_limit=2.0,
        max_wait=math.inf,
        max_queue_items=1024,
        max_queue_tokens=131_072,
    )
    queue, generator, flows = BatchQueue[None](limits), random.Random(0), [Flow(str(key)) for key in range(keys)]
    entries = [
        Entry(
            batch_key="x", length=_length(generator), arrived=0.0, deadline=9.0, flow=flows[place % keys], payload=None
        )
        for place in range(4096)
    ]
    started, waiting = time.perf_counter(), iter(entries)
    for each in waiting:
        queue.push([each])
        if len(queue) == limits.max_queue_items:
            queue.next_batch(0.0)
    return (time.perf_counter() - started) / len(entries)


if __name__ == "__main__":
    tyro.cli(main)
