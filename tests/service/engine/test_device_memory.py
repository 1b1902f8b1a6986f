"""Memory of GPUs is reserved before a model is loaded, and given back when its sessions are gone."""

import asyncio
import contextlib
import gc

import pytest

from models import store
from models.errors import BundleError
from service.engine.device_memory import DeviceFull, DeviceLedger, gpu_of
from service.engine.loading import Loader
from service.engine.resources import Resources
from service.engine.served_models import ServedModels
from service.engine.trial import MemoryLimitError, reason_of
from service.observability.metrics import Metrics
from service.settings import Settings

MB = 1 << 20


@pytest.fixture
def reported():
    return {}


@pytest.fixture
def ledger(reported):
    return DeviceLedger(
        100 * MB,
        {"decoding_cache": 10 * MB},
        lambda device, kind, size: reported.update({(device, kind): size}),
    )


@pytest.mark.parametrize(
    ("device", "gpu"),
    [("cpu", None), ("cuda", "cuda:0"), ("cuda:1", "cuda:1"), ("tensorrt:2", "cuda:2"), ("auto", "cuda:0")],
)
def test_devices_that_share_memory_have_one_name(device, gpu):
    assert gpu_of(device) == gpu


def test_what_models_share_is_reserved_from_the_start(ledger, reported):
    assert ledger.free("cuda:0") == 90 * MB
    assert reported == {("cuda:0", "limit"): 100 * MB, ("cuda:0", "decoding_cache"): 10 * MB}


