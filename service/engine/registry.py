"""The models a service serves: loading, warming up, finding by name, stopping."""

import asyncio
import base64
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from models import (
    Classifier,
    Generator,
    ImageClassifier,
    LanguageModel,
    Manifest,
    ModelStore,
    Translator,
    UnknownModelError,
)
from models.manifest import MANIFEST, sha256_of
from models.sequence_to_sequence import SequenceToSequenceModel
from models.store import Model
from service.engine.decoding import DecodingWorker
from service.engine.queue import Limits
from service.engine.worker import BatchWorker, Operation, Worker
from service.metrics import Metrics, ModelObserver
from service.settings import Settings

__all__ = ["NotReady", "Registry", "ServedModel"]

logger = logging.getLogger("softserve")

_BLACK = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
)
"""A PNG file of one pixel."""


class NotReady(Exception):
    """A request that came before its model was loaded."""

    def __init__(self, detail: str = "the model is still being loaded") -> None:
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded model and what runs it."""

    model: Model
    worker: Worker
    observer: ModelObserver
    digest: str
    """sha256 of the manifest, which names the checksum of every other file."""

    @property
    def manifest(self) -> Manifest:
        return self.model.manifest


class Registry:
    """Every served model by name and version. Requests find their model here."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Raises `FileNotFoundError` for a missing model directory, `UnknownModelError` for a name nobody has."""
        self._settings = settings
        self._metrics = metrics
        self._store = ModelStore(*settings.model_dirs)
        self._paths = list(dict.fromkeys(map(self._store.path, settings.models or self._store.versions())))
        self._served: dict[tuple[str, int], ServedModel] = {}
        self.failure: Exception | None = None
        """What kept a model from loading."""
        self.on_failure: Callable[[], object] = lambda: None
        """Called when a model failed to load."""

    @property
    def ready(self) -> bool:
        return len(self._served) == len(self._paths)

    @property
    def served(self) -> Mapping[tuple[str, int], ServedModel]:
        return self._served

    async def load(self) -> None:
        """Loads and warms up every model, one after the other; remembers and raises what goes wrong."""
        try:
            for path in self._paths:
                await self._load(path)
        except Exception as error:
            self.failure = error
            self.on_failure()
            raise

    async def stop(self) -> None:
        """Lets every model finish what it accepted."""
        await asyncio.gather(*(served.worker.stop() for served in self._served.values()))

    def find(self, name: str | None, task: str) -> ServedModel:
        """The model of that name (`"name"`: its newest version, or `"name:version"`) and task.

        Without a name, the one model of the task. Raises `UnknownModelError`, `NotReady` while models load.
        """
        fitting = {key: served for key, served in self._served.items() if served.manifest.task == task}
        if name is None:
            names = {key[0] for key in fitting}
            found = max(fitting, default=None) if len(names) == 1 else None
        else:
            found = max((key for key in fitting if name in (key[0], f"{key[0]}:{key[1]}")), default=None)
        if found is not None:
            return fitting[found]
        if not self.ready:
            raise NotReady("a model failed to load") if self.failure else NotReady
        raise UnknownModelError(name or f"(none named, and {len(fitting)} serve {task})", self._names(fitting))

    @staticmethod
    def _names(served: Mapping[tuple[str, int], ServedModel]) -> list[str]:
        return sorted(f"{name}:{version}" for name, version in served)

    async def _load(self, path: Path) -> None:
        started = time.monotonic()
        model = await asyncio.to_thread(self._load_and_warm_up, path)
        observer = self._metrics.for_model(model.manifest, model.backend)
        worker = _worker(model, self._limits(), observer)
        worker.start()
        manifest = model.manifest
        digest = sha256_of(path / MANIFEST)
        self._served[manifest.name, manifest.version] = ServedModel(model, worker, observer, digest)
        observer.loaded(time.monotonic() - started)
        logger.info("loaded %s:%s in %.2f s", manifest.name, manifest.version, time.monotonic() - started)

    def _load_and_warm_up(self, path: Path) -> Model:
        settings = self._settings
        model = self._store.load(
            path.parent.name, int(path.name), backend=settings.backend, device=settings.device, threads=settings.threads
        )
        for count in (1, min(8, settings.max_batch_items)):
            if isinstance(model, ImageClassifier):
                model.classify([_BLACK] * count)
                continue
            for words in (1, min(32, model.manifest.text.max_tokens)):
                _try(model, [" ".join(["a"] * words)] * count)
        return model

    def _limits(self) -> Limits:
        settings = self._settings
        return Limits(
            max_batch_items=settings.max_batch_items,
            max_batch_tokens=settings.max_batch_tokens,
            batch_cost=settings.batch_cost,
            max_delay=settings.max_delay_ms / 1000,
            max_overtaken=settings.max_overtaken_ms / 1000,
            max_queue_items=settings.max_queue_items,
            max_queue_tokens=settings.max_queue_tokens,
        )


def _try(model: LanguageModel | Translator | Generator | Classifier, texts: list[str]) -> None:
    """Runs everything that the model can do; a word may be several tokens."""
    if isinstance(model, Translator):
        model.translate(texts, truncate=True)
    elif isinstance(model, Generator):
        model.generate(texts, truncate=True)
    elif isinstance(model, Classifier):
        model.classify(texts, truncate=True)
    else:
        model.next_words(texts)
        model.score(texts)


def _worker(model: Model, limits: Limits, observer: ModelObserver) -> Worker:
    if isinstance(model, SequenceToSequenceModel):
        return DecodingWorker(model.start, limits, observer)
    return BatchWorker(operations(model), limits, observer)


def operations(model: LanguageModel | Classifier | ImageClassifier) -> dict[str, Operation]:
    """What a worker can run on a model in batches, by name."""
    if isinstance(model, Classifier | ImageClassifier):
        return {"classify": model.run}
    return {"next-word": model.run_next_words, "score": model.run_score}
