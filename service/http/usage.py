"""Characters that API keys have used: in the database, else in memory since the start."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from service.engine.tenants import Tenants

if TYPE_CHECKING:
    from service.store.database import Database

__all__ = ["Usage"]

logger = logging.getLogger("softserve")

_FLUSH_SECONDS = 2.0
"""Between two transactions, which hold the counts of all requests meanwhile; a process that is killed loses those."""


class Usage:
    """Counts of a process, which it adds to those in the database from time to time.

    The use of daily budgets (`characters_per_day`) is stored then as well, and continued after a restart.
    """

    def __init__(self, database: "Database | None", tenants: Tenants) -> None:
        self._database, self._tenants = database, tenants
        self._new: Counter[str] = Counter()
        self._stored: dict[str, tuple[int, int]] = {}
        """The use of daily budgets in the database, such as this process has written or read it."""

    def add(self, owner: str, characters: int) -> None:
        """Count characters of an API key."""
        self._new[owner] += characters

    async def count(self, owner: str) -> int:
        """Return the characters of an API key: of all processes, those of other ones up to their last transaction."""
        if self._database is None:
            return self._new[owner]
        from service.store.usage import count_characters

        await self._flush()
        return await self._database.call(count_characters, self._database, owner)

    def day_budget(self, owner: str) -> tuple[int, int] | None:
        """Return the characters of today and their limit, of an API key with a daily budget."""
        budget = self._tenants.day_budget(owner)
        return None if budget is None else (budget.limit - budget.left, budget.limit)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Store counts meanwhile, and at the end."""
        if self._database is None:
            yield
            return
        from service.store.usage import read_day_use

        self._stored = await self._database.call(read_day_use, self._database)
        self._tenants.resume(self._stored)
        task = asyncio.create_task(self._store())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            await self._flush()

    async def _store(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            await self._flush()

    async def _flush(self) -> None:
        """Add the new counts to those of the database; they are kept for the next time where that fails."""
        assert self._database is not None
        day_use = {owner: use for owner, use in self._tenants.day_use.items() if self._stored.get(owner) != use}
        if not self._new and not day_use:
            return
        new, self._new = self._new, Counter()
        try:
            await asyncio.shield(self._database.call(self._add, new, day_use))
        except Exception:
            logger.exception("counts of characters are not stored yet")
            self._new += new
        else:
            self._stored |= day_use

    def _add(self, new: Counter[str], day_use: Mapping[str, tuple[int, int]]) -> None:
        from service.store.usage import add_characters, write_day_use

        assert self._database is not None
        with self._database.transaction() as connection:
            add_characters(connection, new)
            write_day_use(connection, day_use)
