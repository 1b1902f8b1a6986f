"""Watching model directories: bundles that appear, change or disappear while the service runs."""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from models.store import NO_MANIFEST
from service.engine.loading import Loader, Signature, key_of, signature_of
from service.engine.served_models import ServedModels, log_failure

__all__ = ["DirectoryWatcher"]

logger = logging.getLogger("softserve")


@dataclass(frozen=True, slots=True)
class _Found:
    """The bundles in the model directories."""

    wanted: dict[Path, Signature]
    """Those to be served."""
    pinned: dict[Path, Signature]
    """Those that an administrator loaded."""
    hidden: set[Path]
    """Those of served models that cannot be read at present."""


class DirectoryWatcher:
    """Keeps the served models those that are on disk.

    Bundles that are new or have changed are loaded, and then those unloaded that are not to be served any more. One
    that does not load, perhaps because it is still being copied, is tried again when its files have changed. Models
    that an administrator loaded stay until an administrator unloads them or their files are deleted. Where no bundle at
    all is found, all served models stay: a disk is more often lost than emptied. So does a model whose directory cannot
    be read any more, in place of an older version.
    """

    def __init__(self, served_models: ServedModels, loader: Loader) -> None:
        self._served_models, self._loader = served_models, loader

    async def run(self, seconds: float) -> None:
        """Check the directories every so many seconds, until cancelled."""
        problem = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                async with self._served_models.changing:
                    await self._update()
                problem = ""
            except Exception as error:  # an unreadable disk must not end the watch
                if str(error) != problem:
                    logger.warning("model directories cannot be read: %s", error)
                problem = str(error)

    async def _update(self) -> None:
        signatures = self._loader.signatures
        self._served_models.note_problems(await self._loader.run(self._loader.store.problems))
        found = await self._loader.run(self._scan)
        self._served_models.forget_failures(found.wanted.keys() | found.pinned.keys())
        for path, signature in (found.wanted | found.pinned).items():
            if signature == signatures.get(path):
                continue
            try:
                await self._served_models.serve(path, trial=True)
            except Exception as error:
                log_failure(path, error)
        wanted, pinned, hidden = (set(map(key_of, each)) for each in (found.wanted, found.pinned, found.hidden))
        self._served_models.retain(wanted | hidden, pinned | hidden & self._served_models.pinned)
        for path in signatures.keys() - found.wanted.keys() - found.pinned.keys() - found.hidden:
            del signatures[path]

    def _scan(self) -> "_Found":
        """Return the bundles as they are on disk now; raises `FileNotFoundError` where there are none."""
        store, served = self._loader.store, self._served_models.served
        unreadable = {path for path, problem in store.problems().items() if problem != NO_MANIFEST}
        loaded = [path for path in list(self._loader.signatures) if key_of(path) in served]
        hidden = {path for path in loaded if not unreadable.isdisjoint([path, *path.parents])}
        newest = dict(sorted(map(key_of, hidden)))
        wanted = {
            path: signature_of(path)
            for path in self._loader.configured()
            if path in loaded or key_of(path)[1] > newest.get(path.parent.name, 0)
        }
        if not wanted:
            raise FileNotFoundError("they hold no bundle")
        pinned = {path: signature_of(path) for path in store.paths() if key_of(path) in self._served_models.pinned}
        return _Found(wanted, pinned, hidden)
