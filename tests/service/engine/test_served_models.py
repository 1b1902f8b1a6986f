import asyncio
import hashlib
import shutil
import time

import pytest
from onnxruntime import InferenceSession

from models import BundleError, UnknownModelError
from models.private_copy import verified_copy
from service.engine.batcher import Stopped
from service.engine.served_models import NotReady, ServedModels
from service.observability.metrics import Metrics
from service.settings import Settings
from tests.fixtures.bundled import DE_EN_VERSION, NEXT_WORD_VERSION


def with_registry(scenario, **settings):
    """Runs a scenario with a registry that is loaded."""

    async def run():
        models = ("next-word",) if "model_dirs" in settings else ("next-word:4",)  # of words: it is warm sooner
        defaults = {"threads": 1, "models": models, "parallel_batches": 1}  # one, for a short warm-up
        registry = ServedModels(Settings(**{**defaults, **settings}), Metrics())
        await registry.load()
        try:
            await scenario(registry)
        finally:
            await registry.stop()

    asyncio.run(run())


@pytest.fixture
def quick(library, monkeypatch):
    """Bundles load in no time: whatever the version, it is the library's model."""

    def load(bundle, **_):
        return type(library)(bundle.manifest, library._tokenizer, library.backend)

    def trial(bundle, directory, options, **_):
        return verified_copy(bundle, directory).path

    monkeypatch.setattr("service.engine.replicas.load_verified", load)
    monkeypatch.setattr("service.engine.loading.try_bundle", trial)


def test_nothing_is_served_before_it_is_loaded():
    registry = ServedModels(Settings(models=("next-word:4",)), Metrics())
    assert (registry.ready, dict(registry.served), registry.failure) == (False, {}, None)
    with pytest.raises(NotReady):
        registry.find(None, "next-word")
    with pytest.raises(NotReady):
        registry.find("next-word", "next-word")


def test_a_loaded_model_is_found_by_operation_and_name(library):
    version = library.manifest.version

    async def scenario(registry):
        assert registry.ready
        (served,) = registry.served.values()
        assert served.manifest == library.manifest
        for name in (None, "next-word", f"next-word:{version}"):
            assert registry.find(name, "next-word") is served

    with_registry(scenario)


@pytest.mark.parametrize("name", ["nope", "", "next-word:", "next-word:0", "../next-word", "NEXT-WORD"])
def test_unknown_names_name_the_known_ones(quick, library, name):
    async def scenario(registry):
        with pytest.raises(UnknownModelError) as caught:
            registry.find(name, "next-word")
        assert caught.value.known == (f"next-word:{library.manifest.version}",)

    with_registry(scenario)


@pytest.mark.parametrize("name", [None, "next-word"])
def test_a_model_is_not_found_for_an_operation_that_it_does_not_offer(quick, name):
    async def scenario(registry):
        with pytest.raises(UnknownModelError):
            registry.find(name, "translate")

    with_registry(scenario)


def test_the_newest_version_is_served(quick, two_versions):
    async def scenario(registry):
        assert [version for _, version in registry.served] == [9]
        with pytest.raises(UnknownModelError, match="known models: next-word:9"):
            registry.find("next-word:8", "next-word")

    with_registry(scenario, model_dirs=(two_versions,))


def test_versions_may_be_served_side_by_side(quick, two_versions):
    async def scenario(registry):
        assert registry.ready
        assert registry.find("next-word:8", "next-word").manifest.version == 8
        for name in ("next-word", "next-word:9", None):
            assert registry.find(name, "next-word").manifest.version == 9

    with_registry(scenario, model_dirs=(two_versions,), models=("next-word:8", "next-word:9"))


def test_a_model_that_is_named_twice_is_served_once(quick):
    async def scenario(registry):
        assert registry.ready
        assert len(registry.served) == 1

    with_registry(scenario, models=("next-word:4", "next-word:4"))


def test_the_digest_is_that_of_the_manifest(quick, two_versions):
    async def scenario(registry):
        (served,) = registry.served.values()
        data = (two_versions / "next-word/9/manifest.json").read_bytes()
        assert served.digest == hashlib.sha256(data).hexdigest()

    with_registry(scenario, model_dirs=(two_versions,))


def test_settings_become_the_limits_of_the_worker(quick):
    async def scenario(registry):
        bounds = registry.find(None, "next-word").batcher._queue.limits
        assert (bounds.max_batch_items, bounds.max_batch_tokens, bounds.max_delay) == (3, 30, 0.25)
        assert (bounds.max_queue_items, bounds.max_queue_tokens) == (5, 50)

    with_registry(
        scenario, max_batch_items=3, max_batch_tokens=30, max_delay_ms=250, max_queue_items=5, max_queue_tokens=50
    )


def test_a_served_model_answers_as_the_library(quick, library):
    async def scenario(registry):
        served = registry.find(None, "next-word")
        submit, text = served.batcher.submit, "thank you very"
        (words,), timing = await submit("next-word", [served.model.next_words_query(text, 4)], float("inf"))
        assert words.words == library.next_words([text], 4)[0].words
        assert timing.inference > 0
        (score,), _ = await submit("score", [served.model.score_query(text)], float("inf"))
        assert score == library.score([text])[0]

    with_registry(scenario)


def test_what_keeps_a_model_from_loading_is_kept_told_and_raised(broken_models):
    told = []

    async def run():
        registry = ServedModels(Settings(model_dirs=(broken_models,)), Metrics())
        registry.on_failure = lambda: told.append(registry.failure)
        with pytest.raises(BundleError, match=r"tokenizer\.json does not match its checksum"):
            await registry.load()
        assert not registry.ready
        await registry.stop()
        return registry.failure

    failure = asyncio.run(run())
    assert isinstance(failure, BundleError)
    assert told == [failure]


