"""A state machine that compares the queue with a plain list."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from service.engine.queue import BatchQueue, QueueFull
from tests.service.engine.test_queue import ENTRIES, LIMITS, assert_fits, leader, lengths


class QueueMachine(RuleBasedStateMachine):
    """A queue against a plain list of entries."""

    pushed = Bundle("pushed")

    def __init__(self):
        super().__init__()
        self.model, self.clock, self.queue = [], 0.0, None
        self.finished, self.running = set(), []
        self.held, self.line = set(), []
        """Keys that are held, and the entries in the order in which they began to wait for a batch."""

    @rule(bounds=LIMITS)
    def begin(self, bounds):
        if self.queue is None:
            self.queue = BatchQueue(bounds)

    @rule(target=pushed, entries=st.lists(ENTRIES, max_size=6))
    def push(self, entries):
        if self.queue is None:
            return multiple()
        for item in entries:
            item.arrived, item.deadline = self.clock, self.clock + item.deadline
        bounds = self.queue.limits
        items = len(self.model) + len(entries)
        tokens = sum(lengths(self.model)) + sum(lengths(entries))
        if items <= bounds.max_queue_items and tokens <= bounds.max_queue_tokens:
            self.queue.push(entries)
            self.model += entries
            self.line += entries
            return multiple(*entries)
        never = len(entries) > bounds.max_queue_items or sum(lengths(entries)) > bounds.max_queue_tokens
        with pytest.raises(QueueFull) as caught:
            self.queue.push(entries)
        assert caught.value.never == never
        return multiple()

    @rule(gone=consumes(pushed))
    def remove(self, gone):
        self.queue.remove([gone])
        self._finish([gone])

    @rule(step=st.integers(0, 6))
    def expire(self, step):
        self.clock += step
        if self.queue is not None:
            expired = self.queue.expired(self.clock)
            assert expired == [item for item in self.model if item.deadline <= self.clock]
            self._finish(expired)

    @rule()
    def compute(self):
        if self.queue is None:
            return
        orders = self._ready(self.model), self._ready(self.line)
        firsts = [leader(some, self.queue.limits, self.clock) for some in orders if some]
        batch = self.queue.next_batch(self.clock)
        assert bool(batch) == bool(firsts)
        if batch:
            assert batch[0] in firsts
            assert_fits(batch, self.queue.limits)
            assert all(item in self.model for item in batch)
            assert not self.finished & set(batch)
            self._finish(batch)
            self.running.append(batch)

    @rule(key=st.sampled_from("ab"))
    def hold(self, key):
        if self.queue is not None and key not in self.held:
            self.queue.hold(key)
            self.held.add(key)

    @rule(key=st.sampled_from("ab"))
    def resume(self, key):
        if self.queue is not None and key in self.held:
            self.queue.resume(key)
            self.held.discard(key)
            self.line.sort(key=lambda item: item.batch_key == key)

    def _ready(self, entries):
        return [item for item in entries if item.batch_key not in self.held]

    @rule()
    def complete(self):
        if self.running:
            self.queue.completed(self.clock, self.running.pop(0))

    def _finish(self, entries):
        self.finished |= set(entries)
        self.model = [item for item in self.model if item not in self.finished]
        self.line = [item for item in self.line if item not in self.finished]

    @invariant()
    def counts_agree(self):
        if self.queue is not None:
            assert (len(self.queue), self.queue.tokens) == (len(self.model), sum(lengths(self.model)))

    @invariant()
    def a_batch_is_ready_only_where_something_waits(self):
        if self.queue is not None:
            ready, waiting = self.queue.ready_at(), self._ready(self.model)
            assert (ready is None) == (not waiting) == (not self.queue.ready)
            if waiting:
                oldest, bounds = waiting[0].arrived, self.queue.limits
                window = bounds.batch_seconds and self.clock + bounds.batch_seconds / 2
                assert oldest <= ready <= max(oldest + bounds.max_delay, window)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(deadline=None, max_examples=40, stateful_step_count=30)
