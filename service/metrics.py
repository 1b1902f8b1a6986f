"""Prometheus metrics. Labels never hold text, client addresses or keys.

Where several processes serve, each writes its numbers into files of a directory (`PROMETHEUS_MULTIPROC_DIR`, see
prometheus-client), and whichever is asked sums them up.
"""

import contextlib
import functools
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from models import Manifest
from models.backend import Backend

__all__ = ["CONTENT_TYPE_LATEST", "PROCESSES", "Metrics", "ModelObserver"]

PROCESSES = "processes.json"
"""File beside those of prometheus-client: which processes there are."""

_REPLACED, _REPLACED_TEXT = "softserve_workers_replaced", "Processes that ended and were replaced"
_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_COUNTS = tuple(float(2**power) for power in range(15))
_RATIOS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Metrics:
    """All metrics of one application, in a registry of their own so that several can live in one process."""

    def __init__(self) -> None:
        self._several = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self.registry = registry = CollectorRegistry()

        def histogram(name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
            return Histogram(f"softserve_{name}", text, labels, buckets=buckets, registry=registry)

        def gauge(
            name: str, text: str, labels: Sequence[str], over_processes: Literal["livesum", "livemax"] = "livesum"
        ) -> Gauge:
            return Gauge(f"softserve_{name}", text, labels, multiprocess_mode=over_processes, registry=registry)

        self.requests = Counter(
            "softserve_requests", "Answered requests", ["model", "endpoint", "status"], registry=registry
        )
        self.request_duration = histogram(
            "request_duration_seconds", "From first byte read to last byte sent", ["model", "endpoint"], _SECONDS
        )
        self.tokenize_duration = histogram(
            "tokenize_duration_seconds", "Checking and tokenizing one request", ["model"], _SECONDS
        )
        self.queue_duration = histogram("queue_duration_seconds", "Waiting time of one text", ["model"], _SECONDS)
        self.inference_duration = histogram("inference_duration_seconds", "One batch", ["model"], _SECONDS)
        self.batch_items = histogram("batch_items", "Texts in a batch", ["model"], _COUNTS)
        self.batch_tokens = histogram("batch_tokens", "Tokens in a batch, without padding", ["model"], _COUNTS)
        self.padding_ratio = histogram("batch_padding_ratio", "Padded share of a batch", ["model"], _RATIOS)
        self.queue_items = gauge("queue_items", "Texts waiting", ["model"])
        self.queue_tokens = gauge("queue_tokens", "Tokens waiting", ["model"])
        self.queue_limit_items = gauge("queue_limit_items", "Texts that may wait", ["model"])
        self.queue_limit_tokens = gauge("queue_limit_tokens", "Tokens that may wait", ["model"])
        self.generated_tokens = Counter(
            "softserve_generated_tokens", "Tokens of finished translations, ends included", ["model"], registry=registry
        )
        self.engine_failures = Counter(
            "softserve_engine_failures", "Engine tasks that died", ["model"], registry=registry
        )
        self.rejected = Counter("softserve_rejected", "Refused texts", ["model", "reason"], registry=registry)
        self.prefix_hits = Counter(
            "softserve_prefix_cache_hits",
            "Contexts that went on from what was read before",
            ["model"],
            registry=registry,
        )
        self.prefix_misses = Counter(
            "softserve_prefix_cache_misses", "Contexts that were read from the start", ["model"], registry=registry
        )
        self.model_info = gauge(
            "model_info", "1 for each loaded model", ["model", "version", "task", "backend", "device"], "livemax"
        )
        self.load_duration = histogram(
            "model_load_duration_seconds", "Loading and warming up", ["model"], (*_SECONDS, 30.0, 60.0)
        )
        if not self._several:
            ProcessCollector(registry=registry)
            Counter(_REPLACED, _REPLACED_TEXT, registry=registry)  # there is nothing to replace

    def for_model(self, manifest: Manifest, backends: Sequence[Backend]) -> "ModelObserver":
        """Of a model that is held by one backend for each device."""
        devices = ",".join(backend.device for backend in backends)
        labels = (manifest.name, str(manifest.version), manifest.task, backends[0].name, devices)
        return ModelObserver(self, manifest.name, labels)

    def forget(self, info: Sequence[str]) -> None:
        """A model is not loaded any more. Where processes share their files, nothing can be taken out of these."""
        if self._several:
            self.model_info.labels(*info).set(0)
        else:
            with contextlib.suppress(KeyError):
                self.model_info.remove(*info)

    def text(self) -> bytes:
        """The exposition format (Prometheus text format)."""
        if not self._several:
            return generate_latest(self.registry)
        all_processes = CollectorRegistry()
        MultiProcessCollector(all_processes)  # type: ignore[no-untyped-call]
        all_processes.register(_Processes())
        return generate_latest(all_processes)


class _Processes(Collector):
    """What prometheus-client tells of a process, summed over the supervisor and its processes.

    Time that they computed stays when one ends, and the start is the supervisor's.
    """

    def collect(self) -> Iterable[Metric]:
        try:
            known = json.loads((Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]) / PROCESSES).read_text(encoding="ascii"))
        except OSError:  # another supervisor than ours
            return
        sums: dict[str, Metric] = {}
        for pid in (known["supervisor"], *known["workers"]):
            for family in ProcessCollector(pid=functools.partial(int, pid), registry=None).collect():
                kept = sums.setdefault(family.name, family)
                if kept is not family:
                    kept.samples = [_both(*pair) for pair in zip(kept.samples, family.samples, strict=True)]
        yield from (family for family in sums.values() if family.name != "process_cpu_seconds")
        if "process_cpu_seconds" in sums:
            (sample,) = sums["process_cpu_seconds"].samples
            computed = sample.value + _ended(known["supervisor"])
            yield CounterMetricFamily("process_cpu_seconds", sums["process_cpu_seconds"].documentation, computed)
        yield CounterMetricFamily(_REPLACED, _REPLACED_TEXT, known["replaced"])


