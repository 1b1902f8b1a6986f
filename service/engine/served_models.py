"""The models that a service serves: found by name and operation, added, replaced and drained."""

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from models import BundleError, UnknownModelError, UnsuitableModelError
from service.engine.loading import Loader, key_of
from service.engine.memory import HeapTrimmer
from service.engine.resources import Resources
from service.engine.served_model import Key, ServedModel, full_names, names_of
from service.engine.trial import reason_of
from service.observability.metrics import Metrics
from service.settings import Settings

__all__ = ["Administered", "NotReady", "ServedModels", "log_failure"]

logger = logging.getLogger("softserve")


class NotReady(Exception):
    """A request that arrived before its model was loaded."""

    def __init__(self, detail: str = "models are being loaded") -> None:
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Administered:
    """Which models a process serves in another way than by its settings, since an administrator asked for it."""

    pinned: frozenset[Key]
    """Models that were loaded, or are part of an experiment."""
    dismissed: frozenset[Key]
    """Models that were unloaded."""
    routes: Mapping[str, Key]
    """The model that answers a name where it is not the newest version of that name."""
    apart: frozenset[Key]
    """Models that only requests with their name find."""


class ServedModels:
    """Every served model by name and version."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        resources: Resources | None = None,
        loader: Loader | None = None,
    ) -> None:
        """Select the configured models; raises `UnknownModelError`, `FileNotFoundError` for a missing directory, and
        for one without models that could not get any later."""
        self.loader = loader or Loader(settings, metrics, resources or Resources(settings))
        self.directories = settings.model_dirs
        self._metrics = metrics
        self._paths = self.loader.configured()
        if not self._paths and not settings.watch_seconds and settings.admin_keys is None:
            directories = ", ".join(map(str, settings.model_dirs))
            raise FileNotFoundError(
                f"no model in {directories}: bundles are directories NAME/VERSION with a manifest.json"
            )
        self._expected = {key_of(path) for path in self._paths}
        self.pinned: set[Key] = set()
        """Models that an administrator loaded, which stay although a newer version appears."""
        self._dismissed: set[Key] = set()
        """Models that an administrator unloaded, which are not expected."""
        self._served: dict[Key, ServedModel] = {}
        self._found: dict[tuple[str | None, str, str], ServedModel] = {}
        """What `find` has returned since the served models changed."""
        self._routes: dict[str, Key] = {}
        """The model that answers a name where it is not the newest version of that name."""
        self._apart: set[Key] = set()
        """Models that only requests with their name find."""
        self.changing = asyncio.Lock()
        """Held while models are added or removed."""
        self._draining: set[asyncio.Task[None]] = set()
        self.heap_trimmer = HeapTrimmer()
        """Called where much memory was freed."""
        self.loaded = False
        """Whether every configured model is loaded and warmed up; where none was found at first, whether one is."""
        self.draining = False
        """Whether the service is about to stop: it still answers, and load balancers must send nothing more."""
        self.failure: Exception | None = None
        """The error that kept a configured model from loading."""
        self._failures: dict[Path, Exception] = {}
        self._entry_problems: dict[Path, str] = {}
        self.on_unload: Callable[[ServedModel], object] = lambda served: None
        """Called when a model is unloaded, after its last request."""
        self.on_failure: Callable[[], object] = lambda: None
        """Called when a configured model failed to load."""

    @property
    def served(self) -> Mapping[Key, ServedModel]:
        return self._served

    async def load(self) -> None:
        """Load and warm up every configured model, one after the other; keep and raise the first error."""
        self._report()
        if not self._paths:
            logger.warning("the model directories hold no model: the service is not ready until one is loaded")
        gc.collect()
        gc.freeze()  # modules live as long as the process: to traverse them in a collection takes 0.1 s
        try:
            self.note_problems(await self.loader.run(self.loader.store.problems))
            async with self.changing:
                for path in self._paths:
                    await self.serve(path)
        except Exception as error:
            self.failure = error
            self.on_failure()
            raise
        self.loaded = bool(self._paths)

    @property
    def ready(self) -> bool:
        """Whether every configured model is loaded and working, and the service is not about to stop."""
        return self.obstacle is None

    @property
    def obstacle(self) -> str | None:
        """Why the service is not ready; None where it is."""
        if self.draining:
            return "the service is shutting down"
        if self.failed_engines:
            return f"the engine has failed of {', '.join(self.failed_engines)}"
        if self.stuck_models:
            return f"a computation does not return of {', '.join(self.stuck_models)}"
        if self.loaded:
            return None
        if self.failure is not None:
            return f"a model failed to load: {self.failure}"
        return self._waiting

    @property
    def _waiting(self) -> str:
        return "models are being loaded" if self._paths else "no model is loaded yet"

    @property
    def failed_engines(self) -> list[str]:
        """Models whose engine task has died, by their full names."""
        return full_names(key for key, served in self._served.items() if served.batcher.failure is not None)

    @property
    def stuck_models(self) -> list[str]:
        """Models of which a computation does not return, by their full names."""
        return full_names(key for key, served in self._served.items() if served.batcher.computations.stuck)

    async def stop(self) -> None:
        """Let every model finish the requests that it accepted."""
        self.loader.close()
        await asyncio.gather(*(served.batcher.stop() for served in self._served.values()), *self._draining)
        await self.heap_trimmer.stop()

    def find(self, name: str | None, operation: str, reads: str = "text") -> ServedModel:
        """Return the model of that name (`"name"`: its newest version, or `"name:version"`) that offers an operation.

        Without a name, the one model that offers it for that kind of input. Raises `UnknownModelError`, and `NotReady`
        while models load.
        """
        asked = name, operation, reads
        if asked in self._found:
            return self._found[asked]
        offering = {
            key: served
            for key, served in self._served.items()
            if operation in served.model.offers and served.model.reads == reads
        }
        if (found := self._answering(name, offering)) is not None:
            self._found[asked] = offering[found]
            return offering[found]
        if not self.loaded:
            raise NotReady("a model failed to load" if self.failure else self._waiting)
        wanted = operation if reads == "text" else f"{operation} ({reads}s)"
        named = next((served for key, served in self._served.items() if name in names_of(key)), None)
        if name is None or named is not None:
            offers, task = ((), "") if named is None else (named.model.offers, named.manifest.task)
            raise UnsuitableModelError(wanted, full_names(offering), name, offers, task)
        raise UnknownModelError(name, full_names(offering))

    def only_one_offers(self, operation: str) -> bool:
        """Return whether at most one model, of any version, offers an operation."""
        return len({name for (name, _), served in self._served.items() if operation in served.model.offers}) < 2

    def _answering(self, name: str | None, offering: Collection[Key]) -> Key | None:
        """Return which of the models that offer an operation answers a name."""
        if name is None:
            names = {key[0] for key in offering if key not in self._apart}
            if len(names) != 1:
                return None
            (name,) = names
        if (route := self._routes.get(name)) in offering:
            return route
        return max((key for key in offering if name in names_of(key)), default=None)

    def named(self, name: str) -> ServedModel:
        """Return the served model that answers a name; raises `UnknownModelError`."""
        if (key := self._answering(name, self._served)) is None:
            raise UnknownModelError(name, full_names(self._served))
        return self._served[key]

    @contextlib.contextmanager
    def answering(self, key: Key) -> Iterator[None]:
        """Let a model go on to answer its name while others are loaded, and, unless that fails, afterwards."""
        before = self._routes.get(key[0])
        routed = self.named(key[0]).key == key
        if routed:
            self._route(key[0], key)
        try:
            yield
        except BaseException:
            if routed:
                self._route(key[0], before)
            raise

    def keep(self, *keys: Key) -> None:
        """Keep models although newer versions appear; all but the first are found by their names alone."""
        self.pinned.update(keys)
        self._apart.update(key for key in keys[1:] if key[0] != keys[0][0])
        self._found.clear()

    def release(self, *keys: Key) -> None:
        """Undo `keep` and `answering`: the newest version of a name answers it."""
        self.pinned.difference_update(keys)
        self._apart.difference_update(keys)
        self._route(keys[0][0], None)

    def promote(self, replaced: Key, key: Key) -> None:
        """Let a model answer the name of another one; raises `UnknownModelError` where it is not served."""
        newest = max((known for known in self._served if known[0] == replaced[0]), default=None)
        self._route(replaced[0], None if key == newest else key)
        self.pinned.discard(replaced)

    def _route(self, name: str, key: Key | None) -> None:
        self._routes.pop(name, None)
        if key is not None:
            self._routes[name] = key
        self._found.clear()

    async def add(self, name: str, *, background: bool = False) -> ServedModel:
        """Load a model from disk, `"name"` (its newest version) or `"name:version"`; a served one is loaded again.

        Requests use the old model until the new one is warm. Raises `UnknownModelError` and errors of loading, after
        which the old one still serves. In the `background` it is computed by threads of the lowest priority.
        """
        async with self.changing:
            self.note_problems(await self.loader.run(self.loader.store.problems))
            self.forget_failures(await self.loader.run(self.loader.store.paths))
            path = await self.loader.run(self.loader.store.path, name)
            try:
                served = await self.serve(path, trial=True, background=background)
            except Exception as error:
                log_failure(path, error)
                raise
            self.pinned.add(served.key)
            self._expected.add(served.key)
            self._report()
            self._note_late_models()
            return served

    @property
    def administered(self) -> Administered:
        """The changes of administrators."""
        pinned = frozenset(self.pinned & self._served.keys())
        return Administered(pinned, frozenset(self._dismissed), dict(self._routes), frozenset(self._apart))

    async def take_over(self, changes: Administered, *, background: Collection[Key] = ()) -> None:
        """Serve what another process serves, where an administrator changed it; raises the errors of `add`.

        Those in the `background` are computed by threads of the lowest priority.
        """
        for key in sorted(changes.pinned - self._served.keys()):
            await self.add(names_of(key)[1], background=key in background)
        for key in sorted(changes.dismissed & self._served.keys()):
            await self.remove(names_of(key)[1])
        self.pinned, self._dismissed = set(changes.pinned), set(changes.dismissed)
        self._routes, self._apart = dict(changes.routes), set(changes.apart)
        self._found.clear()

    async def remove(self, name: str) -> list[Key]:
        """Stop serving a model, all its versions or `"name:version"`, and return their keys.

        Requests that hold it are still answered. Raises `UnknownModelError`.
        """
        async with self.changing:
            removed = [key for key in self._served if name in names_of(key)]
            if not removed:
                raise UnknownModelError(name, full_names(self._served))
            for key in removed:
                self._drain(self._taken_out(key))
            self.pinned -= set(removed)
            self._dismissed |= set(removed)
            self._expected -= set(removed)
            self._report()
            return removed

    def _taken_out(self, key: Key) -> ServedModel:
        self._found.clear()
        return self._served.pop(key)

    async def serve(self, path: Path, *, trial: bool = False, background: bool = False) -> ServedModel:
        """Load the bundle in a directory and serve it, in place of the same version where that is served.

        Another process loads the bundle first where `trial` is set.
        """
        started = time.monotonic()
        try:
            served = await self.loader.load(path, trial=trial, background=background)
        except Exception as error:
            self._failures[path] = error
            self._metrics.load_failures.labels(reason_of(error)).inc()
            self._report()
            raise
        self._failures.pop(path, None)
        replaced = self._served.get(served.key)
        self._served[served.key] = served
        self._found.clear()
        served.observer.on_change = self._report
        self._dismissed.discard(served.key)
        served.observer.loaded(time.monotonic() - started)
        logger.info("loaded %s:%s in %.2f s", *served.key, time.monotonic() - started)
        self._report()
        if replaced is not None:
            self._drain(replaced)
        return served

    @property
    def problems(self) -> Mapping[Path, str]:
        """Bundles that failed to load the last time, and entries of the model directories that hold none, with why."""
        failures = {path: _problem_of(error) for path, error in self._failures.items()}
        return dict(sorted((self._entry_problems | failures).items()))

    def note_problems(self, found: Mapping[Path, str]) -> None:
        """Take note of entries of the model directories that hold no bundle, with a warning for new ones."""
        for path, problem in found.items():
            if self._entry_problems.get(path) != problem:
                logger.warning("%s is skipped: %s", path, problem)
        self._entry_problems = dict(found)
        self._report()

    def forget_failures(self, bundles: Collection[Path]) -> None:
        """Forget the failures of all but these bundles, the others being no longer there or wanted."""
        self._failures = {path: error for path, error in self._failures.items() if path in bundles}
        self._report()

    def retain(self, wanted: set[Key], pinned: set[Key]) -> None:
        """Unload all other models. The newest version of a model stays until its successor has loaded."""
        self.pinned = pinned
        loaded = {name for name, _ in wanted & self._served.keys()}
        awaited = {name for name, _ in wanted} - loaded
        for key in self._served.keys() - wanted - pinned:
            if key[0] not in awaited:
                self._drain(self._taken_out(key))
        self._expected = wanted - self._dismissed | pinned
        self._report()
        self._note_late_models()

    def _report(self) -> None:
        """Set the gauges of expected models and of those that are ready."""
        working = {key for key, served in self._served.items() if served.batcher.working}
        self._metrics.models_expected.set(len(self._expected))
        self._metrics.models_ready.set(len(self._expected & working))
        self._metrics.bundle_problems.set(len(self._failures.keys() | self._entry_problems.keys()))

    def _note_late_models(self) -> None:
        """Become ready once a model is loaded where the directories held none at the start: a volume may be late."""
        if not self._paths and self._served:
            self.loaded = True

    def _drain(self, served: ServedModel) -> None:
        """Unload a model that requests no longer find, once those that hold it are answered."""

        async def drain() -> None:
            await served.drain()
            self.on_unload(served)
            served.observer.unloaded()
            self.heap_trimmer.request()
            logger.info("unloaded %s:%s", *served.key)

        task = asyncio.create_task(drain())
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)


def log_failure(path: Path, error: BaseException) -> None:
    """Log in one line that a bundle does not load."""
    logger.error("%s does not load: %s", path, _problem_of(error))


def _problem_of(error: BaseException) -> str:
    problems = "; ".join(error.problems) if isinstance(error, BundleError) else str(error)
    return " ".join(problems.split())
