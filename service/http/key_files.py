"""The keys that a service accepts: read at its start, and again where their files change."""

import asyncio
import logging
from pathlib import Path

from service.engine.tenants import Tenants
from service.http.auth import Guard, KeyRing
from service.http.key_file import KeyFile, KeyFileError, read_key_file, read_keys

__all__ = ["KeyFiles"]

logger = logging.getLogger("softserve")

_CHECK_SECONDS = 2.0
"""Time between two checks of the files."""

_Signature = tuple[int, int, int]


class KeyFiles:
    """The files of the keys of users and of administrators; either may be None."""

    def __init__(self, users: Path | None, administrators: Path | None) -> None:
        """Read them; raises the errors of `read_key_file` and `read_keys`."""
        self._paths = users, administrators
        self._signatures = self._signatures_of_files()
        self._users, self._administrators = self._read()

    @property
    def users(self) -> KeyRing | None:
        """The keys of users."""
        return None if self._users is None else KeyRing(self._users.keys)

    @property
    def administrators(self) -> KeyRing | None:
        """The keys of administrators."""
        return None if self._administrators is None else KeyRing(self._administrators)

    def apply(self, tenants: Tenants, guard: Guard | None = None) -> None:
        """Serve the tenants of the files, and accept their keys."""
        tenants.replace(() if self._users is None else self._users.tenants)
        if guard is not None:
            guard.replace(self.users, self.administrators)

    async def watch(self, guard: Guard, tenants: Tenants, seconds: float = _CHECK_SECONDS) -> None:
        """Accept the keys of files that have changed, until cancelled. Where one has mistakes, its old keys stay."""
        while any(self._paths):
            await asyncio.sleep(seconds)
            try:
                if await asyncio.to_thread(self._reload):
                    self.apply(tenants, guard)
                    logger.info("the API keys were read again")
            except (OSError, KeyFileError) as error:
                logger.error("the API keys stay as they were: %s", error)

    def _reload(self) -> bool:
        """Read the files again where they have changed; return whether they have. Raises errors once for a change."""
        signatures = self._signatures_of_files()
        if signatures == self._signatures:
            return False
        self._signatures = signatures
        self._users, self._administrators = self._read()
        return True

    def _read(self) -> tuple[KeyFile | None, list[str] | None]:
        users, administrators = self._paths
        found = None if users is None else read_key_file(users)
        return found, None if administrators is None else read_keys(administrators)

    def _signatures_of_files(self) -> list[_Signature | None]:
        return [_signature(path) for path in self._paths if path is not None]


def _signature(path: Path) -> _Signature | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
