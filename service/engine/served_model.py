"""A loaded model together with the batcher that computes its requests."""

import asyncio
from collections.abc import Iterable

from models import Manifest
from models.tasks.model import AnyModel
from models.tasks.scope import OutOfScope
from service.engine.batcher import Batcher
from service.observability.metrics import ModelObserver

__all__ = ["Key", "ServedModel", "full_names", "names_of"]

Key = tuple[str, int]
"""Name and version."""


class ServedModel:
    """A loaded model, its batcher and its metrics. It counts the requests that hold it, so that it can be drained."""

    def __init__(self, model: AnyModel, batcher: Batcher, observer: ModelObserver, digest: str) -> None:
        self.model = model
        """The model on the first device, by which queries are made."""
        self.batcher = batcher
        self.observer = observer
        self.digest = digest
        """sha256 of the manifest, which holds the checksum of every other file."""
        self.changed_scope: OutOfScope | None = None
        """When an input is out of scope, where an administrator has changed it."""
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
        """Count a request that uses the model; it calls `release` when it has finished."""
        self._users += 1
        self._free.clear()

    def release(self) -> None:
        """Uncount a request."""
        self._users -= 1
        if not self._users:
            self._free.set()

    async def drain(self) -> None:
        """Wait for the requests that hold the model, and stop its batcher."""
        await self._free.wait()
        await self.batcher.stop()


def names_of(key: Key) -> tuple[str, str]:
    """Return the names under which requests find a model: `"name"` and `"name:version"`."""
    return key[0], f"{key[0]}:{key[1]}"


def full_names(keys: Iterable[Key]) -> list[str]:
    """Return the names with versions, sorted."""
    return sorted(names_of(key)[1] for key in keys)
