"""Jobs in the database. All functions block.

A job is computed by the process that holds its lease, which it must renew; only the holder can store results. A lease
that was not renewed, for its process has died, can be taken, and the job goes on after the results that were stored.
"""

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sqlalchemy import Connection, delete, func, insert, select, update

from models.text.language_codes import two_letters
from service.store.database import Database, lock
from service.store.tables import JOB_FILES, JOB_RESULTS, JOBS
from service.store.usage import add_characters

__all__ = ["Computed", "DoubtfulText", "Held", "Job", "JobDatabase", "NewJob", "State", "TooManyJobs"]

State = Literal["queued", "translating", "done", "error"]
_OPEN: tuple[State, ...] = ("queued", "translating")
_ID = re.compile("[0-9a-f]{32}")
_MOST_DOUBTFUL = 20
"""Texts whose results are likely to be wrong that a job names."""
_MOST_ATTEMPTS = 3
"""Times that a job is begun without any result: a document may be what ends the processes that read it."""


class TooManyJobs(Exception):
    """A job beyond the limits on jobs and on bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewJob:
    """A document to be translated."""

    owner: str
    """Name of the API key, nothing without one."""
    form: str
    """Format of the document."""
    model: str
    """`name:version`"""
    operation: str
    options: Mapping[str, Any]
    """`params` of the operation, `document`, what of the document is read, and `through`, the first step where there is
    a third language."""
    content: bytes


@dataclass(frozen=True, slots=True)
class DoubtfulText:
    """A text whose result is likely to be wrong."""

    context: str
    """Where it is in the document, such as `line 3`; empty where its format has no such names."""
    text: str
    """Its beginning, in the document that was sent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Computed:
    """Results of texts of a job that are stored together."""

    results: Mapping[int, str | None]
    """The result of each text by its place; None where it was refused."""
    characters: int
    """Characters of all places in the document that have these texts."""
    failed: int
    """Places of texts that were refused."""
    doubtful: int = 0
    """Places of texts whose results are likely to be wrong."""
    doubtful_texts: Sequence[DoubtfulText] = ()
    """These texts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A job as it is in the database."""

    id: str
    owner: str
    state: State
    form: str
    model: str
    operation: str
    options: Mapping[str, Any]
    size: int
    characters: int | None
    """Characters of all texts; None before the document was read."""
    characters_done: int
    failed: int
    """Texts that were refused and stay as they are."""
    doubtful: int
    """Texts whose results are likely to be wrong."""
    doubtful_texts: Sequence[DoubtfulText]
    """The first of these that were computed."""
    error: str | None
    created: float
    expires: float
    claimed: float | None
    claimed_characters: int

    @property
    def via(self) -> str | None:
        """Code of the third language that the document is translated through."""
        through = self.options.get("through")
        return None if through is None else two_letters(through["written"])

    @property
    def percent(self) -> float:
        """Share of the characters that are done, in percent."""
        if self.state == "done":
            return 100.0
        return 100.0 * self.characters_done / self.characters if self.characters else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Expected time until the job is done, by its speed since it was begun or resumed; None where not known."""
        done = self.characters_done - self.claimed_characters
        if self.state != "translating" or self.claimed is None or self.characters is None or done <= 0:
            return None
        return (time.time() - self.claimed) / done * (self.characters - self.characters_done)


@dataclass(frozen=True, slots=True)
class Held:
    """A job whose lease this process holds, its document, and the results that are stored already."""

    job: Job
    content: bytes
    results: Mapping[int, str | None]
    """The result of each text by its place; None where it was refused."""


class JobDatabase:
    """Jobs in a database, which several processes can share."""

    def __init__(
        self, database: Database, *, per_owner: int, max_bytes: int, lifetime: float, lease_seconds: float
    ) -> None:
        """Store jobs in a database.

        `per_owner` is the largest number of jobs of an API key, `max_bytes` the size of all documents and results,
        `lifetime` the seconds for which a job is kept, `lease_seconds` those after which its lease can be taken.
        """
        self._per_owner, self._max_bytes, self._lifetime = per_owner, max_bytes, lifetime
        self.lease_seconds = lease_seconds
        self._name = secrets.token_hex(16)
        self._database = database

    def add(self, new: NewJob) -> tuple[Job, str]:
        """Store a job; return it and its secret. Raises `TooManyJobs`."""
        now, secret = time.time(), secrets.token_urlsafe(24)
        options = json.dumps(new.options)
        size = 2 * len(new.content) + len(options)  # the result is about as large
        with self._database.transaction() as connection:
            lock(connection, JOBS)
            connection.execute(delete(JOBS).where(JOBS.c.expires < now))
            count = connection.execute(
                select(func.count()).select_from(JOBS).where(JOBS.c.owner == new.owner, JOBS.c.state.in_(_OPEN))
            ).scalar_one()
            if count >= self._per_owner:
                raise TooManyJobs(f"{count} documents of this key are not done yet; the limit is {self._per_owner}")
            held = connection.execute(select(func.coalesce(func.sum(JOBS.c.size), 0))).scalar_one()
            if held + size > self._max_bytes:
                raise TooManyJobs("the service holds as many bytes of documents as it may; delete documents, or wait")
            values = {
                "id": secrets.token_hex(16),
                "secret": _digest(secret),
                "owner": new.owner,
                "state": "queued",
                "form": new.form,
                "model": new.model,
                "operation": new.operation,
                "options": options,
                "size": size,
                "created": now,
                "expires": now + self._lifetime,
            }
            connection.execute(insert(JOBS).values(**values))
            connection.execute(insert(JOB_FILES).values(job=values["id"], kind="source", content=new.content))
            return _job(connection, str(values["id"])), secret

    def find(self, identifier: str, secret: str, owner: str | None) -> Job | None:
        """Return the job of an id, a secret and an owner, of any without one; None where there is none."""
        if _ID.fullmatch(identifier) is None:  # clients choose it, and no database takes every character
            return None
        with self._database.reading() as connection:
            row = connection.execute(
                select(JOBS.c.secret, JOBS.c.owner, JOBS.c.expires).where(JOBS.c.id == identifier)
            ).first()
            known = row is not None and hmac.compare_digest(row.secret, _digest(secret))
            others = row is not None and owner is not None and row.owner != owner
            if row is None or not known or others or row.expires < time.time():
                return None
            return _job(connection, identifier)

    def result(self, identifier: str) -> bytes | None:
        """Return the translated document of a job that is done."""
        with self._database.reading() as connection:
            found = connection.execute(
                select(JOB_FILES.c.content).where(JOB_FILES.c.job == identifier, JOB_FILES.c.kind == "result")
            ).first()
            return None if found is None else bytes(found.content)

    def delete(self, identifier: str) -> None:
        """Remove a job and all of its data; the process that computes it stops at its next text."""
        with self._database.transaction() as connection:
            connection.execute(delete(JOBS).where(JOBS.c.id == identifier))

    def remove_expired(self) -> None:
        """Remove the jobs that have expired."""
        with self._database.transaction() as connection:
            connection.execute(delete(JOBS).where(JOBS.c.expires < time.time()))

    def claim(self) -> Held | None:
        """Take the lease of the oldest job that no process computes; None where there is none."""
        now = time.time()
        free = (JOBS.c.state.in_(_OPEN), JOBS.c.lease_until < now, JOBS.c.expires > now)
        with self._database.reading() as connection:
            found = connection.execute(select(JOBS.c.id).where(*free).order_by(JOBS.c.created).limit(1)).first()
        if found is None:
            return None
        with self._database.transaction() as connection:
            taken = connection.execute(
                update(JOBS)
                .where(JOBS.c.id == found.id, *free)
                .values(
                    state="translating",
                    lease=self._name,
                    lease_until=now + self.lease_seconds,
                    claimed=now,
                    claimed_characters=JOBS.c.characters_done,
                    attempts=JOBS.c.attempts + 1,
                )
            )
            if taken.rowcount != 1:
                return None
            attempts = connection.execute(select(JOBS.c.attempts).where(JOBS.c.id == found.id)).scalar_one()
            if attempts > _MOST_ATTEMPTS:
                error = "the service ended several times while it read the document"
                self._finish(connection, found.id, None, error)
                return None
            content = connection.execute(
                select(JOB_FILES.c.content).where(JOB_FILES.c.job == found.id, JOB_FILES.c.kind == "source")
            ).scalar_one()
            results = connection.execute(
                select(JOB_RESULTS.c.position, JOB_RESULTS.c.text).where(JOB_RESULTS.c.job == found.id)
            ).all()
            return Held(_job(connection, found.id), bytes(content), {row.position: row.text for row in results})

    def renew(self, identifier: str, **values: Any) -> bool:
        """Renew the lease of a job, and set other values; return whether this process still holds it."""
        with self._database.transaction() as connection:
            return self._renew(connection, identifier, **values)

    def store(self, identifier: str, computed: Computed) -> bool:
        """Store results of texts; return whether this process still holds the lease."""
        with self._database.transaction() as connection:
            held = self._renew(
                connection,
                identifier,
                characters_done=JOBS.c.characters_done + computed.characters,
                failed=JOBS.c.failed + computed.failed,
                doubtful=JOBS.c.doubtful + computed.doubtful,
                attempts=0,
            )
            if held and computed.results:
                rows = [
                    {"job": identifier, "position": place, "text": text} for place, text in computed.results.items()
                ]
                connection.execute(insert(JOB_RESULTS), rows)
            if held and computed.doubtful_texts:
                known = connection.execute(select(JOBS.c.doubtful_texts).where(JOBS.c.id == identifier)).scalar_one()
                texts = [*json.loads(known), *map(asdict, computed.doubtful_texts)][:_MOST_DOUBTFUL]
                self._renew(connection, identifier, doubtful_texts=json.dumps(texts))
            return held

    def finish(self, identifier: str, content: bytes | None, error: str | None = None) -> bool:
        """Store the translated document, or the error; return whether this process held the lease."""
        with self._database.transaction() as connection:
            return self._finish(connection, identifier, content, error)

    def _finish(self, connection: Connection, identifier: str, content: bytes | None, error: str | None) -> bool:
        size = 0 if content is None else len(content)
        state = "done" if error is None else "error"
        if not self._renew(connection, identifier, state=state, error=error, size=size, lease=None):
            return False
        connection.execute(delete(JOB_FILES).where(JOB_FILES.c.job == identifier))
        connection.execute(delete(JOB_RESULTS).where(JOB_RESULTS.c.job == identifier))
        if content is not None:
            connection.execute(insert(JOB_FILES).values(job=identifier, kind="result", content=content))
            job = connection.execute(select(JOBS.c.owner, JOBS.c.characters).where(JOBS.c.id == identifier)).one()
            add_characters(connection, {job.owner: job.characters or 0})
        return True

    def release(self, identifier: str) -> None:
        """Give the lease of a job back, so that another process can go on at once."""
        with self._database.transaction() as connection:
            connection.execute(
                update(JOBS)
                .where(JOBS.c.id == identifier, JOBS.c.lease == self._name)
                .values(lease_until=0.0, attempts=0)
            )

    def _renew(self, connection: Connection, identifier: str, **values: Any) -> bool:
        values = {"lease_until": time.time() + self.lease_seconds, **values}
        done = connection.execute(
            update(JOBS).where(JOBS.c.id == identifier, JOBS.c.lease == self._name).values(**values)
        )
        return bool(done.rowcount == 1)


def _job(connection: Connection, identifier: str) -> Job:
    row = connection.execute(select(JOBS).where(JOBS.c.id == identifier)).one()
    names: Sequence[str] = tuple(Job.__dataclass_fields__)
    values = {name: getattr(row, name) for name in names if name not in ("options", "doubtful_texts")}
    doubtful = tuple(DoubtfulText(**each) for each in json.loads(row.doubtful_texts))
    return Job(**values, options=json.loads(row.options), doubtful_texts=doubtful)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
