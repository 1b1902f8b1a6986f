"""Continuous batching: sentences join running translations at the next step, finished ones leave at once."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.beam_search import Hypothesis
from models.decoding import Decoding
from models.sequence_to_sequence import SourceQuery
from service.engine.queue import Entry, Limits
from service.engine.worker import DeadlineExceeded, Observer, Timing, Waiting, Worker, fail, succeed

__all__ = ["DecodingWorker"]


@dataclass(eq=False, slots=True)
class _Running:
    """A sentence that takes steps."""

    entry: Entry[Waiting]
    joined: float
    batch: int
    """Number of those it joined with."""


class DecodingWorker(Worker):
    """Decodes the sentences of one model. Sentences of different beam sizes take their steps in turn."""

    def __init__(self, start: Callable[[int], Decoding], limits: Limits, observer: Observer) -> None:
        """`start` makes an empty decoding for a beam size."""
        super().__init__(limits, observer)
        self._start = start
        self._most = limits.max_batch_items
        self._running: set[_Running] = set()
        self._decodings: dict[int, Decoding] = {}

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._drop_expired()
            if not self._running and not len(self._queue):
                if not await self._sleep():
                    return
                continue
            gone = self._abandoned()
            new = [
                _Running(entry, time.monotonic(), self._batches + 1)
                for entry in self._queue.next_joining(time.monotonic(), self._most - len(self._running))
            ]
            self._running.update(new)
            self._batches += bool(new)
            self._report_queue()
            if not self._running and not gone:
                continue
            started = time.monotonic()
            try:
                finished = await loop.run_in_executor(self._thread, self._advance, new, gone)
            except Exception as error:  # the state of all decodings is unknown now
                self._abort(error)
                continue
            seconds = time.monotonic() - started
            self._drain.record(sum(_running(key).entry.length for key, _ in finished), seconds)
            if new:
                lengths, waits = [each.entry.length for each in new], [each.joined - each.entry.arrived for each in new]
                self._observer.batch(lengths, waits, seconds)
            self._deliver(finished)

    def _abandoned(self) -> list[_Running]:
        """Takes out the sentences that nobody waits for any more, or whose deadline has passed."""
        now = time.monotonic()
        late = [each for each in self._running if each.entry.deadline <= now and not each.entry.payload.future.done()]
        if late:
            self._observer.rejected("expired", len(late))
        for each in late:
            fail(each.entry, DeadlineExceeded())
        gone = [each for each in self._running if each.entry.payload.future.done()]
        self._running.difference_update(gone)
        return gone

    def _advance(self, new: Sequence[_Running], gone: Sequence[_Running]) -> list[tuple[object, list[Hypothesis]]]:
        """Lets sentences join and leave, and takes a step. Called on the worker's thread."""
        for decoding in self._decodings.values() if gone else ():
            decoding.cancel(gone)
        if new:
            queries = [_query(each) for each in new]
            beam_size = queries[0].beam_size  # next_joining gives entries of one operation, which is the beam size
            decoding = self._decodings.setdefault(beam_size, self._start(beam_size))
            searches = [(each, query.options, query.max_tokens) for each, query in zip(new, queries, strict=True)]
            decoding.add([query.tokens for query in queries], searches)
        return [result for decoding in self._decodings.values() for result in decoding.step()]

    def _deliver(self, finished: Sequence[tuple[object, list[Hypothesis]]]) -> None:
        now = time.monotonic()
        for key, hypotheses in finished:
            running = _running(key)
            self._running.discard(running)
            self._observer.generated(sum(len(hypothesis.tokens) + 1 for hypothesis in hypotheses))
            waited, computed = running.joined - running.entry.arrived, now - running.joined
            succeed(running.entry, hypotheses, Timing(waited, computed, running.batch))

    def _abort(self, error: Exception) -> None:
        for each in self._running:
            fail(each.entry, error)
        self._running.clear()
        self._decodings.clear()


def _running(key: object) -> _Running:
    assert isinstance(key, _Running)
    return key


def _query(running: _Running) -> SourceQuery:
    query = running.entry.payload.query
    assert isinstance(query, SourceQuery)
    return query
