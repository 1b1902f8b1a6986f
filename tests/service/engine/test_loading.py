"""Warm-up computes what requests will compute; a loader makes served models of bundles."""

import asyncio

import pytest

from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceQuery
from models.store import ModelStore
from service.engine.continuous_batching import ContinuousBatcher
from service.engine.dynamic_batching import DynamicBatcher
from service.engine.loading import Loader, key_of, signature_of, warm_up
from service.engine.resources import Resources
from service.metrics import Metrics
from service.settings import Settings


class BatchModel:
    """A model of a task that this project does not have."""

    continuous = False
    offers = ("embed", "compare")
    warm_up_lengths = (1, 32)

    def __init__(self):
        self.calls, self.tested = [], 0

    def self_test(self):
        self.tested += 1

    def warm_up_queries(self, operation, count, length):
        return [(operation, length)] * count

    @property
    def operations(self):
        def run(queries):
            self.calls.append((*queries[0], len(queries)))
            return queries

        return dict.fromkeys(self.offers, run)


class ContinuousModel(BatchModel):
    continuous = True
    offers = ("write",)

    @property
    def operations(self):
        raise AssertionError("it has no batches")

    def warm_up_queries(self, operation, count, length):
        return [SourceQuery((7,) * length, 5, SearchOptions(), 2)] * count

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


def test_every_operation_runs_for_every_length_alone_and_as_a_batch():
    model = BatchModel()
    warm_up(model, max_batch_items=32, parallel_batches=1)
    assert model.tested == 1
    assert model.calls == [
        (name, length, count) for count in (1, 8) for length in (1, 32) for name in ("embed", "compare")
    ]


@pytest.mark.parametrize(("parallel_batches", "runs"), [(1, 1), (2, 3), (3, 3)])
def test_batches_that_will_run_concurrently_are_tried_so(parallel_batches, runs):
    model = BatchModel()
    warm_up(model, max_batch_items=1, parallel_batches=parallel_batches)
    expected = [(name, length, 1) for length in (1, 32) for name in ("embed", "compare")]
    assert sorted(model.calls) == sorted(expected * runs)


def test_a_continuous_model_decodes_to_the_end_and_never_concurrently():
    model = ContinuousModel()
    warm_up(model, max_batch_items=4, parallel_batches=3)
    assert model.calls == [
        call for count in (1, 4) for length in (1, 32) for call in ((5, count, length, [2] * count), "step", "step")
    ]


@pytest.mark.parametrize("method", ["self_test", "warm_up_queries"])
def test_errors_of_the_model_are_raised(method):
    model = BatchModel()
    setattr(model, method, lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        warm_up(model, max_batch_items=1, parallel_batches=1)


@pytest.mark.parametrize(("name", "kind"), [("next-word", DynamicBatcher), ("de-en", ContinuousBatcher)])
def test_the_model_chooses_its_batcher(name, kind):
    async def run():
        settings = Settings(threads=1, models=(name,))
        resources = Resources(settings)
        loader = Loader(settings, Metrics(), resources)
        (path,) = loader.configured()
        served = await loader.load(path)
        assert (served.key, type(served.batcher)) == ((name, int(path.name)), kind)
        assert loader.signatures == {path: signature_of(path)}
        await served.drain()
        loader.close()
        resources.close()

    asyncio.run(run())


@pytest.mark.parametrize(("megabytes", "calls"), [(0, []), (3, [3 << 20])])
def test_the_first_replica_gets_a_cache_of_the_configured_size(library, monkeypatch, megabytes, calls):
    given = []
    monkeypatch.setattr(type(library), "use_cache", lambda model, size, on_lookup: given.append(size))

    async def run():
        settings = Settings(threads=1, models=("next-word",), device="cpu,cpu", prefix_cache_mb=megabytes)
        resources = Resources(settings)
        loader = Loader(settings, Metrics(), resources)
        await (await loader.load(*loader.configured())).drain()
        loader.close()
        resources.close()

    asyncio.run(run())
    assert given == calls


def test_a_signature_changes_with_the_files(copied_models):
    (manifest,) = copied_models.glob("*/*/manifest.json")
    before = signature_of(manifest.parent)
    assert before == signature_of(manifest.parent)
    manifest.write_text(manifest.read_text() + " ")
    assert signature_of(manifest.parent) != before
    assert key_of(manifest.parent) == ("next-word", 1)


@pytest.mark.parametrize("allowed", [False, True])
def test_the_setting_decides_about_operators_on_the_cpu(library, monkeypatch, allowed):
    given = []

    def load(store, name, version, **options):
        given.append(options["allow_cpu_fallback"])
        return library

    monkeypatch.setattr(ModelStore, "load", load)

    async def run():
        settings = Settings(threads=1, models=("next-word",), allow_cpu_fallback=allowed)
        resources = Resources(settings)
        loader = Loader(settings, Metrics(), resources)
        await (await loader.load(*loader.configured())).drain()
        loader.close()
        resources.close()

    asyncio.run(run())
    assert given == [allowed]
