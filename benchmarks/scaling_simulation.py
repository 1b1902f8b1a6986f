"""A discrete-event simulation of nodes that decode continuously, behind a router. Times are in seconds.

A step of a node costs what the service's cost model says (`service.engine.cost_model`): a fixed part, a part of each
sequence, and one of each token decoded so far. Sequences join by the service's own queue.
"""

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from service.engine.cost_model import Terms
from service.engine.queue import BatchQueue, Entry, Limits

__all__ = ["NodeCost", "Text", "first_of_two", "latencies", "poisson_arrivals", "random_node"]

_ROOM = 32
"""Sequences of one decoding, as in the service."""
_ENCODED_TOKENS = 1024


class Text(NamedTuple):
    """A text to translate."""

    tokens: int
    """Tokens of the source, its end included."""
    steps: int
    """Decoder steps until its search has finished."""


@dataclass(frozen=True)
class NodeCost:
    """The measured costs of a node."""

    step: Terms
    encode: Terms
    """The cost of encoding the sources that join in one step."""
    request: float = 0.0
    """Time of a request besides the model: HTTP, JSON, tokens."""


_LIMITS = Limits(
    max_batch_items=_ROOM,
    max_batch_tokens=_ENCODED_TOKENS,
    batch_cost=0.0,
    max_delay=0.0,
    starvation_limit=2.0,
    max_wait=math.inf,
    max_queue_items=1 << 30,
    max_queue_tokens=1 << 40,
)

Router = Callable[[Sequence["_Node"], random.Random], "_Node"]


@dataclass(eq=False)
class _Node:
    cost: NodeCost
    queue: BatchQueue[Text] = field(default_factory=lambda: BatchQueue(_LIMITS))
    running: dict[Entry[Text], int] = field(default_factory=dict)
    """Steps that are left, by sequence."""
    steps: dict[Entry[Text], int] = field(default_factory=dict)
    """Steps taken."""
    busy: bool = False

    def __len__(self) -> int:
        return len(self.queue) + len(self.running)

    def step(self, now: float) -> float:
        """Let waiting sequences join, and return how long the step takes."""
        new = self.queue.next_joining(now, _ROOM - len(self.running))
        for entry in new:
            self.running[entry], self.steps[entry] = entry.payload.steps, 0
        seconds = self.cost.step.seconds(len(self.running), max(self.steps.values()) + 1)
        if new:
            seconds += self.cost.encode.seconds(len(new), max(entry.length for entry in new))
        return seconds + len(new) * self.cost.request

    def finish(self) -> list[Entry[Text]]:
        """Return the sequences that end with this step."""
        for entry in self.running:
            self.running[entry] -= 1
            self.steps[entry] += 1
        done = [entry for entry, left in self.running.items() if left <= 0]
        for entry in done:
            del self.running[entry], self.steps[entry]
        return done


def random_node(nodes: Sequence[_Node], generator: random.Random) -> _Node:
    """Choose any node."""
    return generator.choice(nodes)


def first_of_two(nodes: Sequence[_Node], generator: random.Random) -> _Node:
    """Choose the one of two random nodes that has fewer requests, as Ray Serve does."""
    return min(generator.sample(nodes, min(2, len(nodes))), key=len)


def poisson_arrivals(rate: float, texts: Sequence[Text], generator: random.Random) -> list[tuple[float, Text]]:
    """Return when each text arrives, as a Poisson process of so many texts/s."""
    now, arrivals = 0.0, []
    for text in texts:
        now += generator.expovariate(rate)
        arrivals.append((now, text))
    return arrivals


def latencies(
    arrivals: Sequence[tuple[float, Text]], costs: Sequence[NodeCost], router: Router, generator: random.Random
) -> list[float]:
    """Return how long each text took, in the order in which they were finished; one node for each cost."""
    nodes, found = [_Node(cost) for cost in costs], []
    ends: list[tuple[float, int]] = []
    coming = iter([*arrivals, (math.inf, Text(0, 0))])
    arrives, text = next(coming)

    def begin(number: int, now: float) -> None:
        node = nodes[number]
        node.busy = len(node) > 0
        if node.busy:
            heapq.heappush(ends, (now + node.step(now), number))

    while arrives < math.inf or ends:
        if ends and ends[0][0] <= arrives:
            now, number = heapq.heappop(ends)
            found += [now - entry.arrived for entry in nodes[number].finish()]
            begin(number, now)
            continue
        node = router(nodes, generator)
        entry = Entry(batch_key="translate", length=text.tokens, arrived=arrives, deadline=math.inf, payload=text)
        node.queue.push([entry])
        if not node.busy:
            begin(nodes.index(node), arrives)
        arrives, text = next(coming)
    return found
