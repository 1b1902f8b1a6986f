"""The jobs of a process: their database, used from the event loop, and the task that computes them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from models.documents import Limits
from service.engine.client import Engine
from service.jobs.database import Job, JobDatabase, NewJob
from service.jobs.worker import Worker
from service.settings import Settings
from service.store.database import Database

__all__ = ["Jobs"]

_HOUR = 3600.0
_MEGABYTE = 1 << 20
_UPLOADS = 8
"""Documents that are received at a time."""
_STORED_TOGETHER = 2
"""Documents that are in memory at a time, to be stored or sent."""


class Jobs:
    """Documents that are translated in the background."""

    def __init__(self, settings: Settings, engine: Engine, database: Database) -> None:
        """Store jobs in a database, and compute them by an engine."""
        self._database = JobDatabase(
            database,
            per_owner=settings.max_documents,
            max_bytes=settings.max_documents_mb * _MEGABYTE,
            lifetime=settings.document_hours * _HOUR,
            lease_seconds=settings.document_lease_seconds,
        )
        self._worker = Worker(engine, self._database, Limits(max_bytes=settings.max_document_bytes))
        self.uploads = asyncio.Semaphore(_UPLOADS)
        self.stored = asyncio.Semaphore(_STORED_TOGETHER)

    async def add(self, new: NewJob) -> tuple[Job, str]:
        """Store a job; return it and its secret. Raises `TooManyJobs`."""
        found = await self._worker.call(self._database.add, new)
        self._worker.wake()
        return found

    async def find(self, identifier: str, secret: str, owner: str | None) -> Job | None:
        """Return the job of an id, a secret and an owner, of any without one; None where there is none."""
        return await self._worker.call(self._database.find, identifier, secret, owner)

    async def beginning(self, form: str, content: bytes, document: Mapping[str, Any]) -> str:
        """Return the first texts of a document, to detect its language. Raises `DocumentError`."""
        return await self._worker.beginning(form, content, document)

    async def result(self, identifier: str) -> bytes | None:
        """Return the translated document of a job that is done."""
        return await self._worker.call(self._database.result, identifier)

    async def delete(self, identifier: str) -> None:
        """Remove a job, which ends its computation."""
        await self._worker.call(self._database.delete, identifier)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Compute jobs meanwhile."""
        task = asyncio.create_task(self._worker.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            self._worker.close()
