"""Loading bundles on every device, and warming them up, so that no request has a cold start."""

import asyncio
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from models import ModelStore
from models.bundle.manifest import MANIFEST
from models.reading import sha256_of
from models.store import bundle_errors
from models.tasks.model import Model
from service.engine.batcher import Batcher
from service.engine.computations import Computations
from service.engine.continuous_batching import ContinuousBatcher
from service.engine.cost_model import CostModel, Sample
from service.engine.dynamic_batching import DynamicBatcher
from service.engine.priority import lower_thread_priority
from service.engine.queue import Limits
from service.engine.resources import Resources
from service.engine.served_model import Key, ServedModel
from service.engine.warm_up import warm_up
from service.metrics import Metrics, ModelObserver
from service.settings import Settings
from service.tracing import BatchTracer

__all__ = ["Loader", "Signature", "key_of", "signature_of"]

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

Signature = frozenset[tuple[str, int, int]]
"""Names, sizes and modification times of a bundle's files."""

Measured = Mapping[str, Sequence[Sample]]
"""Batches of the warm-up, by operation."""

_MEGABYTE = 1 << 20


class Loader:
    """Makes served models of bundles, one at a time, on a thread of its own."""

    def __init__(self, settings: Settings, metrics: Metrics, resources: Resources) -> None:
        """Create a loader; raises `FileNotFoundError` for a model directory that does not exist."""
        self.store = ModelStore(*settings.model_dirs)
        self.signatures: dict[Path, Signature] = {}
        """Files of each bundle when it was last loaded, successfully or not."""
        self._settings, self._metrics, self._resources = settings, metrics, resources
        self._thread = ThreadPoolExecutor(1, "softserve-load", initializer=lower_thread_priority)

    def configured(self) -> list[Path]:
        """Return the bundles that the settings select, as they are on disk now; raises `UnknownModelError`."""
        return list(dict.fromkeys(map(self.store.path, self._settings.models or self.store.versions())))

    async def load(self, path: Path) -> ServedModel:
        """Load a bundle on every device, warm it up and start its batcher; any failure is a `BundleError`."""
        replicas, measured, digest = await self.run(self._load_and_warm_up, path)
        model, settings = replicas[0], self._settings
        observer = self._metrics.for_model(model.manifest, [replica.backend for replica in replicas])
        observer.limited(settings.max_queue_items, settings.max_queue_tokens)
        if settings.prefix_cache_mb:
            model.use_cache(settings.prefix_cache_mb * _MEGABYTE, observer.looked_up)
        batcher = self._batcher(replicas, measured, observer)
        batcher.start()
        return ServedModel(model, batcher, observer, digest)

    async def run(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call a function that reads files on the loader's thread, since a disk may take seconds to answer."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """Start no more work."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _load_and_warm_up(self, path: Path) -> tuple[list[Model[Any]], list[Measured], str]:
        """Return the model on each device, the times of its warm-up there, and the digest of its manifest."""
        settings = self._settings
        with bundle_errors(path, "it cannot be read"):
            self.signatures[path] = signature_of(path)  # before files are read: a change from now on is noticed
            digest = sha256_of(path / MANIFEST)
        replicas = [self._load_on(device, path) for device in settings.device.split(",")]
        with bundle_errors(path, "its warm-up failed"):  # a graph that loads may fail when it runs
            sizes = {"max_batch_items": settings.max_batch_items, "parallel_batches": settings.parallel_batches}
            measured = [warm_up(model, **sizes) for model in replicas]
        return replicas, measured, digest

    def _load_on(self, device: str, path: Path) -> Model[Any]:
        settings = self._settings
        model: Model[Any] = self.store.load(
            path.parent.name,
            int(path.name),
            backend=settings.backend,
            device=device,
            threads=settings.threads,
            parallel=settings.parallel_batches,
            allow_cpu_fallback=settings.allow_cpu_fallback,
        )
        return model

    def _batcher(
        self, replicas: Sequence[Model[Any]], measured: Sequence[Measured], observer: ModelObserver
    ) -> Batcher:
        """Return the batcher of a model that is loaded on one or several devices."""
        costs = [
            {operation: self._cost(samples, observer, operation, model) for operation, samples in each.items()}
            for model, each in zip(replicas, measured, strict=True)
        ]
        settings, limits = self._settings, _limits(self._settings)
        manifest = replicas[0].manifest
        tracer = BatchTracer(manifest.name) if settings.tracing else None
        computations = Computations(settings.longest_computation, observer, model=f"{manifest.name}:{manifest.version}")
        if replicas[0].continuous:
            pairs = [
                (model.start_decoding, next(iter(each.values())))  # all operations take the same steps
                for model, each in zip(replicas, costs, strict=True)
                for _ in range(model.backend.parallel)
            ]
            starts, steps = zip(*pairs, strict=True)
            cache = self._resources.decoding_cache
            return ContinuousBatcher(
                starts, limits, observer, cache=cache, tracer=tracer, costs=steps, computations=computations
            )
        operations, parallel = [model.operations for model in replicas], settings.parallel_batches
        return DynamicBatcher(
            operations,
            limits,
            observer,
            costs=costs,
            parallel_batches=parallel,
            tracer=tracer,
            computations=computations,
        )

    def _cost(self, samples: Sequence[Sample], observer: ModelObserver, operation: str, model: Model[Any]) -> CostModel:
        report = functools.partial(observer.cost, operation, model.backend.device)
        return CostModel(samples, batch_cost=self._settings.batch_cost, report=report)


def _limits(settings: Settings) -> Limits:
    return Limits(
        max_batch_items=settings.max_batch_items,
        max_batch_tokens=settings.max_batch_tokens,
        batch_cost=16 if settings.batch_cost is None else settings.batch_cost,
        max_delay=settings.max_delay_ms / 1000,
        starvation_limit=settings.starvation_limit_ms / 1000,
        max_wait=math.inf if settings.max_wait_ms is None else settings.max_wait_ms / 1000,
        max_queue_items=settings.max_queue_items,
        max_queue_tokens=settings.max_queue_tokens,
    )


def signature_of(bundle: Path) -> Signature:
    """Return the names, sizes and modification times of a bundle's files."""
    return frozenset((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in bundle.iterdir())


def key_of(bundle: Path) -> Key:
    """Return the name and version that a bundle's directory stands for."""
    return bundle.parent.name, int(bundle.name)
