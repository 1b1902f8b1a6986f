"""Continuous batching: sentences join running translations at the next step, finished ones leave at once."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from models.beam_search import Hypothesis
from models.decoding import Decoding
from models.sequence_to_sequence import SourceQuery
from service.engine.queue import Entry, Limits
from service.engine.worker import PAUSE, DeadlineExceeded, Observer, Timing, Waiting, Worker, fail, succeed

__all__ = ["DecodingWorker", "Start"]


@dataclass(eq=False, slots=True)
class _Running:
    """A sentence that takes steps."""

    entry: Entry[Waiting]
    joined: float
    batch: int
    """Number of those it joined with."""


Start = Callable[[int], Decoding]
"""Makes an empty decoding for a beam size."""


@dataclass(eq=False, slots=True)
class _Device:
    """What decodes, by itself, some of the sentences."""

    start: Start
    running: set[_Running] = field(default_factory=set)
    decodings: dict[int, Decoding] = field(default_factory=dict)


class DecodingWorker(Worker):
    """Decodes the sentences of one model. Sentences of different beam sizes take their steps in turn."""

    def __init__(self, starts: Sequence[Start], limits: Limits, observer: Observer) -> None:
        """A `start` for each device that holds the model; they take from one queue."""
        super().__init__(limits, observer, threads=len(starts))
        self._most = limits.max_batch_items
        self._devices = [_Device(start) for start in starts]

    async def _run(self) -> None:
        await asyncio.gather(*map(self._run_on, self._devices))

    async def _run_on(self, device: _Device) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._drop_expired()
            if not device.running and not len(self._queue):
                if not await self._sleep():
                    return
                continue
            gone = self._abandoned(device)
            new = [
                _Running(entry, time.monotonic(), self._batches + 1)
                for entry in self._queue.next_joining(time.monotonic(), self._room(device))
            ]
            device.running.update(new)
            self._batches += bool(new)
            self._report_queue()
            if not device.running and not gone:
                continue
            started = time.monotonic()
            try:
                finished = await loop.run_in_executor(self._thread, self._advance, device, new, gone)
            except Exception as error:  # the state of all decodings is unknown now
                self._abort(device, error)
                if len(self._devices) > 1:
                    await asyncio.sleep(PAUSE)
                continue
            seconds = time.monotonic() - started
            busy = max(1, sum(bool(each.running) for each in self._devices))
            self._drain.record(sum(_running(key).entry.length for key, _ in finished), seconds / busy)
            if new:
                lengths, waits = [each.entry.length for each in new], [each.joined - each.entry.arrived for each in new]
                self._observer.batch(lengths, waits, seconds)
            self._deliver(device, finished)

    def _room(self, device: _Device) -> int:
        """Sentences that may join: the device's share of those that wait."""
        share = math.ceil(len(self._queue) / len(self._devices))
        return min(share, self._most - len(device.running))

    def _abandoned(self, device: _Device) -> list[_Running]:
        """Takes out the sentences that nobody waits for any more, or whose deadline has passed."""
        now = time.monotonic()
        late = [each for each in device.running if each.entry.deadline <= now and not each.entry.payload.future.done()]
        if late:
            self._observer.rejected("expired", len(late))
        for each in late:
            fail(each.entry, DeadlineExceeded())
        gone = [each for each in device.running if each.entry.payload.future.done()]
        device.running.difference_update(gone)
        return gone

    def _advance(
        self, device: _Device, new: Sequence[_Running], gone: Sequence[_Running]
    ) -> list[tuple[object, list[Hypothesis]]]:
        """Lets sentences join and leave, and takes a step. Called on the worker's thread."""
        for decoding in device.decodings.values() if gone else ():
            decoding.cancel(gone)
        if new:
            queries = [_query(each) for each in new]
            beam_size = queries[0].beam_size  # next_joining gives entries of one operation, which is the beam size
            decoding = device.decodings.setdefault(beam_size, device.start(beam_size))
            searches = [(each, query.options, query.max_tokens) for each, query in zip(new, queries, strict=True)]
            decoding.add([query.tokens for query in queries], searches)
        return [result for decoding in device.decodings.values() for result in decoding.step()]

    def _deliver(self, device: _Device, finished: Sequence[tuple[object, list[Hypothesis]]]) -> None:
        now = time.monotonic()
        for key, hypotheses in finished:
            running = _running(key)
            device.running.discard(running)
            self._observer.generated(sum(len(hypothesis.tokens) + 1 for hypothesis in hypotheses))
            waited, computed = running.joined - running.entry.arrived, now - running.joined
            succeed(running.entry, hypotheses, Timing(waited, computed, running.batch))

    def _abort(self, device: _Device, error: Exception) -> None:
        for each in device.running:
            fail(each.entry, error)
        device.running.clear()
        device.decodings.clear()


def _running(key: object) -> _Running:
    assert isinstance(key, _Running)
    return key


def _query(running: _Running) -> SourceQuery:
    query = running.entry.payload.query
    assert isinstance(query, SourceQuery)
    return query
