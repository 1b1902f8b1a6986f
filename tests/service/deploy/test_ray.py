"""The application of Ray Serve and its scaling, without a cluster."""

import asyncio
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from service.deploy.ray import Arguments, Replica, ScaleOnWait, application, at_root
from service.settings import Settings


def options(**arguments):
    deployment = application(Arguments(**arguments))._bound_deployment
    return deployment, deployment._deployment_config


def test_a_replica_may_hold_as_many_requests_as_the_engine():
    settings = Settings()
    held = settings.max_queue_items + settings.parallel_batches * settings.max_batch_items
    for models in (["intents"], ["intents", "next-word"]):
        _, config = options(settings={"models": models})
        assert config.max_ongoing_requests == len(models) * held


def test_requests_beyond_that_are_refused_with_429_and_retry_after():
    _, config = options(settings={"models": ["intents"]})
    assert config.max_queued_requests > 0
    assert config.backpressure_config.status_code == 429
    assert config.backpressure_config.retry_after_s >= 1


def test_ray_waits_for_as_long_as_the_service_drains():
    _, config = options(settings={"models": ["intents"], "shutdown_timeout": 50, "drain_delay": 5})
    assert config.graceful_shutdown_timeout_s > 55


@pytest.mark.parametrize(
    ("given", "device", "threads"), [({}, "cpu", 1), ({"cpus": 4}, "cpu", 4), ({"gpus": 1}, "cuda", 1)]
)
def test_a_replica_computes_on_what_ray_gives_it(given, device, threads):
    deployment, _ = options(settings={"models": ["intents"]}, **given)
    (settings,) = deployment.init_args
    assert (settings.get("device", "cpu"), settings["threads"]) == (device, threads)
    resources = deployment.ray_actor_options
    assert (resources["num_cpus"], resources.get("num_gpus", 0)) == (given.get("cpus", 1), given.get("gpus", 0))


def test_a_replica_answers_at_its_path_and_reports_its_load():
    replica = Replica({"models": ["intents"], "threads": 1, "max_wait_ms": 1e-6, "parallel_batches": 1})
    replica.check_health()
    assert replica.record_autoscaling_stats() == {"expected_wait_seconds": 0, "refused_share": 0}
    with TestClient(at_root(replica.__serve_build_asgi_app__()), root_path="") as client:
        assert client.get("/readyz").status_code == 200
        assert client.post("/v1/classify", json={"text": "play some music"}).status_code == 200
        replica.check_health()
        assert replica.record_autoscaling_stats()["refused_share"] == 0
        (served,) = replica._served_models.served.values()
        served.batcher.refused += 3
        served.batcher.admitted += 1
        assert replica.record_autoscaling_stats()["refused_share"] == 0.75
        assert replica.record_autoscaling_stats()["refused_share"] == 0
        served.batcher.failure = RuntimeError("it has ended")
        with pytest.raises(RuntimeError, match="intents"):
            replica.check_health()
        served.batcher.failure = None
        served.batcher.computations._count_stuck(1)
        with pytest.raises(RuntimeError, match="a computation of intents:2 does not return"):
            replica.check_health()
        served.batcher.computations._count_stuck(-1)
        replica.check_health()


def test_paths_begin_after_the_prefix_of_the_application():
    seen = []

    async def app(scope, receive, send):
        seen.append((scope["root_path"], scope["path"]))

    for root, path in (("", "/v1/score"), ("/lm", "/lm/v1/score"), ("/lm", "/lm")):
        asyncio.run(at_root(app)({"type": "http", "root_path": root, "path": path}, None, None))
    assert seen == [("", "/v1/score"), ("", "/v1/score"), ("", "/")]


def wanted(waits, refused=(), running=2, bounds=(1, 8), target=1.0):
    by_replica = [dict(enumerate(values)) for values in (waits, refused)]
    context = SimpleNamespace(
        aggregated_metrics=dict(zip(("expected_wait_seconds", "refused_share"), by_replica, strict=True)),
        current_num_replicas=running,
        capacity_adjusted_min_replicas=bounds[0],
        capacity_adjusted_max_replicas=bounds[1],
    )
    return ScaleOnWait(target)(context)[0]


def test_replicas_follow_the_expected_wait_and_refusals():
    assert wanted([0.1, 0.1]) == 1
    assert wanted([0.9, 0.9]) == 2
    assert wanted([2.5, 2.5]) == 5
    assert wanted([20, 20]) == 8, "the largest number"
    assert wanted([0, 0], bounds=(2, 8)) == 2, "the least number"
    assert wanted([0.2, 0.2], [0.5, 0.5]) == 4, "half of the texts were refused"
    assert wanted([0.2, 0.2], [0.01, 0]) == 3, "a refusal asks for one more"
    assert wanted([0.2, 0.2], [1.0, 1.0]) == 8
    assert wanted([]) == 1, "nothing is known yet"
