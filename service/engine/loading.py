"""Loading bundles on every device, and warming them up, so that no request has a cold start."""

import asyncio
import contextlib
import functools
import math
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from models import ModelStore
from models.backend.footprint import weight_bytes
from models.bundle.manifest import MANIFEST
from models.private_copy import private_directory, verified_copy
from models.reading import VerifiedBundle, read_manifest, sha256_of, verify
from models.signing import TrustedKey
from models.store import bundle_errors
from models.tasks.model import AnyModel
from service.engine.batcher import Batcher
from service.engine.computations import Computations
from service.engine.continuous_batching import ContinuousBatcher
from service.engine.cost_model import CostModel, Sample
from service.engine.daemon_executor import DaemonExecutor
from service.engine.device_memory import DeviceFull, DeviceLedger, Reservation, gpu_of
from service.engine.dynamic_batching import DynamicBatcher
from service.engine.memory import available_memory, copy_room, private_memory
from service.engine.priority import BACKGROUND, lower_thread_priority
from service.engine.queue import Limits
from service.engine.replicas import Measured, ReplicaOptions, load_replicas
from service.engine.resources import Resources
from service.engine.served_model import Key, ServedModel
from service.engine.trial import LoadTimeoutError, MemoryLimitError, try_bundle
from service.observability.metrics import Metrics, ModelObserver
from service.observability.tracing import BatchTracer
from service.settings import Settings

__all__ = ["Loader", "Signature", "key_of", "signature_of"]

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

Signature = frozenset[tuple[str, int, int]]
"""Names, sizes and modification times of a bundle's files."""

_MEGABYTE = 1 << 20
_LOAD_MEMORY, _LOAD_MEMORY_SHARE = 2 << 30, 8
"""Bytes that loading a bundle may take by default, and how many times the size of its files in addition."""
_AVAILABLE_SHARE = 0.8
"""The part of the available memory that loading may take at most, by default."""
_KILL_SECONDS = 10.0
"""Seconds in which a process that is killed ends, unless it waits for a disk."""
_DELETE_SECONDS = 2.0
"""Seconds for which a load waits until the copies of its files are deleted."""
_INTERVAL = 0.02
"""Seconds between two checks of the memory."""


