"""`/metrics` on Ray Serve: a scrape reaches one replica, which asks all replicas of its application."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector
from ray import serve

__all__ = ["LABEL", "ReplicaMetrics", "merged"]

LABEL = "replica"
"""Label that tells the series of replicas apart; a replica that replaces another one has a new value."""
_ANSWER_TIMEOUT = 5.0
"""Seconds that replicas have to answer."""
_TIMEOUT = 7.0
"""Seconds after which a replica returns its own metrics alone: without the head, Ray may not find the others."""

logger = logging.getLogger("softserve")

Collected = tuple[str, list[Metric]]
"""The name of a replica and its metrics."""


class ReplicaMetrics:
    """The metrics of all replicas of an application, as one of them knows them."""

    def __init__(self, collect: Callable[[], Collected], method: str) -> None:
        """`collect` returns the metrics of this replica; it is the method `method` of all replicas."""
        self._collect, self._method = collect, method
        self._asking = ThreadPoolExecutor(1, "softserve-replicas")

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format: of this replica, and of others that answer in time."""
        found: dict[str, list[Metric]] = {}
        asked = self._asking.submit(self._ask)
        try:
            found = dict(asked.result(_TIMEOUT))
        except Exception as error:  # Ray's have no class in common
            asked.cancel()
            logger.warning("the metrics are those of one replica: %s", error or type(error).__name__)
        name, families = self._collect()
        return merged({**found, name: families})

    def _ask(self) -> Iterable[Collected]:
        context = serve.get_replica_context()
        handle = serve.get_deployment_handle(context.deployment, context.app_name)
        answers = handle.broadcast(self._method).results(timeout_s=_ANSWER_TIMEOUT, return_exceptions=True)
        for error in (answer for answer in answers if isinstance(answer, Exception)):
            logger.warning("the metrics lack a replica: %s", error or type(error).__name__)
        return [answer for answer in answers if not isinstance(answer, Exception)]


def merged(found: Mapping[str, Iterable[Metric]]) -> bytes:
    """Return the metrics of several replicas, by the replicas' names, in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Merged(found))
    return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, found: Mapping[str, Iterable[Metric]]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for replica, collected in self._found.items():
            for each in collected:
                family = families.setdefault(each.name, Metric(each.name, each.documentation, each.type, each.unit))
                family.samples += [s._replace(labels={**s.labels, LABEL: replica}) for s in each.samples]
        yield from families.values()
