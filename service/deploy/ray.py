"""The service on Ray Serve: each replica runs the whole service, with its own models, queues and batches.

A config file of Ray Serve names `service.deploy.ray:application`, and gives it `Arguments`. Ray distributes requests to
replicas and replaces them; batching, admission and deadlines stay those of the service. Needs the extra `ray`.
"""

import math
from typing import Annotated, Any

from prometheus_client import Metric
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingContext
from starlette.types import ASGIApp, Receive, Scope, Send

from models import ModelStore
from service.deploy.replica_administration import Answer, Question, ReplicaAdministration
from service.deploy.replica_metrics import ReplicaMetrics
from service.engine.memory import limit_heap
from service.engine.served_models import ServedModels
from service.observability.exposition import Exposition
from service.observability.metrics import Metrics
from service.server.app import create_app
from service.settings import Settings

__all__ = ["Arguments", "Replica", "ScaleOnWait", "application"]

_Json = dict[str, Any]
_QUEUED_BY_ROUTER = 256
"""Requests that a proxy keeps where every replica has as many as it accepts; more are refused with 429."""
_RETRY_AFTER = 1
"""Seconds."""
_SHUTDOWN_MARGIN = 10
"""Seconds in which an application that has answered all requests stops."""
_HEALTH_CHECK_SECONDS = 5
_UPSCALE_SECONDS, _DOWNSCALE_SECONDS = 10, 300
"""Seconds for which more, or fewer, replicas must be wanted before there are."""
_LOOK_BACK_SECONDS = 20
_LEAST_SHARE = 0.1
"""Least share of texts that is taken for admitted: at most ten times as many replicas at once."""


