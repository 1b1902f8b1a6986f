"""Continuous batching: sequences join running decodings at the next step, finished ones leave at once."""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from models.decoding.beam_search import Hypothesis
from models.decoding.continuous import Decoding
from models.decoding.sequence_to_sequence import SourceSequence
from models.native import native_errors
from models.tasks.model import Part
from service.engine.batcher import PAUSE, Batcher, DeadlineExceeded, Observer, Timing, Tracer, Work
from service.engine.budget import Budget
from service.engine.computations import TOOK_TOO_LONG, Computations
from service.engine.cost_model import CostModel, Sample
from service.engine.fairness import SINGLE_FLOW, Flow
from service.engine.queue import DEFAULT_URGENCY, BatchQueue, Entry, Limits
from service.engine.waiting import Waiting, awaited

__all__ = ["SERVED", "SLOWER", "ContinuousBatcher", "Start"]

_STEPS = (128, 512)
"""Output limits up to which sequences share a decoding: its buffers are as long as its longest sequence may become."""
_FIXED_BEAM, _USUAL_BEAM = 3, 5
"""A step costs as much as this many hypotheses besides its own; a sequence of the usual beam size has weight 1."""
_SHARED, _HALF = 8, 16
"""Before anything was decoded, a token is expected to take as long as a step that it shares with 7 others, half-way
through a text of 32 tokens."""
SERVED = 0.5
"""Shares of the recent work from which on a key that floods the queue has had its share. It is less than in batches:
its sequences are computed for as long as others join and leave, each of which they would delay."""
SLOWER = 0.1
"""Fraction of the fixed cost of a step by which the sequences of a key that floods the queue may lengthen it in any
case."""
_ENCODED_TOKENS = 1024
"""Source tokens that are encoded together, unless one sequence has more: attention scores grow with their square."""


@dataclass(eq=False, slots=True)
class _Batch:
    """The sequences that joined in one step, as metrics and spans count them."""

    number: int
    started: float
    entries: list[Entry[Waiting]]
    open: int
    """Those that are not finished."""


class _Key(NamedTuple):
    """The sequences with the same key are decoded together."""

    batch_key: str
    yields: bool
    """Whether they take steps only where no others do: those of keys that flood the queue, where each sequence makes a
    step longer."""


@dataclass(eq=False, slots=True)
class _Running:
    """A sequence that takes decoder steps."""

    entry: Entry[Waiting]
    key: _Key
    batch: _Batch
    joined: int
    """Steps that its worker had taken."""


Start = Callable[[int], Decoding]
"""Returns an empty decoding for a beam size."""


@dataclass(eq=False, slots=True)
class _Worker:
    """One of the computations at once: its decodings take turns."""

    start: Start
    cost: CostModel
    """The cost of a step."""
    running: set[_Running] = field(default_factory=set)
    decodings: dict[_Key, Decoding] = field(default_factory=dict)
    reserved: int = 0
    """Bytes of the cache budget."""
    steps: int = 0
    """Steps taken so far."""


