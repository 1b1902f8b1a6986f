"""Prometheus metrics. Labels never hold text, client addresses or keys.

Where several processes serve, each writes its numbers into files of a directory (`PROMETHEUS_MULTIPROC_DIR`, see
prometheus-client), and the process that answers a scrape sums them up.
"""

import functools
import itertools
import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from models import Manifest
from models.backend import Backend

__all__ = ["CONTENT_TYPE_LATEST", "LOAD_FAILURES", "PROCESSES", "Metrics", "ModelObserver"]

PROCESSES = "processes.json"
"""File that lists the processes, in the directory of prometheus-client's files."""

_REPLACED, _REPLACED_TEXT = "softserve_workers_replaced", "Processes that ended and were replaced"
_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_COUNTS = tuple(float(2**power) for power in range(15))
_RATIOS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_OverProcesses = Literal["livesum", "livemax", "livemin"]

LOAD_FAILURES = ("invalid", "timeout", "memory", "crash")
"""Reasons why a model did not load."""

_INFO = ("model", "version", "task", "backend", "device")
"""Labels of `softserve_model_info`, of which all series of a model have the first two."""


class CountedHistogram(Histogram):
    """A histogram that takes equal values together: a request may have hundreds of texts, which waited equally long."""

    def add(self, amount: float, count: int = 1) -> None:
        """Observe an amount so many times, which takes as long as once."""
        self._sum.inc(amount * count)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(count)


