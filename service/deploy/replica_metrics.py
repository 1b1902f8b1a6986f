"""`/metrics` on Ray Serve: a scrape reaches one replica, which asks all replicas of its application."""

import logging
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector
from ray import serve

__all__ = ["LABEL", "merged", "text_of_all_replicas"]

LABEL = "replica"
"""Label that tells the series of replicas apart; a replica that replaces another one has a new value."""
_TIMEOUT = 5.0
"""Seconds that replicas have to answer."""

logger = logging.getLogger("softserve")

Collected = tuple[str, list[Metric]]
"""The name of a replica and its metrics."""


def text_of_all_replicas(method: str) -> bytes:
    """Return the metrics of all replicas in Prometheus' text format; call it in a replica, outside its event loop.

    `method` is the replica's method that returns `Collected`. A replica that fails to answer is left out. Raises
    `TimeoutError` if one takes too long.
    """
    context = serve.get_replica_context()
    handle = serve.get_deployment_handle(context.deployment, context.app_name)
    found: dict[str, list[Metric]] = {}
    for answer in handle.broadcast(method).results(timeout_s=_TIMEOUT, return_exceptions=True):
        if isinstance(answer, Exception):
            logger.warning("a replica did not return its metrics: %s", answer)
        else:
            name, families = answer
            found[name] = families
    return merged(found)


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
