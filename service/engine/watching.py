"""Watching model directories: bundles that appear, change or disappear while the service runs."""

import asyncio
import logging
from pathlib import Path

from service.engine.loading import Loader, Signature, key_of, signature_of
from service.engine.registry import Registry

__all__ = ["DirectoryWatcher"]

logger = logging.getLogger("softserve")


class DirectoryWatcher:
    """Keeps the models of a registry those that are on disk.

    Bundles that are new or have changed are loaded, and then those unloaded that are not to be served any more. One
    that does not load, perhaps because it is still being copied, is tried again when its files have changed. Models
    that an administrator loaded stay until an administrator unloads them or their files are deleted. Where no bundle at
    all is found, all served models stay: a disk is more often lost than emptied.
    """

    def __init__(self, registry: Registry, loader: Loader) -> None:
        self._registry, self._loader = registry, loader

    async def run(self, seconds: float) -> None:
        """Check the directories every so many seconds, until cancelled."""
        problem = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                async with self._registry.changing:
                    await self._update()
                problem = ""
            except Exception as error:  # an unreadable disk must not end the watch
                if str(error) != problem:
                    logger.warning("model directories cannot be read: %s", error)
                problem = str(error)

    async def _update(self) -> None:
        signatures = self._loader.signatures
        wanted, pinned = await self._loader.run(self._scan)
        for path, signature in (wanted | pinned).items():
            if signature == signatures.get(path):
                continue
            try:
                await self._registry.serve(path)
            except Exception as error:
                logger.error("%s does not load: %s", path, error)
        self._registry.retain({key_of(path) for path in wanted}, {key_of(path) for path in pinned})
        for path in signatures.keys() - wanted.keys() - pinned.keys():
            del signatures[path]

    def _scan(self) -> tuple[dict[Path, Signature], dict[Path, Signature]]:
        """Return the bundles to be served, and those of pinned models, as they are on disk now."""
        wanted = {path: signature_of(path) for path in self._loader.configured()}
        if not wanted:
            raise FileNotFoundError("they hold no bundle")
        paths = self._loader.store.paths()
        pinned = {path: signature_of(path) for path in paths if key_of(path) in self._registry.pinned}
        return wanted, pinned