def _both(one: Sample, other: Sample) -> Sample:
    """A limit is the same for all, and the first is the supervisor."""
    kept = ("process_max_fds", "process_start_time_seconds")
    return one if one.name in kept else one._replace(value=one.value + other.value)


def _ended(pid: int) -> float:
    """Seconds computed by children of a process that have ended (Linux: `cutime` and `cstime` of proc(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


class ModelObserver:
    """The metrics of one model; the `Observer` of its worker."""

    def __init__(self, metrics: Metrics, model: str, info: Sequence[str]) -> None:
        self._metrics = metrics
        self._model = model
        self._info = info
        self._tokenize_duration = metrics.tokenize_duration.labels(model)
        self._queue_duration = metrics.queue_duration.labels(model)
        self._inference_duration = metrics.inference_duration.labels(model)
        self._batch_items = metrics.batch_items.labels(model)
        self._batch_tokens = metrics.batch_tokens.labels(model)
        self._padding_ratio = metrics.padding_ratio.labels(model)
        self._queue_items = metrics.queue_items.labels(model)
        self._queue_tokens = metrics.queue_tokens.labels(model)

    def loaded(self, seconds: float) -> None:
        self._metrics.load_duration.labels(self._model).observe(seconds)
        self._metrics.model_info.labels(*self._info).set(1)

    def unloaded(self) -> None:
        """No version of these labels is served any more."""
        self._metrics.forget(self._info)

    def tokenized(self, seconds: float) -> None:
        self._tokenize_duration.observe(seconds)

    def limited(self, items: int, tokens: int) -> None:
        """What may wait at most."""
        self._metrics.queue_limit_items.labels(self._model).set(items)
        self._metrics.queue_limit_tokens.labels(self._model).set(tokens)

    def queued(self, items: int, tokens: int) -> None:
        self._queue_items.set(items)
        self._queue_tokens.set(tokens)

    def batch(self, lengths: Sequence[int], waits: Sequence[float]) -> None:
        """Note a batch: the texts that are computed together, or that join a decoding in one step."""
        tokens, padded = sum(lengths), max(lengths) * len(lengths)
        self._batch_items.observe(len(lengths))
        self._batch_tokens.observe(tokens)
        self._padding_ratio.observe(1 - tokens / padded)
        for wait in waits:
            self._queue_duration.observe(wait)

    def computed(self, seconds: float) -> None:
        """Note how long a batch took; of sequences that are decoded, each one from joining to its end."""
        self._inference_duration.observe(seconds)

    def prefixes(self, hits: int, misses: int) -> None:
        self._metrics.prefix_hits.labels(self._model).inc(hits)
        self._metrics.prefix_misses.labels(self._model).inc(misses)

    def rejected(self, reason: str, items: int) -> None:
        self._metrics.rejected.labels(self._model, reason).inc(items)

    def failed(self) -> None:
        """Note that the engine task of the model has died."""
        self._metrics.engine_failures.labels(self._model).inc()

    def generated(self, tokens: int) -> None:
        self._metrics.generated_tokens.labels(self._model).inc(tokens)
