"""Warm-up computes what requests will compute, and says how long it took."""

import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from service.engine.warm_up import warm_up


@pytest.fixture
def patient(monkeypatch):
    """No batch is left out because it takes long."""
    monkeypatch.setattr("service.engine.warm_up._LONGEST", 100.0)


class Query(NamedTuple):
    operation: str
    length: int


class BatchModel:
    """A model of a task that this project does not have."""

    continuous = False
    alone = frozenset()
    offers = ("embed", "compare")
    warm_up_lengths = (1, 32)
    seconds = 0.02

    def __init__(self, parallel=1):
        self.calls, self.tested, self.backend = [], 0, SimpleNamespace(parallel=parallel, concurrently=nullcontext)

    def self_test(self):
        self.tested += 1

    def warm_up_parts(self, operation, count, length):
        return [Query(operation, length)] * count

    @property
    def batch_functions(self):
        def run(queries):
            self.calls.append((*queries[0], len(queries)))
            time.sleep(self.seconds)
            return queries

        return dict.fromkeys(self.offers, run)


class ColdModel(BatchModel):
    """A model on a device that loads kernels when it computes a shape for the first time."""

    offers = ("embed",)

    @property
    def batch_functions(self):
        def run(queries):
            shape = (*queries[0], len(queries))
            if shape not in self.calls:
                time.sleep(0.1)
            self.calls.append(shape)

        return {"embed": run}


class ContinuousModel(BatchModel):
    continuous = True
    offers = ("write",)

    @property
    def batch_functions(self):
        raise AssertionError("it has no batches")

    def warm_up_parts(self, operation, count, length):
        return [SourceSequence((7,) * length, 5, SearchOptions(), 2)] * count

    def start_decoding(self, beam_size):
        return Countdown(self.calls, beam_size)


class Countdown:
    """A decoding that ends after two steps."""

    def __init__(self, calls, beam_size):
        self.calls, self.beam_size, self.left = calls, beam_size, 0

    def add(self, sources, searches):
        self.calls.append((self.beam_size, len(sources), len(sources[0]), [search[2] for search in searches]))
        self.left = 2

    def __len__(self):
        return self.left

    def step(self):
        self.left -= 1
        self.calls.append("step")


@pytest.mark.usefixtures("patient")
def test_every_operation_is_timed_for_every_length_and_batch_size():
    model = BatchModel()
    samples = warm_up(model, max_batch_items=16, parallel_batches=1)
    assert model.tested == 1
    shapes = [(name, length, count) for name in model.offers for length in (1, 32) for count in (1, 8, 16)]
    assert model.calls == [shape for shape in shapes for _ in range(2)]
    assert {name: [each[:2] for each in timed] for name, timed in samples.items()} == {
        name: [(count, length) for _, length, count in shapes if _ == name] for name in model.offers
    }
    assert all(0.02 <= each.seconds < 1.0 for timed in samples.values() for each in timed)


@pytest.mark.usefixtures("patient")
def test_steps_are_timed_for_one_token():
    model = BatchModel()
    model.alone = frozenset({"compare"})
    samples = warm_up(model, max_batch_items=1, parallel_batches=1)
    assert [each.longest for each in samples["embed"]] == [1, 32]
    assert [each.longest for each in samples["compare"]] == [1]


def test_short_batches_are_timed_several_times_and_the_fastest_counts():
    model = BatchModel()
    model.seconds = 0.0
    (sample, *_) = warm_up(model, max_batch_items=1, parallel_batches=1)["embed"]
    assert model.calls.count(("embed", 1, 1)) == 3
    assert sample.seconds < 0.02


def test_batches_that_would_take_long_are_left_out():
    """Batches take 0.02 s: one of 32 times as many tokens is expected to take 0.64 s."""
    model = BatchModel()
    model.seconds = 0.02
    warm_up(model, max_batch_items=64, parallel_batches=1)
    assert set(model.calls) == {("embed", 1, 1), ("compare", 1, 1)}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("parallel_batches", "concurrent"), [(1, 0), (2, 2), (3, 2)])
def test_a_long_batch_is_computed_concurrently_where_batches_will_be(parallel_batches, concurrent):
    model = BatchModel()
    warm_up(model, max_batch_items=16, parallel_batches=parallel_batches)
    alone = [(name, length, count) for name in model.offers for length in (1, 32) for count in (1, 8, 16)]
    assert sorted(model.calls) == sorted(2 * alone + [(name, 32, 1) for name in model.offers] * concurrent)


def test_several_decodings_at_once_are_tried_where_the_backend_computes_them_faster(monkeypatch):
    monkeypatch.setattr("service.engine.warm_up._ENOUGH", 100.0)
    model = ContinuousModel(parallel=2)
    warm_up(model, max_batch_items=4, parallel_batches=3)
    decodings = [call[1:3] for call in model.calls if call != "step"]
    alone = [(1, 1), (4, 1), (1, 32), (4, 32)]
    assert decodings == [each for each in alone for _ in range(3)] + [(1, 32)] * 2


def test_a_continuous_model_decodes_to_the_end(monkeypatch):
    monkeypatch.setattr("service.engine.warm_up._ENOUGH", 100.0)
    model = ContinuousModel()
    samples = warm_up(model, max_batch_items=4, parallel_batches=3)["write"]
    assert model.calls == [
        call for length in (1, 32) for count in (1, 4) for call in ((5, count, length, [2] * count), "step", "step") * 3
    ]
    assert [each[:2] for each in samples] == [(2, 1), (1, 2)] * 4


def test_the_slow_first_run_of_a_shape_does_not_count():
    """Larger batches are not expected to take as long."""
    samples = warm_up(ColdModel(), max_batch_items=16, parallel_batches=1)["embed"]
    assert [each[:2] for each in samples] == [(count, length) for length in (1, 32) for count in (1, 8, 16)]
    assert max(each.seconds for each in samples) < 0.05


@pytest.mark.parametrize("method", ["self_test", "warm_up_parts"])
def test_errors_of_the_model_are_raised(method):
    model = BatchModel()
    setattr(model, method, lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        warm_up(model, max_batch_items=1, parallel_batches=1)
