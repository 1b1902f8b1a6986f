"""The models a service serves: loading, warming up, finding by name, stopping."""

import asyncio
import gc
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from models import Classifier, ImageClassifier, LanguageModel, Manifest, ModelStore, UnknownModelError
from models.tasks.language_model import NextWords
from models.bundle.manifest import MANIFEST, sha256_of
from models.text.prefix_cache import PrefixCache
from models.decoding.sequence_to_sequence import SequenceToSequenceModel
from models.bundle.store import Model, bundle_errors
from service.engine.decoding import DecodingWorker
from service.engine.priority import lower_thread_priority
from service.engine.queue import Limits
from service.engine.resources import Resources
from service.engine.warm_up import warm_up
from service.engine.worker import BatchWorker, Operation, Worker
from service.memory import HeapTrimmer
from service.metrics import Metrics, ModelObserver
from service.settings import Settings
from service.tracing import BatchTracer

__all__ = ["Key", "NotReady", "Registry", "ServedModel"]

logger = logging.getLogger("softserve")

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

Key = tuple[str, int]
"""Name and version."""

Signature = frozenset[tuple[str, int, int]]
"""Names, sizes and times of a bundle's files."""


_MEGABYTE = 1 << 20


class NotReady(Exception):
    """A request that came before its model was loaded."""

    def __init__(self, detail: str = "the model is still being loaded") -> None:
        super().__init__(detail)


class ServedModel:
    """A loaded model and what runs it. It knows how many requests hold it, so that it goes when nobody does."""

    def __init__(
        self,
        model: Model,
        worker: Worker,
        observer: ModelObserver,
        digest: str,
        prefixes: PrefixCache[NextWords] | None = None,
    ) -> None:
        self.model = model
        self.worker = worker
        self.observer = observer
        self.digest = digest
        """sha256 of the manifest, which names the checksum of every other file."""
        self.prefixes = prefixes
        """Of a language model: what was computed after recent texts."""
        self._users = 0
        self._free = asyncio.Event()
        self._free.set()

    @property
    def manifest(self) -> Manifest:
        return self.model.manifest

    @property
    def key(self) -> Key:
        """Name and version."""
        return self.manifest.name, self.manifest.version

    def hold(self) -> None:
        """A request is going to use the model; it calls `release` when it is over."""
        self._users += 1
        self._free.clear()

    def release(self) -> None:
        self._users -= 1
        if not self._users:
            self._free.set()

    async def retire(self) -> None:
        """Waits for the requests that hold it, and ends its worker."""
        await self._free.wait()
        await self.worker.stop()