def test_a_model_that_does_not_fit_is_refused_with_what_it_needs_and_what_is_free(ledger, reported):
    ledger.reserve("cuda:0", {"weights": 40 * MB, "work": 20 * MB})
    before = dict(reported)
    with pytest.raises(DeviceFull) as error:
        ledger.reserve("cuda:0", {"weights": 30 * MB, "work": MB // 2})
    assert str(error.value) == (
        "it needs 31 MB of cuda:0 (weights 30, work 1); 30 of 100 MB are free (--gpu-memory-mb), "
        "reserved are: decoding_cache 10, weights 40, work 20"
    )
    assert (reported, ledger.free("cuda:0")) == (before, 30 * MB)
    assert ledger.free("cuda:1") == 90 * MB


def test_all_that_is_free_can_be_reserved_and_is_given_back_once(ledger, reported):
    reservation = ledger.reserve("cuda:0", {"weights": 90 * MB})
    assert ledger.free("cuda:0") == 0
    for _ in range(2):
        reservation.release()
        assert ledger.free("cuda:0") == 90 * MB
    assert reported["cuda:0", "weights"] == 0


# ---- loading, with models on the processor that say that they are on a GPU ----


@pytest.fixture
def on_gpu(monkeypatch):
    """Load models on the processor as if it were a GPU; return the options that they were loaded with."""
    given = []

    def load(bundle, **options):
        given.append(options)
        model = store.load_verified(bundle, threads=1)
        model.backend.device = options["device"]
        return model

    monkeypatch.setattr("service.engine.replicas.load_verified", load)
    monkeypatch.setattr("service.engine.replicas.warm_up", lambda model, **sizes: {})
    return given


def settings(**changes):
    defaults = {"threads": 1, "models": ("next-word:4",), "device": "cuda:0", "gpu_memory_mb": 1000, "gpu_work_mb": 100}
    return Settings(**(defaults | changes))


def sizes(metrics):
    return {
        (sample.labels["device"], sample.labels["kind"]): sample.value
        for family in metrics.registry.collect()
        if family.name == "softserve_device_memory_bytes"
        for sample in family.samples
    }


@contextlib.contextmanager
def loading(metrics, given):
    resources = Resources(given)
    loader = Loader(given, metrics, resources)
    yield loader
    loader.close()
    resources.close()


async def all_released():
    for _ in range(3):
        gc.collect()
        await asyncio.sleep(0.01)


def test_a_model_reserves_its_weights_and_work_on_each_gpu(on_gpu):
    metrics = Metrics()

    async def run():
        with loading(metrics, settings(device="cuda:0,cuda:1", decoding_cache_mb=64)) as loader:
            served = await loader.load(*loader.configured())
            during = sizes(metrics)
            await served.drain()
        return during

    during = asyncio.run(run())
    for gpu in ("cuda:0", "cuda:1"):
        assert during[gpu, "limit"] == 1000 * MB
        assert during[gpu, "decoding_cache"] == 64 * MB
        assert during[gpu, "work"] == 2 * 100 * MB  # two graphs
        assert 2 * 5 * MB < during[gpu, "weights"] < 8 * 6 * MB
    assert [options["work_bytes"] for options in on_gpu] == [100 * MB] * 2


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1,cuda:0"])
def test_a_model_that_does_not_fit_is_not_loaded_and_reserves_nothing(on_gpu, device):
    metrics = Metrics()

    async def run():
        with (
            loading(metrics, settings(device=device, gpu_memory_mb=300)) as loader,
            pytest.raises(MemoryLimitError, match=r"needs 2\d\d MB of cuda.*172 of 300 MB are free .--gpu-memory-mb"),
        ):
            await loader.load(*loader.configured())

    asyncio.run(run())
    assert on_gpu == []
    assert {size for (_, kind), size in sizes(metrics).items() if kind in ("weights", "work")} <= {0}
    assert reason_of(MemoryLimitError("", [])) == "memory"


def test_a_model_that_fails_to_load_gives_its_memory_back(on_gpu, monkeypatch):
    metrics = Metrics()
    monkeypatch.setattr("service.engine.replicas.warm_up", lambda model, **sizes: 1 / 0)

    async def run():
        with loading(metrics, settings()) as loader, pytest.raises(BundleError, match="warm-up"):
            await loader.load(*loader.configured())

    asyncio.run(run())
    assert sizes(metrics)["cuda:0", "weights"] == 0


def test_nothing_is_reserved_where_auto_is_the_processor(on_gpu, monkeypatch):
    metrics = Metrics()
    monkeypatch.setattr("service.engine.replicas.load_verified", lambda bundle, **options: store.load_verified(bundle))

    async def run():
        with loading(metrics, settings(device="auto")) as loader:
            served = await loader.load(*loader.configured())
            assert sizes(metrics)["cuda:0", "weights"] == 0
            await served.drain()

    asyncio.run(run())


def test_reloads_leave_as_much_reserved_as_one_model_and_unloading_nothing(on_gpu):
    """Each reload needs room for both models until the first one is drained: 640 MB hold two, never three."""
    metrics = Metrics()

    async def run():
        given = settings(gpu_memory_mb=640)
        resources = Resources(given)
        registry = ServedModels(given, metrics, resources)
        await registry.load()
        (key,) = registry.served
        first = sizes(metrics)
        (path,) = registry.loader.configured()
        for _ in range(50):
            await registry.serve(path)
            await all_released()
            assert sizes(metrics) == first
        await registry.remove(key[0])
        await all_released()
        after = sizes(metrics)
        await registry.stop()
        resources.close()
        return after

    after = asyncio.run(run())
    assert (after["cuda:0", "weights"], after["cuda:0", "work"]) == (0, 0)
    assert len(on_gpu) == 51


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"device": "cpu"}, "devices cuda and auto"),
        ({"device": "cuda,tensorrt"}, "devices cuda and auto"),
        ({"backend": "torchscript", "allow_torchscript": True}, "backend onnx"),
        ({"gpu_memory_mb": 128}, "larger than decoding_cache_mb"),
        ({"gpu_memory_mb": 256, "workers": 2}, "for each of the workers"),
    ],
)
def test_limits_that_cannot_hold_are_refused(changes, problem):
    with pytest.raises(ValueError, match=problem):
        settings(**changes)