class Metrics:
    """All metrics of one application, in a registry of their own so that several can live in one process."""

    def __init__(self) -> None:
        self._several = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self.registry = registry = CollectorRegistry()

        def histogram(name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> CountedHistogram:
            return CountedHistogram(f"softserve_{name}", text, labels, buckets=buckets, registry=registry)

        def gauge(name: str, text: str, labels: Sequence[str], over_processes: _OverProcesses = "livesum") -> Gauge:
            return Gauge(f"softserve_{name}", text, labels, multiprocess_mode=over_processes, registry=registry)

        def counter(name: str, text: str, labels: Sequence[str]) -> Counter:
            return Counter(f"softserve_{name}", text, labels, registry=registry)

        by_endpoint, by_model = ("model", "endpoint"), ("model", "version")
        self.requests = counter(
            "requests",
            "Requests that were answered; deadline is short where the request missed one that is shorter than an "
            "answer takes while nothing else is computed",
            (*by_endpoint, "status", "deadline"),
        )
        self.request_duration = histogram(
            "request_duration_seconds",
            "Time from the first byte of a request to the last byte of its response, without the time that its client "
            "took to send and to read them",
            by_endpoint,
            _SECONDS,
        )
        self.tokenize_duration = histogram(
            "tokenize_duration_seconds", "Time to check and tokenize the texts of one request", by_model, _SECONDS
        )
        self.queue_duration = histogram(
            "queue_duration_seconds", "Time that one text waited in the queue", by_model, _SECONDS
        )
        self.inference_duration = histogram(
            "inference_duration_seconds",
            "Time of one batch in the model, or of one decoded sequence, from joining to its end",
            by_model,
            _SECONDS,
        )
        self.batch_items = histogram("batch_items", "Texts in a batch", by_model, _COUNTS)
        self.batch_tokens = histogram("batch_tokens", "Tokens in a batch, without padding", by_model, _COUNTS)
        self.padding_ratio = histogram("batch_padding_ratio", "Fraction of a batch that is padding", by_model, _RATIOS)
        self.queue_items = gauge("queue_items", "Texts in the queue", by_model)
        self.queue_tokens = gauge("queue_tokens", "Tokens in the queue", by_model)
        self.queue_limit_items = gauge("queue_limit_items", "Texts that the queue may hold", by_model)
        self.queue_limit_tokens = gauge("queue_limit_tokens", "Tokens that the queue may hold", by_model)
        self.generated_tokens = counter("generated_tokens", "Tokens of finished sequences, ends included", by_model)
        self.rejected = counter("rejected", "Texts that were refused; without a model, bodies", (*by_model, "reason"))
        self.engine_failures = counter("engine_failures", "Engine tasks that ended with an error", by_model)
        self.computation_timeouts = counter(
            "computation_timeouts", "Batches, decoding steps and preparations that were interrupted", by_model
        )
        self.stuck_computations = gauge("stuck_computations", "Of these, those that do not return", by_model)
        self.prefix_hits = counter("prefix_cache_hits", "Contexts that continued from a cached prefix", by_model)
        self.prefix_misses = counter("prefix_cache_misses", "Contexts that were read from the start", by_model)
        self.result_cache_inputs = counter(
            "result_cache_inputs",
            "Inputs of operations whose results are cached: hit, miss, or collapsed with one that was being computed",
            (*by_model, "outcome"),
        )
        self.result_cache_bytes = gauge("result_cache_bytes", "Memory of the cache of results", ())
        self.load_duration = histogram(
            "model_load_duration_seconds", "Time to load and warm up a model", by_model, (*_SECONDS, 30.0, 60.0)
        )
        self.batch_cost = gauge(
            "batch_cost_seconds",
            "Measured cost of a batch: fixed, of each item, of each token (padding included)",
            (*by_model, "operation", "device", "term"),
            "livemax",
        )
        self.device_memory = gauge(
            "device_memory_bytes",
            "Memory of a GPU by kind: the limit, and its parts reserved for weights, work and decoding_cache",
            ("device", "kind"),
        )
        self.model_info = gauge("model_info", "1 for each loaded model", _INFO, "livemax")
        self.models_expected = gauge("models_expected", "Models that are to be served", (), "livemax")
        self.models_ready = gauge(
            "models_ready",
            "Models of these that are loaded, and whose engine has not failed and is not stuck",
            (),
            "livemin",
        )
        self.load_failures = counter("model_load_failures", "Models that did not load", ("reason",))
        for reason in LOAD_FAILURES:
            self.load_failures.labels(reason)
        self.bundle_problems = gauge(
            "bundle_problems",
            "Entries of the model directories that do not load or cannot be read",
            (),
            "livemax",
        )
        self.key_requests = counter("key_requests", "Requests to models with an API key, by its name", ("key",))
        self.key_texts = counter("key_texts", "Texts of these requests", ("key",))
        self.key_characters = counter("key_characters", "Characters of these texts", ("key",))
        self.key_refused = counter(
            "key_refused", "Requests that were refused for a limit of their API key", ("key", "limit")
        )
        by_experiment = ("experiment",)
        self.experiment_info = gauge("experiment_info", "1 for each running experiment", by_experiment, "livemax")
        self.experiment_inputs = counter(
            "experiment_inputs",
            "Inputs of a shadow: answers that agree or disagree, compared where answers are numbers, failed, shed",
            (*by_experiment, "outcome"),
        )
        self.experiment_requests = counter(
            "experiment_requests", "Requests of a canary that each side has answered", (*by_experiment, "side")
        )
        self.experiment_duration = histogram(
            "experiment_inference_seconds", "Time of one request in the model", (*by_experiment, "side"), _SECONDS
        )
        self.loop_lag = histogram("event_loop_lag_seconds", "Delay of a timer of the event loop", (), _SECONDS)
        self._current: dict[tuple[str, str], ModelObserver] = {}
        self._counted: dict[tuple[str, str, int, bool], Counter] = {}
        """The series that requests are counted in, by model, endpoint, status and whether the deadline was short."""
        self._timed: dict[tuple[str, str], CountedHistogram] = {}
        """The series of their durations, by model and endpoint."""
        self._by_model = (
            *(self.tokenize_duration, self.queue_duration, self.inference_duration, self.load_duration),
            *(self.batch_items, self.batch_tokens, self.padding_ratio, self.generated_tokens),
            *(self.queue_items, self.queue_tokens, self.queue_limit_items, self.queue_limit_tokens),
            *(self.rejected, self.engine_failures, self.prefix_hits, self.prefix_misses),
            self.result_cache_inputs,
            *(self.computation_timeouts, self.stuck_computations),
        )
        if not self._several:
            ProcessCollector(registry=registry)
            Counter(_REPLACED, _REPLACED_TEXT, registry=registry)  # there is nothing to replace

    def count(
        self, model: str, endpoint: str, status: int, seconds: float | None = None, *, short_deadline: bool = False
    ) -> None:
        """Count a request that was answered; `model` is "" where none was found."""
        key = model, endpoint, status, short_deadline
        if key not in self._counted:
            deadline = "short" if short_deadline else ""
            self._counted[key] = self.requests.labels(model, endpoint, str(status), deadline)
        self._counted[key].inc()
        if seconds is not None:
            if key[:2] not in self._timed:
                self._timed[key[:2]] = self.request_duration.labels(model, endpoint)
            self._timed[key[:2]].add(seconds)

    def for_model(self, manifest: Manifest, backends: Sequence[Backend]) -> "ModelObserver":
        """Return the observer of a model that one backend for each device holds.

        It takes over the series of the observer that the same name and version had before.
        """
        devices = ",".join(backend.device for backend in backends)
        info = (manifest.name, str(manifest.version), manifest.task, backends[0].name, devices)
        observer = self._current[info[:2]] = ModelObserver(self, info)
        return observer

    def forget(self, observer: "ModelObserver") -> None:
        """Remove the series of a model that is unloaded, except those that an observer after it took over.

        Series by endpoint go with the last version of a name. Where processes share their files nothing can be removed
        from these: gauges are set to 0 there, and `text` leaves out what belongs to no loaded model.
        """
        current = self._current.get(observer.key)
        taken_over = current is not None and current is not observer
        if current is None or current is observer or current.info != observer.info:
            self._remove([self.model_info], _labels(observer.info))
        if taken_over:
            return
        self._current.pop(observer.key, None)
        self._remove(self._by_model, _labels(observer.key))
        if not self._several:
            self._remove([self.batch_cost], _labels(observer.key))
        name = observer.key[0]
        if all(name != known for known, _ in self._current):
            self._remove([self.requests, self.request_duration], {"model": name})
            self._counted.clear()
            self._timed.clear()

    def forget_key(self, name: str) -> None:
        """Remove the series of an API key that is gone; those of files that processes share stay."""
        self._remove([self.key_requests, self.key_texts, self.key_characters, self.key_refused], {"key": name})

    def forget_experiment(self, name: str) -> None:
        """Remove the series of an experiment that has ended."""
        series = self.experiment_info, self.experiment_inputs, self.experiment_requests, self.experiment_duration
        self._remove(series, {"experiment": name})

    def _remove(self, metrics: Iterable[MetricWrapperBase], labels: Mapping[str, str]) -> None:
        for metric in metrics:
            if not self._several:
                metric.remove_by_labels(dict(labels))
            elif isinstance(metric, Gauge):
                metric.labels(**labels).set(0)

    def text(self) -> bytes:
        """Return the metrics in Prometheus text format."""
        if not self._several:
            return generate_latest(self.registry)
        all_processes = CollectorRegistry()
        MultiProcessCollector(all_processes)  # type: ignore[no-untyped-call]
        all_processes.register(_Processes())
        return generate_latest(_Current(all_processes))


class _Current(Collector):
    """The families of another collector, without series of models and experiments that no process has.

    Files that processes share keep them; a model that is loaded again goes on counting from there, and so does an
    experiment of the same name.
    """

    def __init__(self, everything: CollectorRegistry) -> None:
        self._everything = everything

    def collect(self) -> Iterator[Metric]:
        families = list(self._everything.collect())
        infos = [info.labels for info in _shown("softserve_model_info", families)]
        versions = {(labels["model"], labels["version"]) for labels in infos}
        # A request that names no model has an empty label; series by endpoint have no version.
        models = {("", None), *((name, None) for name, _ in versions), *versions}
        experiments = {"", *(info.labels["experiment"] for info in _shown("softserve_experiment_info", families))}
        for family in families:
            family.samples = [
                sample
                for sample in family.samples
                if _model_of(sample) in models and sample.labels.get("experiment", "") in experiments
            ]
            yield family


def _shown(name: str, families: Iterable[Metric]) -> list[Sample]:
    """Return the samples of a gauge that are not 0."""
    return [sample for family in families if family.name == name for sample in family.samples if sample.value]


def _model_of(sample: Sample) -> tuple[str, str | None]:
    """Return the name and version that a sample is of; an empty name where it is of none."""
    return sample.labels.get("model", ""), sample.labels.get("version")


class _Processes(Collector):
    """The process metrics of prometheus-client, summed over the supervisor and its processes.

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
    """Return the sum of two samples; limits are equal, and the start time is the supervisor's."""
    kept = ("process_max_fds", "process_start_time_seconds")
    return one if one.name in kept else one._replace(value=one.value + other.value)


def _ended(pid: int) -> float:
    """Return the processor time of ended children of a process (Linux: `cutime` and `cstime` of proc(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def _labels(values: Sequence[str]) -> dict[str, str]:
    """Return the labels that an observer's `key` or `info` stands for."""
    return dict(zip(_INFO, values, strict=False))


class ModelObserver:
    """The metrics of one model; the `Observer` of its worker."""

    def __init__(self, metrics: Metrics, info: Sequence[str]) -> None:
        """`info` has the labels of `model_info`: name, version, task, backend and device."""
        self._metrics = metrics
        self.info = tuple(info)
        self.key = key = info[0], info[1]
        self.on_change: Callable[[], object] = lambda: None
        """Called when an engine task has died, and when a computation is stuck or has returned after all."""
        self._waiting, self._stuck, self._loaded = (0, 0), 0, True
        self._tokenize_duration = metrics.tokenize_duration.labels(*key)
        self._queue_duration = metrics.queue_duration.labels(*key)
        self._inference_duration = metrics.inference_duration.labels(*key)
        self._batch_items = metrics.batch_items.labels(*key)
        self._batch_tokens = metrics.batch_tokens.labels(*key)
        self._padding_ratio = metrics.padding_ratio.labels(*key)
        self._queue_items = metrics.queue_items.labels(*key)
        self._queue_tokens = metrics.queue_tokens.labels(*key)
        self._failures = metrics.engine_failures.labels(*key)
        self._timeouts = metrics.computation_timeouts.labels(*key)
        self._stuck_computations = metrics.stuck_computations.labels(*key)

    def loaded(self, seconds: float) -> None:
        self._metrics.load_duration.labels(*self.key).observe(seconds)
        self._metrics.model_info.labels(*self.info).set(1)

    def unloaded(self) -> None:
        """Remove the series of the model, except those that a model loaded in its place has taken over."""
        self.queued(0, 0)
        self.stuck_computations(0)
        self._loaded = False
        self._metrics.forget(self)

    def tokenized(self, seconds: float) -> None:
        self._tokenize_duration.add(seconds)

    def limited(self, items: int, tokens: int) -> None:
        """Report how many texts and tokens may wait."""
        self._metrics.queue_limit_items.labels(*self.key).set(items)
        self._metrics.queue_limit_tokens.labels(*self.key).set(tokens)

    def queued(self, items: int, tokens: int) -> None:
        """Report the size of the queue. While a model is loaded again, its gauges are the sum over two queues."""
        before_items, before_tokens = self._waiting
        self._waiting = (items, tokens)
        self._queue_items.inc(items - before_items)
        self._queue_tokens.inc(tokens - before_tokens)

    def batch(self, lengths: Sequence[int], waits: Sequence[float]) -> None:
        """Note a batch: the texts that are computed together, or that join a decoding in one step."""
        tokens, padded = sum(lengths), max(lengths) * len(lengths)
        self._batch_items.add(len(lengths))
        self._batch_tokens.add(tokens)
        self._padding_ratio.add(1 - tokens / padded)
        for wait, equal in itertools.groupby(waits):  # those of a request follow each other
            self._queue_duration.add(wait, len(list(equal)))

    def computed(self, seconds: float) -> None:
        """Note how long a batch took; of sequences that are decoded, each one from joining to its end."""
        self._inference_duration.add(seconds)

    def failed(self) -> None:
        """Count an engine task that has died."""
        self._failures.inc()
        self.on_change()

    def computation_timed_out(self) -> None:
        """Count a computation that is interrupted because it takes too long."""
        self._timeouts.inc()

    def stuck_computations(self, number: int) -> None:
        """Report how many computations do not return."""
        if self._loaded:
            self._stuck_computations.inc(number - self._stuck)
            self._stuck = number
            self.on_change()

    def cost(self, operation: str, device: str, terms: Mapping[str, float]) -> None:
        """Report the measured cost of a batch, in seconds by term; of continuous decoding, of a step."""
        for term, seconds in terms.items():
            self._metrics.batch_cost.labels(*self.key, operation, device, term).set(seconds)

    def looked_up(self, found: bool) -> None:
        """Count a lookup in the model's cache; called from several threads."""
        (self._metrics.prefix_hits if found else self._metrics.prefix_misses).labels(*self.key).inc()

    def used_cache(self, hits: int, collapsed: int, misses: int) -> None:
        """Count the inputs of a request whose results may be in the cache of results."""
        for outcome, inputs in (("hit", hits), ("collapsed", collapsed), ("miss", misses)):
            if inputs:
                self._metrics.result_cache_inputs.labels(*self.key, outcome).inc(inputs)

    def rejected(self, reason: str, items: int) -> None:
        self._metrics.rejected.labels(*self.key, reason).inc(items)

    def generated(self, tokens: int) -> None:
        self._metrics.generated_tokens.labels(*self.key).inc(tokens)
