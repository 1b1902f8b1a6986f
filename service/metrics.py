"""Prometheus metrics. Labels never hold text, client addresses or keys."""

import contextlib
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from models import Manifest
from models.backend import Backend

__all__ = ["CONTENT_TYPE_LATEST", "Metrics", "ModelObserver"]

_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_COUNTS = tuple(float(2**power) for power in range(15))
_RATIOS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Metrics:
    """All metrics of one application, in a registry of their own so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def histogram(name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
            return Histogram(f"softserve_{name}", text, labels, buckets=buckets, registry=registry)

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
        self.queue_items = Gauge("softserve_queue_items", "Texts waiting", ["model"], registry=registry)
        self.queue_tokens = Gauge("softserve_queue_tokens", "Tokens waiting", ["model"], registry=registry)
        self.queue_limit_items = Gauge(
            "softserve_queue_limit_items", "Texts that may wait", ["model"], registry=registry
        )
        self.queue_limit_tokens = Gauge(
            "softserve_queue_limit_tokens", "Tokens that may wait", ["model"], registry=registry
        )
        self.generated_tokens = Counter(
            "softserve_generated_tokens", "Tokens of finished translations, ends included", ["model"], registry=registry
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
        self.model_info = Gauge(
            "softserve_model_info",
            "1 for each loaded model",
            ["model", "version", "task", "backend", "device"],
            registry=registry,
        )
        self.load_duration = histogram(
            "model_load_duration_seconds", "Loading and warming up", ["model"], (*_SECONDS, 30.0, 60.0)
        )

    def for_model(self, manifest: Manifest, backend: Backend) -> "ModelObserver":
        labels = (manifest.name, str(manifest.version), manifest.task, backend.name, backend.device)
        return ModelObserver(self, manifest.name, labels)

    def text(self) -> bytes:
        """The exposition format (Prometheus text format)."""
        return generate_latest(self.registry)


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
        with contextlib.suppress(KeyError):
            self._metrics.model_info.remove(*self._info)

    def limited(self, items: int, tokens: int) -> None:
        """How many texts and tokens may wait for the model."""
        self._metrics.queue_limit_items.labels(self._model).set(items)
        self._metrics.queue_limit_tokens.labels(self._model).set(tokens)

    def tokenized(self, seconds: float) -> None:
        self._tokenize_duration.observe(seconds)

    def queued(self, items: int, tokens: int) -> None:
        self._queue_items.set(items)
        self._queue_tokens.set(tokens)

    def batch(self, lengths: Sequence[int], waits: Sequence[float], seconds: float) -> None:
        tokens, padded = sum(lengths), max(lengths) * len(lengths)
        self._inference_duration.observe(seconds)
        self._batch_items.observe(len(lengths))
        self._batch_tokens.observe(tokens)
        self._padding_ratio.observe(1 - tokens / padded)
        for wait in waits:
            self._queue_duration.observe(wait)

    def prefixes(self, hits: int, misses: int) -> None:
        self._metrics.prefix_hits.labels(self._model).inc(hits)
        self._metrics.prefix_misses.labels(self._model).inc(misses)

    def rejected(self, reason: str, items: int) -> None:
        self._metrics.rejected.labels(self._model, reason).inc(items)

    def generated(self, tokens: int) -> None:
        self._metrics.generated_tokens.labels(self._model).inc(tokens)