class ContinuousBatcher(Batcher):
    """Decodes the sequences of one model. Sequences of different beam sizes or length classes take turns in steps.

    The largest memory that a decoding may need is reserved in the cache budget before a sequence joins, so that a
    sequence that has joined always finishes.
    """

    def __init__(
        self,
        starts: Sequence[Start],
        limits: Limits,
        observer: Observer,
        *,
        cache: Budget | None = None,
        tracer: Tracer | None = None,
        costs: Sequence[CostModel] = (),
        computations: Computations | None = None,
        background: bool = False,
    ) -> None:
        """`starts` has a function for each decoding at once, on one device or several; all share one queue.

        `costs` holds the measured cost of a step of each. `cache` is in bytes.
        """
        limits = replace(limits, max_batch_tokens=min(limits.max_batch_tokens, _ENCODED_TOKENS))
        expected = costs[0].terms.seconds(_SHARED, _HALF) / _SHARED / len(starts) if costs else 0.0
        super().__init__(
            limits,
            observer,
            threads=len(starts),
            tracer=tracer,
            expected=expected,
            computations=computations,
            background=background,
        )
        self._queue, self._most = BatchQueue(limits, served=SERVED), limits.max_batch_items
        self._cache = Budget(1 << 62, "bytes") if cache is None else cache
        self._workers = [_Worker(*pair) for pair in zip(starts, costs or [CostModel() for _ in starts], strict=True)]
        self._empty: dict[int, Decoding] = {}

    async def submit(
        self,
        operation: str,
        parts: Sequence[Part],
        deadline: float,
        urgency: int = DEFAULT_URGENCY,
        flow: Flow = SINGLE_FLOW,
    ) -> tuple[list[list[Hypothesis]], Timing]:
        """Return the hypotheses of each source; raises `OverBudget` where one does not fit into the cache alone."""
        for part in parts:
            self._cache.check(self._bytes(None, [_source(part)]))
        return await super().submit(operation, parts, deadline, urgency, flow)

    def _batch_key(self, operation: str, part: Part) -> str:
        """Return the beam size and the length class."""
        source = _source(part)
        return f"{source.beam_size}/{sum(source.max_tokens > most for most in _STEPS)}"

    def _costs(self, operation: str, parts: Sequence[Part]) -> list[float]:
        costs = super()._costs(operation, parts)
        return [cost * _weight(_source(part)) for cost, part in zip(costs, parts, strict=True)]

    def work_of(self, parts: Sequence[Part]) -> Work:
        """Return how much is to be computed for sources, whose outputs are about as long as they are."""
        sources = [_source(part) for part in parts]
        steps = [min(source.length, source.max_tokens) for source in sources]
        return Work(sum(map(_weight, sources)), sum(steps), max(steps, default=0))

    def unloaded_seconds(self, operation: str, work: Work) -> float:
        terms = self._workers[0].cost.unloaded
        if terms is None:
            return 0.0
        turns = max(1, math.ceil(work.items / self._most))
        step = turns * terms.fixed + work.items * (terms.item + terms.token * work.longest / 2)
        return work.longest * step / min(turns, len(self._workers))

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for worker in self._workers:
                workers.create_task(self._work(worker))

    async def _work(self, worker: _Worker) -> None:
        while True:
            self._drop_expired()
            if not worker.running and not len(self._queue):
                self._release_cache(worker)
                if not await self._sleep():
                    return
                continue
            gone = self._abandoned(worker)
            new = self._joining(worker)
            self._report_queue()
            if worker.running or gone:
                await self._step(worker, new, gone)
            elif len(self._queue):
                await self._wait_for_cache(worker)

    async def _step(self, worker: _Worker, new: Sequence[_Running], gone: Sequence[_Running]) -> None:
        started = time.monotonic()
        entries, stepping = [each.entry for each in worker.running], self._stepping(worker)
        try:
            keys = {each.key for each in stepping}
            finished = await self.computations.run(
                self._thread, self._advance, worker, new, gone, keys, awaited=lambda: awaited(entries)
            )
        except Exception as error:  # the state of all decodings is unknown now
            self._abort(worker, error)
            if isinstance(error, TOOK_TOO_LONG):
                self._drain.record(0, time.monotonic() - started)
            elif len(self._workers) > 1:
                await asyncio.sleep(PAUSE)
            return
        finally:
            self._release_cache(worker)
        seconds = time.monotonic() - started
        if worker.running and not new:  # sources are encoded in the step in which they join
            weights = [_weight(_source(each.entry.payload.part)) for each in stepping]
            oldest = min(each.joined for each in stepping)
            worker.cost.record(Sample(max(1, round(sum(weights))), worker.steps - oldest + 1, seconds))
        busy = max(1, sum(bool(each.running) for each in self._workers))
        worker.steps += 1
        done = sum(_running(key).entry.cost for key, _ in finished)
        self._drain.record(done + sum(_progress(each, worker) for each in gone), seconds / busy)
        self._deliver(worker, finished)

    def _stepping(self, worker: _Worker) -> Collection[_Running]:
        """Return the sequences that take the next step: not those that yield, while their keys flood the queue."""
        yielding = {each.key for each in worker.running if each.key.yields}
        if not yielding:
            return worker.running
        yielding -= {each.key for each in worker.running if not self._queue.floods(each.entry.flow)}
        return [each for each in worker.running if each.key not in yielding] or worker.running

    def _joining(self, worker: _Worker) -> list[_Running]:
        """Take the entries that join at the next step out of the queue, and reserve their memory in the cache."""
        now = time.monotonic()
        keys: dict[Entry[Waiting], _Key] = {}

        def fits(some: Sequence[Entry[Waiting]]) -> bool:
            keys.update((entry, self._key(worker, entry)) for entry in some if entry not in keys)
            return len({keys[entry] for entry in some}) == 1 and self._fits(worker, keys[some[0]], some)

        entries = self._queue.next_joining(now, self._room(worker), fits)
        if not entries:
            return []
        key = keys[entries[0]]  # once they have joined, their flow may have had its share
        more = self._missing(worker, key, entries)
        reserved = self._cache.try_reserve(more)
        assert reserved, "next_joining returned entries that do not fit"
        worker.reserved += more
        if key not in worker.decodings:
            worker.decodings[key] = worker.start(_source(entries[0].payload.part).beam_size)
        self._batches += 1
        batch = _Batch(self._batches, now, entries, len(entries))
        new = [_Running(entry, key, batch, worker.steps) for entry in entries]
        worker.running.update(new)
        self._computing += sum(entry.cost for entry in entries)
        self._observer.batch([entry.length for entry in entries], [now - entry.arrived for entry in entries])
        return new

    def _room(self, worker: _Worker) -> int:
        """Return how many sequences may join: the worker's share of the queue."""
        share = math.ceil(len(self._queue) / len(self._workers))
        return min(share, self._most - len(worker.running))

    def _fits(self, worker: _Worker, key: _Key, entries: Sequence[Entry[Waiting]]) -> bool:
        if not all(self._may_run(worker, flow, entries) for flow in {entry.flow for entry in entries}):
            return False
        missing = self._missing(worker, key, entries)
        if not self._cache.try_reserve(missing):
            return False
        self._cache.release(missing)
        return True

    def _may_run(self, worker: _Worker, flow: Flow, entries: Sequence[Entry[Waiting]]) -> bool:
        """Return whether the worker may run so many sequences of a flow: those that have joined take each step."""
        if flow is SINGLE_FLOW:
            return True
        running = sum(each.entry.flow == flow for each in worker.running)
        alone = running == len(worker.running)
        most = self._queue.most_running(flow, self._cheap(worker), alone=alone)
        return running + sum(entry.flow == flow for entry in entries) <= most

    @staticmethod
    def _cheap(worker: _Worker) -> int:
        """Return the number of sequences that make a step hardly longer."""
        fixed, sequence, _ = worker.cost.terms
        return math.floor(SLOWER * fixed / sequence) if sequence else 0

    def _key(self, worker: _Worker, entry: Entry[Waiting]) -> _Key:
        """Return the key of the decoding that an entry joins."""
        return _Key(entry.batch_key, self._queue.floods(entry.flow) and not self._cheap(worker))

    def _missing(self, worker: _Worker, key: _Key, entries: Sequence[Entry[Waiting]]) -> int:
        """Return the bytes that are still to be reserved for entries to join the decoding of a key."""
        sources = [_source(entry.payload.part) for entry in entries]
        needed = sum(each.reserved_bytes() for other, each in worker.decodings.items() if other != key)
        return max(0, needed + self._bytes(worker.decodings.get(key), sources) - worker.reserved)

    def _bytes(self, decoding: Decoding | None, joining: Sequence[SourceSequence]) -> int:
        """Return the bytes that a decoding may come to take once others join; an empty one where there is none."""
        if decoding is None:
            beam_size = joining[0].beam_size
            if beam_size not in self._empty:
                self._empty[beam_size] = self._workers[0].start(beam_size)
            decoding = self._empty[beam_size]
        return decoding.reserved_bytes([(source.length, source.max_tokens) for source in joining])

    async def _wait_for_cache(self, worker: _Worker) -> None:
        """Wait in line while decodings of other models hold the memory that the head of the queue needs."""
        head = self._queue.head(time.monotonic())
        missing = self._missing(worker, self._key(worker, head), [head])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAUSE):
                await self._cache.reserve(missing, first=True)  # there are few decodings, and perhaps many completions
            worker.reserved += missing

    def _release_cache(self, worker: _Worker) -> None:
        """Release the memory that the decodings of a worker do not need any more."""
        for key in [key for key, decoding in worker.decodings.items() if not decoding.reserved_bytes()]:
            del worker.decodings[key]
        needed = min(worker.reserved, sum(decoding.reserved_bytes() for decoding in worker.decodings.values()))
        self._cache.release(worker.reserved - needed)
        worker.reserved = needed

    def _abandoned(self, worker: _Worker) -> list[_Running]:
        """Take out the sequences whose requests are cancelled, or whose deadline has passed."""
        now = time.monotonic()
        late = [each for each in worker.running if each.entry.deadline <= now and each.entry.payload.awaited]
        if late:
            self._count_expired([each.entry for each in late])
        for each in late:
            each.entry.payload.fail(DeadlineExceeded())
        gone = [each for each in worker.running if not each.entry.payload.awaited]
        worker.running.difference_update(gone)
        for each in gone:
            self._finish(each.batch, each.entry.cost)
        return gone

    @native_errors("the model")
    def _advance(
        self, worker: _Worker, new: Sequence[_Running], gone: Sequence[_Running], keys: Collection[_Key]
    ) -> list[tuple[object, list[Hypothesis]]]:
        """Let sequences join and leave, and take a step of those with some keys. Called on the batcher's thread."""
        for decoding in worker.decodings.values() if gone else ():
            decoding.cancel(gone)
        if new:
            sources = [_source(each.entry.payload.part) for each in new]
            decoding = worker.decodings[new[0].key]
            searches = [(each, source.options, source.max_tokens) for each, source in zip(new, sources, strict=True)]
            decoding.add([source.tokens for source in sources], searches)
        stepping = [decoding for key, decoding in worker.decodings.items() if key in keys]
        return [result for decoding in stepping for result in decoding.step()]

    def _deliver(self, worker: _Worker, finished: Sequence[tuple[object, list[Hypothesis]]]) -> None:
        now = time.monotonic()
        for key, hypotheses in finished:
            running = _running(key)
            worker.running.discard(running)
            entry, batch = running.entry, running.batch
            self._observer.generated(sum(len(hypothesis.tokens) + 1 for hypothesis in hypotheses))
            self._observer.computed(now - batch.started)
            entry.payload.succeed(hypotheses, Timing(batch.started - entry.arrived, now - batch.started, batch.number))
            self._finish(batch, entry.cost)

    def _finish(self, batch: _Batch, cost: float) -> None:
        """Note that a sequence has left; the span of a batch ends with its last one."""
        batch.open -= 1
        self._computing -= cost
        if self._tracer is not None and not batch.open:
            lengths = [entry.length for entry in batch.entries]
            contexts = [entry.payload.trace for entry in batch.entries]
            self._tracer.batch(batch.number, lengths, contexts, time.monotonic() - batch.started)

    def _abort(self, worker: _Worker, error: Exception) -> None:
        for each in worker.running:
            each.entry.payload.fail(error)
            self._computing -= each.entry.cost
        worker.running.clear()
        worker.decodings.clear()


def _progress(running: _Running, worker: _Worker) -> int:
    """Return the part of a sequence's cost that was computed before it left; most end at half of their limit."""
    limit = _source(running.entry.payload.part).max_tokens
    return round(running.entry.cost * min(1.0, 2 * (worker.steps - running.joined) / limit))


def _weight(source: SourceSequence) -> float:
    """Return the work of a step of a sequence, compared with that of the usual beam size."""
    return (_FIXED_BEAM + source.beam_size) / (_FIXED_BEAM + _USUAL_BEAM)


def _running(key: object) -> _Running:
    assert isinstance(key, _Running)
    return key


def _source(part: Part) -> SourceSequence:
    assert isinstance(part, SourceSequence)
    return part
