"""A model is loaded and warmed up once for each device."""

import pytest

from models import BundleError
from models.reading import verify
from service.engine.replicas import load_replicas
from tests.fixtures.bundled import NEXT_WORD
from tests.service.engine.test_trial import OPTIONS


def test_each_device_has_a_model_and_the_times_of_its_batches():
    models, measured = load_replicas(verify(NEXT_WORD), OPTIONS.model_copy(update={"devices": ("cpu", "cpu")}))
    assert [model.manifest.name for model in models] == ["next-word", "next-word"]
    assert models[0] is not models[1]
    for samples in measured:
        assert set(samples) == set(models[0].batch_functions)
        assert {each.items for each in samples["next-word"]} == {1, 4}


def test_options_reach_the_backend():
    (model,), _ = load_replicas(verify(NEXT_WORD), OPTIONS.model_copy(update={"threads": 2, "parallel_batches": 2}))
    assert model.backend.parallel == 2


def test_a_model_that_is_large_for_the_memory_has_its_weights_once(monkeypatch):
    size = sum(file.stat().st_size for file in NEXT_WORD.iterdir())
    for available, parallel in ((4 * size, 2), (4 * size - 1, 1)):
        monkeypatch.setattr("service.engine.replicas.available_memory", lambda available=available: available)
        (model,), _ = load_replicas(verify(NEXT_WORD), OPTIONS.model_copy(update={"threads": 2, "parallel_batches": 2}))
        assert model.backend.parallel == parallel


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("no"), BaseException("a panic")])
def test_a_failure_of_the_warm_up_is_one_of_the_bundle(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("service.engine.replicas.warm_up", fail)
    with pytest.raises(BundleError, match=f"its warm-up failed: {type(error).__name__}"):
        load_replicas(verify(NEXT_WORD), OPTIONS)