def test_a_missing_directory_and_an_unknown_name_are_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        ServedModels(Settings(model_dirs=(tmp_path / "nowhere",)), Metrics())
    with pytest.raises(UnknownModelError, match=f"known models: de-en:{DE_EN_VERSION}, intents:2, next-word:"):
        ServedModels(Settings(models=("nope",)), Metrics())


def test_a_stopped_registry_refuses_work(quick):
    async def run():
        registry = ServedModels(Settings(models=("next-word:4",)), Metrics())
        await registry.load()
        await registry.stop()
        served = registry.find(None, "next-word")
        with pytest.raises(Stopped):
            await served.batcher.submit("score", [served.model.score_query("a")], float("inf"))

    asyncio.run(run())


def test_several_devices_serve_one_model(library):
    async def scenario(registry):
        served = registry.find("next-word", "next-word")
        queries = [served.model.next_words_query("thank you very", 1) for _ in range(20)]
        answers = await asyncio.gather(
            *(served.batcher.submit("next-word", [query], time.monotonic() + 20) for query in queries)
        )
        assert {result.words[0].word for (result,), _ in answers} == {"much"}
        assert b'device="cpu,cpu"' in registry._metrics.text()

    with_registry(scenario, device="cpu,cpu", max_batch_items=2)


def test_concurrent_batches_are_warm_before_the_first_request(monkeypatch):
    ran = set()
    session_of = InferenceSession.run

    def run(session, *arguments):
        ran.add(id(session))
        return session_of(session, *arguments)

    monkeypatch.setattr(InferenceSession, "run", run)
    monkeypatch.setattr("models.backend.onnx.usable_cpus", lambda: 2)

    async def scenario(registry):
        backend = registry.find("intents", "classify").model.backend
        tables = backend._sessions, backend._concurrent_sessions
        assert tables[0] is not tables[1]
        assert {id(session) for table in tables for session in table.values()} <= ran

    with_registry(scenario, models=("intents",), threads=None, parallel_batches=2)


def counts(registry):
    """Models that are expected, and those of them that are ready."""
    read = registry._metrics.registry.get_sample_value
    return read("softserve_models_expected"), read("softserve_models_ready")


def test_expected_and_ready_models_are_counted(quick, two_versions):
    async def scenario(registry):
        assert counts(registry) == (1, 1)
        await registry.add("next-word:8")
        assert counts(registry) == (2, 2)
        await registry.remove("next-word:9")
        assert counts(registry) == (1, 1)

    with_registry(scenario, model_dirs=(two_versions,))


def test_without_models_at_the_start_the_first_one_that_an_administrator_loads_makes_it_ready(
    quick, two_versions, tmp_path
):
    (tmp_path / "keys").write_text("admin-key-of-some-length")
    (served := tmp_path / "served").mkdir()

    async def scenario(registry):
        assert not registry.ready
        with pytest.raises(NotReady):
            registry.find("next-word", "next-word")
        shutil.copytree(two_versions / "next-word", served / "next-word")
        await registry.add("next-word")
        assert registry.ready
        await registry.remove("next-word")
        assert registry.ready
        with pytest.raises(UnknownModelError):
            registry.find("next-word", "next-word")

    with_registry(scenario, model_dirs=(served,), admin_keys=tmp_path / "keys", models=())


def test_a_model_that_does_not_load_is_expected_and_not_ready(broken_models):
    async def run():
        registry = ServedModels(Settings(model_dirs=(broken_models,)), Metrics())
        with pytest.raises(BundleError):
            await registry.load()
        await registry.stop()
        return counts(registry)

    assert asyncio.run(run()) == (1, 0)


def test_a_model_whose_engine_has_failed_is_not_ready_until_it_is_loaded_again(quick, two_versions):
    async def scenario(registry):
        failed = registry.served["next-word", 9].batcher
        failed._task.cancel()
        await until(lambda: failed.failure)
        assert not registry.ready
        assert counts(registry) == (1, 0)
        await registry.add("next-word")
        assert registry.ready
        assert counts(registry) == (1, 1)

    with_registry(scenario, model_dirs=(two_versions,))


async def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


def test_the_heap_is_trimmed_when_a_model_is_gone(quick, two_versions, monkeypatch):
    asked = []

    async def scenario(registry):
        monkeypatch.setattr(registry.heap_trimmer, "request", lambda: asked.append(dict(registry.served)))
        await registry.remove("next-word")
        await until(lambda: asked)

    with_registry(scenario, model_dirs=(two_versions,))
    assert asked == [{}]


def test_a_model_of_which_a_computation_does_not_return_is_not_ready_until_it_does(quick):
    async def scenario(registry):
        computations = registry.served["next-word", int(NEXT_WORD_VERSION)].batcher.computations
        computations._count_stuck(1)
        assert registry.obstacle == f"a computation does not return of next-word:{NEXT_WORD_VERSION}"
        assert counts(registry) == (1, 0)
        computations._count_stuck(-1)
        assert registry.ready
        assert counts(registry) == (1, 1)

    with_registry(scenario)


def test_a_model_that_is_stuck_can_be_loaded_again(quick, two_versions):
    async def scenario(registry):
        registry.served["next-word", 9].batcher.computations._count_stuck(1)
        assert not registry.ready
        await registry.add("next-word")
        assert registry.ready
        assert counts(registry) == (1, 1)
        await until(lambda: not registry._draining)

    with_registry(scenario, model_dirs=(two_versions,))
