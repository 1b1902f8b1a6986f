"""A loader makes served models of bundles."""

import asyncio

import pytest

from service.engine.continuous_batching import ContinuousBatcher
from service.engine.dynamic_batching import DynamicBatcher
from service.engine.loading import Loader, key_of, signature_of
from service.engine.resources import Resources
from service.metrics import Metrics
from service.settings import Settings


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


@pytest.mark.parametrize(
    ("settings", "decodings"),
    [({"threads": 1}, 1), ({"threads": 2}, 2), ({"threads": 2, "parallel_batches": 1}, 1), ({"threads": 8}, 3)],
    ids=str,
)
def test_a_continuous_model_runs_as_many_decodings_at_once_as_its_threads_allow(monkeypatch, settings, decodings):
    starts = []
    monkeypatch.setattr(
        "service.engine.loading.ContinuousBatcher",
        lambda given, *others, costs, **options: starts.append((given, costs)) or ContinuousBatcher(given, *others),
    )

    async def run():
        resources = Resources(Settings(models=("de-en",), **settings))
        loader = Loader(Settings(models=("de-en",), **settings), Metrics(), resources)
        (path,) = loader.configured()
        served = await loader.load(path)
        await served.drain()
        loader.close()
        resources.close()

    asyncio.run(run())
    ((given, costs),) = starts
    assert len(given) == len(costs) == decodings


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

    def load(bundle, **options):
        given.append(options["allow_cpu_fallback"])
        return library

    monkeypatch.setattr("service.engine.replicas.load_verified", load)

    async def run():
        settings = Settings(threads=1, models=("next-word",), allow_cpu_fallback=allowed)
        resources = Resources(settings)
        loader = Loader(settings, Metrics(), resources)
        await (await loader.load(*loader.configured())).drain()
        loader.close()
        resources.close()

    asyncio.run(run())
    assert given == [allowed]