class Registry:
    """Every served model by name and version. Requests find their model here."""

    def __init__(self, settings: Settings, metrics: Metrics, resources: Resources | None = None) -> None:
        """Raises `FileNotFoundError` for a missing model directory, `UnknownModelError` for a name nobody has."""
        self._settings = settings
        self._metrics = metrics
        self._resources = resources or Resources(settings)
        self._store = ModelStore(*settings.model_dirs)
        self._paths = self._wanted()
        self._expected = {_key(path) for path in self._paths}
        self._pinned: set[Key] = set()
        """Models that an administrator loaded, which stay although a newer version appears."""
        self._dismissed: set[Key] = set()
        """Models that an administrator unloaded, which are not missed."""
        self._tried: dict[Path, Signature] = {}
        """Files of each bundle when it was last loaded, whether it did load or not."""
        self._served: dict[Key, ServedModel] = {}
        self._changing = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._loader = ThreadPoolExecutor(1, "softserve-load", initializer=lower_thread_priority)
        self.heap_trimmer = HeapTrimmer()
        """Asked where much memory was freed."""
        self._loaded = False
        self.failure: Exception | None = None
        """What kept a configured model from loading."""
        self.on_failure: Callable[[], object] = lambda: None
        """Called when a configured model failed to load."""

    def _wanted(self) -> list[Path]:
        """Bundles that are to be served, as they are on disk now."""
        return list(dict.fromkeys(map(self._store.path, self._settings.models or self._store.versions())))

    @property
    def served(self) -> Mapping[Key, ServedModel]:
        return self._served

    async def load(self) -> None:
        """Loads and warms up every configured model, one after the other; remembers and raises what goes wrong."""
        self._report()
        gc.collect()
        gc.freeze()  # modules live as long as the process: to look at them in a collection takes 0.1 s
        try:
            for path in self._paths:
                await self._load(path)
        except Exception as error:
            self.failure = error
            self.on_failure()
            raise
        self._loaded = True

    @property
    def ready(self) -> bool:
        """Whether every model that was configured is loaded and warmed up, and none of their engines has failed."""
        return self._loaded and not self.failed_engines

    @property
    def failed_engines(self) -> list[str]:
        """Models whose engine task has died, by their full names."""
        return _full_names(key for key, served in self._served.items() if served.worker.failure is not None)

    async def stop(self) -> None:
        """Lets every model finish what it accepted."""
        self._loader.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*(served.worker.stop() for served in self._served.values()), *self._retiring)
        await self.heap_trimmer.stop()

    def find(self, name: str | None, task: str) -> ServedModel:
        """The model of that name (`"name"`: its newest version, or `"name:version"`) and task.

        Without a name, the one model of the task. Raises `UnknownModelError`, `NotReady` while models load.
        """
        fitting = {key: served for key, served in self._served.items() if served.manifest.task == task}
        if name is None:
            names = {key[0] for key in fitting}
            found = max(fitting, default=None) if len(names) == 1 else None
        else:
            found = max((key for key in fitting if name in _names(key)), default=None)
        if found is not None:
            return fitting[found]
        if not self._loaded:
            raise NotReady("a model failed to load") if self.failure else NotReady
        raise UnknownModelError(name or f"(none named, and {len(fitting)} serve {task})", _full_names(fitting))

    async def add(self, name: str) -> ServedModel:
        """Loads a model from disk, `"name"` (its newest version) or `"name:version"`; one that is served, again.

        Requests go to the old model until the new one is warm. Raises `UnknownModelError`, and what loading raises,
        after which the old one still serves.
        """
        async with self._changing:
            served = await self._load(await self._off_loop(self._store.path, name))
            self._pinned.add(served.key)
            self._expected.add(served.key)
            self._report()
            return served

    async def remove(self, name: str) -> list[Key]:
        """Stops serving a model, all its versions or `"name:version"`; requests that hold it are still answered.

        Returns what went. Raises `UnknownModelError`.
        """
        async with self._changing:
            gone = [key for key in self._served if name in _names(key)]
            if not gone:
                raise UnknownModelError(name, _full_names(self._served))
            for key in gone:
                self._retire(self._served.pop(key))
            self._pinned -= set(gone)
            self._dismissed |= set(gone)
            self._expected -= set(gone)
            self._report()
            return gone

    async def watch(self, seconds: float) -> None:
        """Look every so often for what is to be served, and serve it: forever, until it is cancelled.

        Bundles that are new or have changed are loaded, and then those unloaded that are not to be served any more. One
        that does not load, perhaps because it is still being copied, is tried again when its files have changed. What
        an administrator loaded stays until an administrator unloads it or its files are gone. Where no bundle at all
        is found, what is served stays: a disk is more often lost than emptied.
        """
        trouble = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                async with self._changing:
                    await self._follow()
                trouble = ""
            except Exception as error:  # an unreadable disk must not end the watch
                if str(error) != trouble:
                    logger.warning("model directories cannot be read: %s", error)
                trouble = str(error)

    async def _follow(self) -> None:
        wanted, pinned = await self._off_loop(self._look)
        for path, signature in (wanted | pinned).items():
            if signature == self._tried.get(path):
                continue
            try:
                await self._load(path)
            except Exception as error:
                logger.error("%s does not load: %s", path, error)
        self._unload_others({_key(path) for path in wanted}, {_key(path) for path in pinned})
        for path in self._tried.keys() - wanted.keys() - pinned.keys():
            del self._tried[path]

    def _look(self) -> tuple[dict[Path, Signature], dict[Path, Signature]]:
        """Return the bundles to be served, and those of pinned models, as they are on disk now."""
        wanted = {path: _signature(path) for path in self._wanted()}
        if not wanted:
            raise FileNotFoundError("they hold no bundle")
        pinned = {path: _signature(path) for path in self._store.paths() if _key(path) in self._pinned}
        return wanted, pinned

    def _unload_others(self, wanted: set[Key], pinned: set[Key]) -> None:
        """Unload what is not to be served any more. The newest version stays until the one after it has loaded."""
        self._pinned = pinned
        replaced = {name for name, _ in wanted & self._served.keys()}
        waiting = {name for name, _ in wanted} - replaced
        for key in self._served.keys() - wanted - pinned:
            if key[0] not in waiting:
                self._retire(self._served.pop(key))
        self._expected = wanted - self._dismissed | pinned
        self._report()

    async def _load(self, path: Path) -> ServedModel:
        started = time.monotonic()
        replicas, digest = await self._off_loop(self._load_and_warm_up, path)
        model = replicas[0]
        observer = self._metrics.for_model(model.manifest, [replica.backend for replica in replicas])
        worker = self._worker(replicas, observer)
        worker.start()
        size = self._settings.prefix_cache_mb * _MEGABYTE
        prefixes = PrefixCache[NextWords](size) if size and isinstance(model, LanguageModel) else None
        served = ServedModel(model, worker, observer, digest, prefixes)
        old = self._served.get(served.key)
        self._served[served.key] = served
        self._dismissed.discard(served.key)
        observer.limited(self._settings.max_queue_items, self._settings.max_queue_tokens)
        observer.loaded(time.monotonic() - started)
        logger.info("loaded %s:%s in %.2f s", *served.key, time.monotonic() - started)
        self._report()
        if old is not None:
            self._retire(old)
        return served

    def _report(self) -> None:
        """Show how many models are to be served, and how many of these are."""
        self._metrics.models_expected.set(len(self._expected))
        self._metrics.models_ready.set(len(self._expected & self._served.keys()))

    def _retire(self, served: ServedModel) -> None:
        """Ends a model that requests no longer find, once those that hold it are answered."""

        async def retire() -> None:
            await served.retire()
            served.observer.unloaded()
            self.heap_trimmer.request()
            logger.info("unloaded %s:%s", *served.key)

        task = asyncio.create_task(retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _off_loop(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Run what reads files on the loader's thread, since a disk may take seconds to answer."""
        return await asyncio.get_running_loop().run_in_executor(self._loader, function, *arguments)

    def _load_and_warm_up(self, path: Path) -> tuple[list[Model], str]:
        """Return the model on each device and the digest of its manifest; any failure is a `BundleError`."""
        settings = self._settings
        with bundle_errors(path, "it cannot be read"):
            self._tried[path] = _signature(path)  # before files are read: a change from now on is noticed
            digest = sha256_of(path / MANIFEST)
        models = [self._load_on(device, path) for device in settings.device.split(",")]
        with bundle_errors(path, "its warm-up failed"):  # a graph that loads may fail when it runs
            for model in models:
                warm_up(model, max_batch_items=settings.max_batch_items, parallel_batches=settings.parallel_batches)
        return models, digest

    def _load_on(self, device: str, path: Path) -> Model:
        settings = self._settings
        return self._store.load(
            path.parent.name,
            int(path.name),
            backend=settings.backend,
            device=device,
            threads=settings.threads,
            parallel=settings.parallel_batches,
        )

    def _worker(self, replicas: Sequence[Model], observer: ModelObserver) -> Worker:
        """What runs a model, given on each device."""
        starts = [model.start for model in replicas if isinstance(model, SequenceToSequenceModel)]
        tracer = BatchTracer(replicas[0].manifest.name) if self._settings.tracing else None
        if starts:
            cache = self._resources.decoding_cache
            return DecodingWorker(starts, self._limits(), observer, cache=cache, tracer=tracer)
        parallel = self._settings.parallel_batches
        tables = [operations(model) for model in replicas if not isinstance(model, SequenceToSequenceModel)]
        return BatchWorker(tables, self._limits(), observer, parallel_batches=parallel, tracer=tracer)

    def _limits(self) -> Limits:
        settings = self._settings
        return Limits(
            max_batch_items=settings.max_batch_items,
            max_batch_tokens=settings.max_batch_tokens,
            batch_cost=settings.batch_cost,
            max_delay=settings.max_delay_ms / 1000,
            max_overtaken=settings.max_overtaken_ms / 1000,
            max_wait=math.inf if settings.max_wait_ms is None else settings.max_wait_ms / 1000,
            max_queue_items=settings.max_queue_items,
            max_queue_tokens=settings.max_queue_tokens,
        )


def _signature(bundle: Path) -> Signature:
    return frozenset((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in bundle.iterdir())


def _key(bundle: Path) -> Key:
    """Return the name and version that a bundle's directory stands for."""
    return bundle.parent.name, int(bundle.name)


def _names(key: Key) -> tuple[str, str]:
    """What a request may call a model."""
    return key[0], f"{key[0]}:{key[1]}"


def _full_names(served: Iterable[Key]) -> list[str]:
    return sorted(_names(key)[1] for key in served)


def operations(model: LanguageModel | Classifier | ImageClassifier) -> dict[str, Operation]:
    """What a worker can run on a model in batches, by name."""
    if isinstance(model, Classifier | ImageClassifier):
        return {"classify": model.run}
    return {"next-word": model.run_next_words, "score": model.run_score}
