"""A loader makes served models of bundles."""

import asyncio
import contextlib
import math
import os
import shutil
import threading

import pytest

from models import BundleError
from service.engine import loading
from service.engine.continuous_batching import ContinuousBatcher
from service.engine.dynamic_batching import DynamicBatcher
from service.engine.loading import Loader, key_of, signature_of
from service.engine.memory import private_memory
from service.engine.resources import Resources
from service.engine.trial import LoadTimeoutError, MemoryLimitError
from service.observability.metrics import Metrics
from service.settings import Settings
from tests.fixtures.bundled import NEXT_WORD
from tests.support.hostile.bundles import HOSTILE_BUNDLES, make_bundle


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


@pytest.mark.parametrize(("megabytes", "calls"), [(0, []), (3, [3 << 19] * 2)])
def test_the_replicas_share_a_cache_of_the_configured_size(library, monkeypatch, megabytes, calls):
    given, decoding = [], []
    monkeypatch.setattr(type(library), "use_cache", lambda model, size, on_lookup: given.append(size))
    monkeypatch.setattr(type(library), "use_decoding_cache", lambda model, size: decoding.append(size))

    async def run():
        sizes = {"prefix_cache_mb": megabytes, "decoding_cache_mb": 5}
        settings = Settings(threads=1, models=("next-word:4",), device="cpu,cpu", **sizes)
        resources = Resources(settings)
        loader = Loader(settings, Metrics(), resources)
        await (await loader.load(*loader.configured())).drain()
        loader.close()
        resources.close()

    asyncio.run(run())
    assert given == calls
    assert decoding == [5 << 19] * 2


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
        settings = Settings(threads=1, models=("next-word:4",), allow_cpu_fallback=allowed)
        resources = Resources(settings)
        loader = Loader(settings, Metrics(), resources)
        await (await loader.load(*loader.configured())).drain()
        loader.close()
        resources.close()

    asyncio.run(run())
    assert given == [allowed]


# ---- limits ----


def load(path, action=None, *, trial=False, **settings):
    """Loads a bundle, and another one afterwards; returns the error of the first."""

    async def run():
        given = Settings(threads=1, parallel_batches=1, **settings)
        loader = Loader(given, Metrics(), Resources(given))
        with pytest.raises(BundleError) as caught:
            await loader.load(path, trial=trial)
        if action is not None:
            action()
        await (await loader.load(NEXT_WORD)).drain()
        loader.close()
        return caught.value

    return asyncio.run(run())


def test_a_load_that_hangs_is_abandoned_and_later_ones_go_on(monkeypatch):
    released, original = threading.Event(), loading.load_replicas
    monkeypatch.setattr(loading, "load_replicas", lambda *_: released.wait(60))

    def recover():
        monkeypatch.setattr(loading, "load_replicas", original)

    error = load(NEXT_WORD, recover, load_timeout=8)
    released.set()
    assert isinstance(error, LoadTimeoutError)
    assert error.problems == ("no answer within 8 s (--load-timeout)",)


@pytest.mark.parametrize("fails", [False, True])
def test_copies_are_deleted_on_a_thread_before_a_load_ends(monkeypatch, tmp_path, fails):
    threads, original = [], shutil.rmtree
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def deleted(path, **options):
        threads.append(threading.current_thread().name)
        original(path, **options)

    def fail(*_):
        raise BundleError("some", ["it is broken"])

    monkeypatch.setattr("shutil.rmtree", deleted)
    if fails:
        monkeypatch.setattr(loading, "load_replicas", fail)

    async def run():
        settings = Settings(threads=1, parallel_batches=1)
        loader = Loader(settings, Metrics(), Resources(settings))
        with pytest.raises(BundleError) if fails else contextlib.nullcontext():
            await (await loader.load(NEXT_WORD)).drain()
        assert list(tmp_path.iterdir()) == []
        loader.close()

    asyncio.run(run())
    assert set(threads) == {"softserve-copy_0"}


def test_a_load_of_this_process_that_takes_too_much_memory_is_an_error(monkeypatch):
    released, taken, original = threading.Event(), [], loading.load_replicas

    def grow(*_):
        taken.append(b"x" * (400 << 20))  # the bundle itself takes some 100 MB while it is loaded afterwards
        released.wait(60)

    monkeypatch.setattr(loading, "load_replicas", grow)

    def recover():
        released.set()
        taken.clear()
        monkeypatch.setattr(loading, "load_replicas", original)

    error = load(NEXT_WORD, recover, load_memory_mb=300)
    assert isinstance(error, MemoryLimitError)
    assert error.problems == ("to load it takes more than 300 MB of memory (--load-memory-mb)",)


def test_a_trial_protects_the_process(tmp_path):
    bundle = make_bundle(tmp_path, HOSTILE_BUNDLES["a graph with a constant of 3 GB"][0])
    before = private_memory(os.getpid())
    assert isinstance(load(bundle, trial=True, load_memory_mb=500), MemoryLimitError)
    assert private_memory(os.getpid()) - before < 300 << 20


def test_what_a_trial_has_checked_is_what_is_loaded(copied_models, monkeypatch):
    """Whatever happens to the bundle in between."""
    (bundle,) = copied_models.glob("*/*")
    original = loading.try_bundle

    def tried(path, *arguments, **options):
        found = original(path, *arguments, **options)
        (path / "weights.bin").write_bytes(b"other")
        return found

    monkeypatch.setattr(loading, "try_bundle", tried)

    async def run():
        settings = Settings(threads=1, parallel_batches=1, model_dirs=(copied_models,))
        loader = Loader(settings, Metrics(), Resources(settings))
        served = await loader.load(bundle, trial=True)
        assert served.model.next_words(["thank you very"], 1)[0].words[0].word == "much"
        await served.drain()
        loader.close()

    asyncio.run(run())


@pytest.mark.parametrize(("available", "expected"), [(math.inf, (2 << 30) + 8 * 3000), (1 << 30, int(0.8 * (1 << 30)))])
def test_the_memory_of_a_load_is_bounded_by_its_files_and_what_is_available(tmp_path, monkeypatch, available, expected):
    (tmp_path / "weights.bin").write_bytes(bytes(3000))
    monkeypatch.setattr(loading, "available_memory", lambda: available)
    loader = Loader(Settings(), Metrics(), Resources(Settings()))
    assert loader._max_bytes(tmp_path) == expected
    assert Loader(Settings(load_memory_mb=5), Metrics(), Resources(Settings()))._max_bytes(tmp_path) == 5 << 20


def test_a_signature_does_without_what_cannot_be_read(tmp_path):
    (tmp_path / "link").symlink_to("nothing")
    assert signature_of(tmp_path) == {("link", -1, -1)}
    assert signature_of(tmp_path / "nothing") == frozenset()