class Arguments(BaseModel):
    """The `args` of an application in a config file of Ray Serve."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    settings: _Json = {}
    """Settings of the service by name, such as `models` and `max_queue_items`; they take precedence over the
    environment of the nodes."""
    cpus: Annotated[int, Field(ge=1)] = 1
    """Processors of a replica; its models compute in as many threads."""
    gpus: Annotated[float, Field(ge=0)] = 0
    """GPUs of a replica, whose device is then `cuda`."""
    replicas: Annotated[int, Field(ge=1)] = 1
    """Replicas, or with `max_replicas` their least number."""
    max_replicas: Annotated[int, Field(ge=1)] | None = None
    """Largest number of replicas; they are added and removed by expected wait and refusals."""
    target_wait_seconds: Annotated[float, Field(gt=0)] = 1.0
    """Seconds that the queued work of a replica should take at most."""


def application(args: Arguments) -> Application:
    """Return the application of a group of models, for the `import_path` of a config file.

    Raises `ValueError` for settings that are unknown, wrong or have no effect here, and `UnknownModelError` and
    `FileNotFoundError` as `softserve serve` does.
    """
    given = {"threads": args.cpus, **({"device": "cuda"} if args.gpus else {}), **args.settings}
    settings = _checked(given)
    store = ModelStore(*settings.model_dirs)
    models = len([store.path(name) for name in settings.models] or {path.parent for path in store.paths()})
    number: _Json = {"num_replicas": args.replicas}
    if args.max_replicas is not None:
        number = {"autoscaling_config": _autoscaling(args)}
    deployment = serve.deployment(
        serve.ingress()(Replica),
        name="softserve",
        ray_actor_options={"num_cpus": args.cpus, "num_gpus": args.gpus},
        max_ongoing_requests=models * _most_requests(settings),
        max_queued_requests=_QUEUED_BY_ROUTER,
        backpressure_config={"status_code": 429, "retry_after_s": _RETRY_AFTER},
        health_check_period_s=_HEALTH_CHECK_SECONDS,
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=settings.drain_delay + settings.shutdown_timeout + _SHUTDOWN_MARGIN,
        **number,
    )
    return deployment.bind(given)


def _most_requests(settings: Settings) -> int:
    """Return how many requests a model can hold, each of a single text: queued ones and those of running batches."""
    devices = len(settings.device.split(","))
    return settings.max_queue_items + devices * settings.parallel_batches * settings.max_batch_items


def _autoscaling(args: Arguments) -> _Json:
    policy = {
        "policy_function": f"{ScaleOnWait.__module__}:{ScaleOnWait.__qualname__}",
        "policy_kwargs": {"target_wait_seconds": args.target_wait_seconds},
    }
    return {
        "min_replicas": args.replicas,
        "max_replicas": args.max_replicas,
        "upscale_delay_s": _UPSCALE_SECONDS,
        "downscale_delay_s": _DOWNSCALE_SECONDS,
        "look_back_period_s": _LOOK_BACK_SECONDS,
        "policy": policy,
    }


def _checked(given: _Json) -> Settings:
    """Return settings; raises `ValueError` for those that Ray Serve gives no effect."""
    if unknown := sorted(given.keys() - Settings.model_fields.keys()):
        raise ValueError(f"there are no settings {', '.join(unknown)}; docs/reference/settings.md lists them")
    settings = Settings(**given)
    if settings.workers > 1:
        raise ValueError("workers: a replica is one process; set replicas instead")
    if settings.grpc_port is not None:
        raise ValueError("grpc_port: Ray Serve passes HTTP on, not Open Inference over gRPC")
    return settings


class Replica:
    """The service in an actor of Ray Serve, which calls every method here."""

    def __init__(self, settings: _Json) -> None:
        self._settings = settings
        self._served_models: ServedModels | None = None
        self._metrics: Metrics | None = None
        self._administration: ReplicaAdministration | None = None
        self._counted = 0, 0

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Create the application; Ray starts it, which loads the models, before it sends requests."""
        limit_heap()
        app = create_app(_checked(self._settings), load_first=True)
        self._served_models, self._metrics = app.state.served_models, app.state.metrics
        app.state.exposition = Exposition(ReplicaMetrics(self.collect_metrics, "collect_metrics").text)
        if app.state.settings.admin_keys is not None:
            self._administration = ReplicaAdministration(app.state.engine, "answer_administrator")
            app.state.administration = self._administration
        return at_root(app)

    def check_health(self) -> None:
        """Raise an error where a model answers nothing any more, after which Ray replaces the replica."""
        if self._served_models is None:
            return
        if failed := self._served_models.failed_engines:
            raise RuntimeError(f"the engine of {', '.join(failed)} has failed")
        if stuck := self._served_models.stuck_models:
            raise RuntimeError(f"a computation of {', '.join(stuck)} does not return")
        if self._administration is not None and self._administration.outdated:
            raise RuntimeError("it has missed a change of an administrator")

    async def answer_administrator(self, question: Question) -> Answer | None:
        """Make the call of an administrator that another replica passes on."""
        return None if self._administration is None else await self._administration.answer(question)

    def collect_metrics(self) -> tuple[str, list[Metric]]:
        """Return the name of this replica and its metrics; the replica that answers a scrape calls it on all."""
        families = [] if self._metrics is None else list(self._metrics.registry.collect())
        return serve.get_replica_context().replica_tag, families

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the expected wait, and the share of texts that were refused since the last call, for `ScaleOnWait`."""
        batchers = [] if self._served_models is None else [each.batcher for each in self._served_models.served.values()]
        admitted, refused = sum(each.admitted for each in batchers), sum(each.refused for each in batchers)
        new_admitted, new_refused = admitted - self._counted[0], refused - self._counted[1]
        self._counted = admitted, refused
        return {
            "expected_wait_seconds": max((each.expected_wait for each in batchers), default=0.0),
            "refused_share": new_refused / max(1, new_admitted + new_refused),
        }


class ScaleOnWait:
    """Autoscaling policy: as many replicas as do the queued work in time, and more where texts were refused.

    Queue lengths would not do: a text that cannot be answered by its deadline is refused at once, so that queues stay
    short under overload.
    """

    def __init__(self, target_wait_seconds: float) -> None:
        self._target = target_wait_seconds

    def __call__(self, context: AutoscalingContext) -> tuple[int, _Json]:
        """Return the wanted number of replicas, within the bounds of the deployment, and no state."""
        metrics = context.aggregated_metrics or {}
        waits = metrics.get("expected_wait_seconds", {}).values()
        refused = list(metrics.get("refused_share", {}).values())
        share = sum(refused) / len(refused) if refused else 0.0
        running = max(1, context.current_num_replicas)
        wanted = max(math.ceil(sum(waits) / self._target), 1)
        if share > 0:
            wanted = max(wanted, math.ceil(running / max(1 - share, _LEAST_SHARE)))
        least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return min(max(wanted, least), most), {}


def at_root(app: ASGIApp) -> ASGIApp:
    """Return an application whose paths begin after the prefix under which it is mounted.

    It sends no `X-Request-ID`: Ray adds the same one.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without_id(message: Scope) -> None:
            if message["type"] == "http.response.start":
                headers = [pair for pair in message.get("headers", ()) if pair[0].lower() != b"x-request-id"]
                message = {**message, "headers": headers}
            await send(message)

        prefix = scope.get("root_path", "")
        if prefix and scope["path"].startswith(prefix):
            scope = {**scope, "root_path": "", "path": scope["path"][len(prefix) :] or "/"}
        await app(scope, receive, send_without_id)

    return call
