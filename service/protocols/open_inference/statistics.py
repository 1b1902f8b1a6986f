"""Statistics of Open Inference, from the service's metrics."""

from collections.abc import Mapping

from service.engine.served_model import ServedModel
from service.observability.metrics import Metrics

__all__ = ["statistics"]

_NANOSECONDS = 1e9


def statistics(metrics: Metrics, served: ServedModel) -> dict[str, object]:
    """Return the counts and times of one model in this process since it was loaded.

    They are those of all protocols. `inference_count` counts texts, `execution_count` batches; `queue` is per text,
    `compute_input` (tokenizing) per request, `compute_infer` per batch. `fail` counts refused texts.
    """
    read = _Reader(metrics, {"model": served.manifest.name, "version": str(served.manifest.version)})
    requests, tokenizing = read.histogram("tokenize_duration_seconds")
    texts, waiting = read.histogram("queue_duration_seconds")
    batches, computing = read.histogram("inference_duration_seconds")
    return {
        "name": served.manifest.name,
        "version": str(served.manifest.version),
        "inference_count": texts,
        "execution_count": batches,
        "inference_stats": {
            "success": _duration(requests, tokenizing + waiting + computing),
            "fail": _duration(read.rejected(), 0.0),
            "queue": _duration(texts, waiting),
            "compute_input": _duration(requests, tokenizing),
            "compute_infer": _duration(batches, computing),
            "compute_output": _duration(requests, 0.0),
            "cache_hit": _duration(0, 0.0),
            "cache_miss": _duration(0, 0.0),
        },
        "batch_stats": [],
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * _NANOSECONDS)}


class _Reader:
    """Reads the series of one model."""

    def __init__(self, metrics: Metrics, labels: Mapping[str, str]) -> None:
        self._labels, names = dict(labels), ("tokenize", "queue", "inference")
        wanted = [*(f"softserve_{name}_duration_seconds" for name in names), "softserve_rejected"]
        families = [family for family in metrics.registry.collect() if family.name in wanted]
        self._samples = [sample for family in families for sample in family.samples]

    def histogram(self, name: str) -> tuple[int, float]:
        """Return the number of observations and their sum."""
        return int(self._sum(f"softserve_{name}_count")), self._sum(f"softserve_{name}_sum")

    def rejected(self) -> int:
        """Return the number of refused texts."""
        return int(self._sum("softserve_rejected_total"))

    def _sum(self, name: str) -> float:
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == name and self._labels.items() <= sample.labels.items()
        )