class Loader:
    """Makes served models of bundles, one at a time, on a thread of its own."""

    def __init__(self, settings: Settings, metrics: Metrics, resources: Resources) -> None:
        """Create a loader.

        Raises `FileNotFoundError` for a model directory that does not exist, `OSError` or `SignatureError` for a key of
        signatures that cannot be used.
        """
        self.store = ModelStore(*settings.model_dirs)
        self.signatures: dict[Path, Signature] = {}
        """Files of each bundle when it was last loaded, successfully or not."""
        self._settings, self._metrics, self._resources = settings, metrics, resources
        key = settings.require_signature
        self._trusted_key = None if key is None else TrustedKey.read(key)
        self._ledger = _ledger(settings, metrics)
        self._options = ReplicaOptions(
            devices=tuple(settings.device.split(",")),
            backend=settings.backend,
            threads=settings.threads,
            parallel_batches=settings.parallel_batches,
            max_batch_items=settings.max_batch_items,
            allow_cpu_fallback=settings.allow_cpu_fallback,
            map_weights=settings.map_weights,
            work_bytes=None if self._ledger is None else settings.gpu_work_mb * _MEGABYTE,
        )
        self._stopped = threading.Event()
        self._thread = _new_thread()
        self._abandoned: list[DaemonExecutor] = []

    def configured(self) -> list[Path]:
        """Return the bundles that the settings select, as they are on disk now; raises `UnknownModelError`."""
        return list(dict.fromkeys(map(self.store.path, self._settings.models or self.store.versions())))

    async def load(self, path: Path, *, trial: bool = False, background: bool = False) -> ServedModel:
        """Load a bundle on every device, warm it up and start its batcher; any failure is a `BundleError`.

        With a `trial`, a process of its own loads it first. Otherwise, if it takes too long or too much memory, the
        error is raised while this process still loads it: end the process then. In the `background`, threads of the
        lowest priority load and compute it.
        """
        loading = asyncio.ensure_future(self._load(path, trial, background))
        try:
            if not trial:
                await self._watch_memory(path, loading)
            replicas, measured, digest = await loading
        finally:
            loading.cancel()
            await asyncio.wait([loading], timeout=_DELETE_SECONDS)
        model, settings = replicas[0], self._settings
        observer = self._metrics.for_model(model.manifest, [replica.backend for replica in replicas])
        observer.limited(settings.max_queue_items, settings.max_queue_tokens)
        prefixes = settings.prefix_cache_bytes(model.longest_cached, available_memory() / settings.workers)
        for replica in replicas:
            if prefixes:
                replica.use_cache(prefixes // len(replicas), observer.looked_up)
            replica.use_decoding_cache(self._resources.completions.total)
        batcher = self._batcher(replicas, measured, observer, background)
        batcher.start()
        return ServedModel(model, batcher, observer, digest)

    async def run(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call a function that reads files on the loader's thread, since a disk may take seconds to answer.

        Raises `TimeoutError` after `--load-timeout`; the function is then left alone on its thread.
        """
        return await self._call(self._settings.load_timeout, function, *arguments)

    async def _call(self, seconds: float, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        try:
            return await _on(self._thread, seconds, function, *arguments)
        except TimeoutError:
            self._thread.shutdown()
            self._abandoned.append(self._thread)
            self._thread = _new_thread()
            raise

    @property
    def busy(self) -> bool:
        """Whether a thread still loads, perhaps for ever."""
        return any(each.active for each in (self._thread, *self._abandoned))

    def close(self) -> None:
        """Start no more work, and end a trial."""
        self._stopped.set()
        self._thread.shutdown(cancel_futures=True)

    async def _load(self, path: Path, trial: bool, background: bool) -> tuple[list[AnyModel], list[Measured], str]:
        """Return the model on each device, the times of its warm-up there, and the digest of its manifest."""
        try:
            with bundle_errors(path, "it cannot be read"):
                # Before its files are read: a change from now on is noticed.
                self.signatures[path] = await self.run(signature_of, path)
            async with self._device_memory(path) as reserved, self._directory() as directory:
                copy = await self._tried(path, directory) if trial else None
                with bundle_errors(path, "it cannot be read"):
                    bundle = await self.run(self._verified, path, directory, copy)
                replicas, measured = await self._replicas(bundle, background)
                _release_with(reserved, replicas)
                return replicas, measured, bundle.digest
        except TimeoutError as error:
            raise LoadTimeoutError(str(path), [str(error)]) from error

    async def _replicas(self, bundle: VerifiedBundle, background: bool) -> tuple[list[AnyModel], list[Measured]]:
        """Load a bundle on every device; threads that its sessions start have the priority of the one that loads."""
        if not background:
            return await self.run(load_replicas, bundle, self._options)
        thread = DaemonExecutor(1, "softserve-load", functools.partial(lower_thread_priority, BACKGROUND))
        self._abandoned.append(thread)  # until it has ended
        try:
            return await _on(thread, self._settings.load_timeout, load_replicas, bundle, self._options)
        finally:
            thread.shutdown()
            self._abandoned = [each for each in self._abandoned if each.active]

    @contextlib.asynccontextmanager
    async def _device_memory(self, path: Path) -> AsyncIterator[Sequence[Reservation | None]]:
        """Reserve memory of the GPUs for a bundle, one reservation for each device; release it where loading fails.

        Where a trial loads the bundle first, its process ends before this one takes the memory.
        """
        ledger, devices = self._ledger, [gpu_of(device) for device in self._options.devices]
        if ledger is None:
            yield [None] * len(devices)
            return
        with bundle_errors(path, "it cannot be read"):
            graphs = await self.run(_weight_bytes, path)
        needed = {"weights": sum(graphs.values()), "work": len(graphs) * (self._options.work_bytes or 0)}
        with contextlib.ExitStack() as failed:
            reserved: list[Reservation | None] = []
            for gpu in devices:
                try:
                    reserved.append(ledger.reserve(gpu, needed) if gpu is not None else None)
                except DeviceFull as error:
                    raise MemoryLimitError(str(path), [str(error)]) from error
                if (reservation := reserved[-1]) is not None:
                    failed.callback(reservation.release)
            yield reserved
            failed.pop_all()

    @contextlib.asynccontextmanager
    async def _directory(self) -> AsyncIterator[Path | None]:
        """Provide a private directory, where weights are not to be mapped."""
        if self._options.map_weights:
            yield None
            return
        thread, stack = DaemonExecutor(1, "softserve-copy"), contextlib.ExitStack()
        try:
            yield await _on(thread, self._settings.load_timeout, stack.enter_context, private_directory())
        finally:
            deleted = asyncio.wrap_future(thread.submit(stack.close))  # after a directory that is made too late, too
            thread.shutdown()
            await asyncio.wait([deleted], timeout=_DELETE_SECONDS)

    async def _tried(self, path: Path, directory: Path | None) -> Path:
        """Return the directory of the files that a process of its own has checked and loaded."""
        seconds, max_bytes = self._settings.load_timeout, await self.run(self._max_bytes, path)
        call = functools.partial(
            try_bundle,
            seconds=seconds,
            max_bytes=max_bytes,
            stopped=self._stopped,
            trusted_key=self._trusted_key,
        )
        return await self._call(seconds + _KILL_SECONDS, call, path, directory, self._options)

    def _verified(self, path: Path, directory: Path | None, copy: Path | None) -> VerifiedBundle:
        """Return a bundle whose files are checked; a trial has already copied them, unless there was no room."""
        if copy is not None and directory is not None and copy.is_relative_to(directory):
            return VerifiedBundle(path, copy, read_manifest(copy), sha256_of(copy / MANIFEST))
        if self._options.map_weights:
            return verify(path)
        checked = functools.partial(verified_copy, path, backend=self._options.backend, trusted_key=self._trusted_key)
        if directory is None or copy is not None:
            return checked(None)
        return checked(directory, max_bytes=copy_room(directory))

    async def _watch_memory(self, path: Path, loading: "asyncio.Future[Any]") -> None:
        """Return when a bundle is loaded by this process; raise where that takes too much memory."""
        before, max_bytes = private_memory(os.getpid()), await self.run(self._max_bytes, path)
        while not loading.done():
            if private_memory(os.getpid()) - before > max_bytes:
                raise MemoryLimitError.over(path, max_bytes)
            await asyncio.wait([loading], timeout=_INTERVAL)

    def _max_bytes(self, path: Path) -> int:
        """Return the memory that loading a bundle may take."""
        megabytes = self._settings.load_memory_mb
        if megabytes is not None:
            return megabytes * _MEGABYTE
        with contextlib.suppress(OSError):
            size = sum(file.stat().st_size for file in path.iterdir())
            return int(min(_LOAD_MEMORY + _LOAD_MEMORY_SHARE * size, _AVAILABLE_SHARE * available_memory()))
        return _LOAD_MEMORY

    def _batcher(
        self,
        replicas: Sequence[AnyModel],
        measured: Sequence[Measured],
        observer: ModelObserver,
        background: bool,
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
                starts,
                limits,
                observer,
                cache=cache,
                tracer=tracer,
                costs=steps,
                computations=computations,
                background=background,
            )
        functions, parallel = [model.batch_functions for model in replicas], settings.parallel_batches
        return DynamicBatcher(
            functions,
            limits,
            observer,
            costs=costs,
            parallel_batches=parallel,
            alone=replicas[0].alone,
            tracer=tracer,
            computations=computations,
            background=background,
        )

    def _cost(self, samples: Sequence[Sample], observer: ModelObserver, operation: str, model: AnyModel) -> CostModel:
        report = functools.partial(observer.cost, operation, model.backend.device)
        return CostModel(samples, batch_cost=self._settings.batch_cost, report=report)


async def _on(
    thread: DaemonExecutor, seconds: float, function: Callable[[*Arguments], Result], *arguments: *Arguments
) -> Result:
    """Call a function on a thread; raises `TimeoutError`, and leaves it alone then."""
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.get_running_loop().run_in_executor(thread, function, *arguments)
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} s (--load-timeout)") from None


def _weight_bytes(path: Path) -> Mapping[str, int]:
    return weight_bytes(path, read_manifest(path))


def _ledger(settings: Settings, metrics: Metrics) -> DeviceLedger | None:
    """Return the ledger of this process, None where the memory of GPUs is not limited."""
    if settings.gpu_memory_mb is None:
        return None

    def report(device: str, kind: str, size: int) -> None:
        metrics.device_memory.labels(device, kind).set(size)

    limit = settings.gpu_memory_mb // settings.workers * _MEGABYTE
    return DeviceLedger(limit, {"decoding_cache": settings.decoding_cache_bytes()}, report)


def _release_with(reserved: Sequence[Reservation | None], replicas: Sequence[AnyModel]) -> None:
    """Release each reservation on the event loop once the sessions that it was made for are gone."""
    loop = asyncio.get_running_loop()
    for reservation, model in zip(reserved, replicas, strict=True):
        if reservation is None:
            continue
        if model.backend.device == "cpu":  # auto
            reservation.release()
        else:
            weakref.finalize(model.backend, _soon, loop, reservation.release).atexit = False


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(function)


def _new_thread() -> DaemonExecutor:
    return DaemonExecutor(1, "softserve-load", initializer=lower_thread_priority)


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
    """Return the names, sizes and modification times of a bundle's files; what cannot be read has none."""
    try:
        return frozenset(map(_size_and_time, bundle.iterdir()))
    except OSError:
        return frozenset()


def _size_and_time(file: Path) -> tuple[str, int, int]:
    try:
        found = file.stat()
    except OSError:  # a link to nothing
        return file.name, -1, -1
    return file.name, found.st_size, found.st_mtime_ns


def key_of(bundle: Path) -> Key:
    """Return the name and version that a bundle's directory stands for."""
    return bundle.parent.name, int(bundle.name)
