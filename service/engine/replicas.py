"""The copies of a model, one for each device, loaded and warmed up."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from models.backend import BackendName
from models.reading import VerifiedBundle
from models.store import bundle_errors, load_verified
from models.tasks.model import AnyModel
from service.engine.cost_model import Sample
from service.engine.memory import available_memory
from service.engine.warm_up import warm_up

__all__ = ["Measured", "ReplicaOptions", "load_replicas"]

Measured = Mapping[str, Sequence[Sample]]
"""Batches of the warm-up, by operation."""


class ReplicaOptions(BaseModel):
    """The settings of the service that replicas depend on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    devices: tuple[str, ...]
    backend: BackendName
    threads: int | None
    parallel_batches: int
    max_batch_items: int
    allow_cpu_fallback: bool
    map_weights: bool
    work_bytes: int | None = None
    """Memory of each graph on a GPU in addition to its weights; not limited without it."""


_COPY_SHARE = 0.25
"""A second copy of the weights, for concurrent batches, takes at most this part of the available memory."""


def load_replicas(bundle: VerifiedBundle, options: ReplicaOptions) -> tuple[list[AnyModel], list[Measured]]:
    """Return the model on each device, and the times of its warm-up there; any failure is a `BundleError`."""
    with bundle_errors(bundle.origin, "it cannot be read"):
        parallel = options.parallel_batches if _can_be_copied(bundle.path) else 1
    replicas: list[AnyModel] = [
        load_verified(
            bundle,
            backend=options.backend,
            device=device,
            threads=options.threads,
            parallel=parallel,
            allow_cpu_fallback=options.allow_cpu_fallback,
            work_bytes=options.work_bytes,
        )
        for device in options.devices
    ]
    with bundle_errors(bundle.origin, "its warm-up failed"):  # a graph that loads may fail when it runs
        sizes = {"max_batch_items": options.max_batch_items, "parallel_batches": options.parallel_batches}
        return replicas, [warm_up(model, **sizes) for model in replicas]


def _can_be_copied(bundle: Path) -> bool:
    """Return whether there is memory for a second copy of a bundle's weights; concurrent batches share one else."""
    size = sum(file.stat().st_size for file in bundle.iterdir() if file.is_file())
    return size <= _COPY_SHARE * available_memory()
