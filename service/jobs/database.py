"""The database of jobs: SQLite, or PostgreSQL, through SQLAlchemy Core. All functions block.

A job is computed by the process that holds its lease, which it must renew; only the holder can store results. A lease
that was not renewed, for its process has died, can be taken, and the job goes on after the results that were stored.
"""

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    Column,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, OperationalError, ProgrammingError

__all__ = ["DatabaseError", "Held", "Job", "JobDatabase", "NewJob", "State", "TooManyJobs"]

State = Literal["queued", "translating", "done", "error"]
_OPEN: tuple[State, ...] = ("queued", "translating")
_metadata = MetaData()
_jobs = Table(
    "softserve_jobs",
    _metadata,
    Column("id", String(32), primary_key=True),
    Column("secret", String(64), nullable=False),
    Column("owner", String(200), nullable=False),
    Column("state", String(16), nullable=False),
    Column("form", String(16), nullable=False),
    Column("model", String(300), nullable=False),
    Column("operation", String(100), nullable=False),
    Column("options", Text, nullable=False),
    Column("size", Integer, nullable=False),
    Column("characters", Integer),
    Column("characters_done", Integer, nullable=False, default=0),
    Column("failed", Integer, nullable=False, default=0),
    Column("attempts", Integer, nullable=False, default=0),
    Column("error", Text),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("claimed", Float),
    Column("claimed_characters", Integer, nullable=False, default=0),
    Column("lease", String(64)),
    Column("lease_until", Float, nullable=False, default=0.0),
    Index("softserve_jobs_waiting", "state", "lease_until", "created"),
)
_files = Table(
    "softserve_job_files",
    _metadata,
    Column("job", String(32), ForeignKey("softserve_jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("kind", String(8), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)
_results = Table(
    "softserve_job_results",
    _metadata,
    Column("job", String(32), ForeignKey("softserve_jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("text", Text),
)
_MOST_ATTEMPTS = 3
"""Times that a job is begun without any result: a document may be what ends the processes that read it."""
_BUSY_SECONDS = 30
"""How long SQLite waits for another process that writes."""


class DatabaseError(Exception):
    """A database that cannot be opened."""


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
    """`params` of the operation and `document`, what of the document is read."""
    content: bytes


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
    error: str | None
    created: float
    expires: float
    claimed: float | None
    claimed_characters: int

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

    def __init__(self, url: str, *, per_owner: int, max_bytes: int, lifetime: float, lease_seconds: float) -> None:
        """Open it, and create its tables where there are none; raises `DatabaseError`.

        `per_owner` is the largest number of jobs of an API key, `max_bytes` the size of all documents and results,
        `lifetime` the seconds for which a job is kept, `lease_seconds` those after which its lease can be taken.
        """
        self._per_owner, self._max_bytes, self._lifetime = per_owner, max_bytes, lifetime
        self.lease_seconds = lease_seconds
        self._name = secrets.token_hex(16)
        self._engine = _opened(url)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def add(self, new: NewJob) -> tuple[Job, str]:
        """Store a job; return it and its secret. Raises `TooManyJobs`."""
        now, secret = time.time(), secrets.token_urlsafe(24)
        with self._engine.begin() as connection:
            _lock(connection)
            connection.execute(delete(_jobs).where(_jobs.c.expires < now))
            count = connection.execute(
                select(func.count()).select_from(_jobs).where(_jobs.c.owner == new.owner, _jobs.c.state.in_(_OPEN))
            ).scalar_one()
            if count >= self._per_owner:
                raise TooManyJobs(f"{count} documents of this key are not done yet; the limit is {self._per_owner}")
            held = connection.execute(select(func.coalesce(func.sum(_jobs.c.size), 0))).scalar_one()
            if held + 2 * len(new.content) > self._max_bytes:
                raise TooManyJobs("the service holds as many bytes of documents as it may; delete documents, or wait")
            values = {
                "id": secrets.token_hex(16),
                "secret": _digest(secret),
                "owner": new.owner,
                "state": "queued",
                "form": new.form,
                "model": new.model,
                "operation": new.operation,
                "options": json.dumps(new.options),
                "size": 2 * len(new.content),  # the result is about as large
                "created": now,
                "expires": now + self._lifetime,
            }
            connection.execute(insert(_jobs).values(**values))
            connection.execute(insert(_files).values(job=values["id"], kind="source", content=new.content))
            return _job(connection, str(values["id"])), secret

    def find(self, identifier: str, secret: str, owner: str) -> Job | None:
        """Return the job of an id whose secret and owner these are; None where there is none."""
        with self._engine.connect() as connection:
            row = connection.execute(
                select(_jobs.c.secret, _jobs.c.owner, _jobs.c.expires).where(_jobs.c.id == identifier[:32])
            ).first()
            known = row is not None and hmac.compare_digest(row.secret, _digest(secret))
            if row is None or not known or row.owner != owner or row.expires < time.time():
                return None
            return _job(connection, identifier)

    def result(self, identifier: str) -> bytes | None:
        """Return the translated document of a job that is done."""
        with self._engine.connect() as connection:
            found = connection.execute(
                select(_files.c.content).where(_files.c.job == identifier, _files.c.kind == "result")
            ).first()
            return None if found is None else bytes(found.content)

    def delete(self, identifier: str) -> None:
        """Remove a job and all of its data; the process that computes it stops at its next text."""
        with self._engine.begin() as connection:
            connection.execute(delete(_jobs).where(_jobs.c.id == identifier))

    def remove_expired(self) -> None:
        """Remove the jobs whose time is over."""
        with self._engine.begin() as connection:
            connection.execute(delete(_jobs).where(_jobs.c.expires < time.time()))

    def claim(self) -> Held | None:
        """Take the lease of the oldest job that nobody computes; None where there is none."""
        now = time.time()
        free = (_jobs.c.state.in_(_OPEN), _jobs.c.lease_until < now, _jobs.c.expires > now)
        with self._engine.connect() as connection:
            found = connection.execute(select(_jobs.c.id).where(*free).order_by(_jobs.c.created).limit(1)).first()
        if found is None:
            return None
        with self._engine.begin() as connection:
            taken = connection.execute(
                update(_jobs)
                .where(_jobs.c.id == found.id, *free)
                .values(
                    state="translating",
                    lease=self._name,
                    lease_until=now + self.lease_seconds,
                    claimed=now,
                    claimed_characters=_jobs.c.characters_done,
                    attempts=_jobs.c.attempts + 1,
                )
            )
            if taken.rowcount != 1:
                return None
            attempts = connection.execute(select(_jobs.c.attempts).where(_jobs.c.id == found.id)).scalar_one()
            if attempts > _MOST_ATTEMPTS:
                error = "the service ended several times while it read the document"
                self._finish(connection, found.id, None, error)
                return None
            content = connection.execute(
                select(_files.c.content).where(_files.c.job == found.id, _files.c.kind == "source")
            ).scalar_one()
            results = connection.execute(
                select(_results.c.position, _results.c.text).where(_results.c.job == found.id)
            ).all()
            return Held(_job(connection, found.id), bytes(content), {row.position: row.text for row in results})

    def renew(self, identifier: str, **values: Any) -> bool:
        """Renew the lease of a job, and set other values; return whether this process still holds it."""
        with self._engine.begin() as connection:
            return self._renew(connection, identifier, **values)

    def store(self, identifier: str, results: Mapping[int, str | None], characters: int, failed: int) -> bool:
        """Store results of texts with so many characters; return whether this process still holds the lease."""
        with self._engine.begin() as connection:
            held = self._renew(
                connection,
                identifier,
                characters_done=_jobs.c.characters_done + characters,
                failed=_jobs.c.failed + failed,
                attempts=0,
            )
            if held and results:
                rows = [{"job": identifier, "position": place, "text": text} for place, text in results.items()]
                connection.execute(insert(_results), rows)
            return held

    def finish(self, identifier: str, content: bytes | None, error: str | None = None) -> bool:
        """Store the translated document, or the error; return whether this process held the lease."""
        with self._engine.begin() as connection:
            return self._finish(connection, identifier, content, error)

    def _finish(self, connection: Any, identifier: str, content: bytes | None, error: str | None) -> bool:
        size = 0 if content is None else len(content)
        state = "done" if error is None else "error"
        if not self._renew(connection, identifier, state=state, error=error, size=size, lease=None):
            return False
        connection.execute(delete(_files).where(_files.c.job == identifier))
        connection.execute(delete(_results).where(_results.c.job == identifier))
        if content is not None:
            connection.execute(insert(_files).values(job=identifier, kind="result", content=content))
        return True

    def release(self, identifier: str) -> None:
        """Give the lease of a job back, so that another process can go on at once."""
        with self._engine.begin() as connection:
            connection.execute(
                update(_jobs)
                .where(_jobs.c.id == identifier, _jobs.c.lease == self._name)
                .values(lease_until=0.0, attempts=0)
            )

    def _renew(self, connection: Any, identifier: str, **values: Any) -> bool:
        values = {"lease_until": time.time() + self.lease_seconds, **values}
        done = connection.execute(
            update(_jobs).where(_jobs.c.id == identifier, _jobs.c.lease == self._name).values(**values)
        )
        return bool(done.rowcount == 1)


def _opened(url: str) -> Engine:
    try:
        address = make_url(url)
        if address.get_backend_name() not in ("sqlite", "postgresql"):
            raise DatabaseError(f"--jobs-database: {address.get_backend_name()} is neither sqlite nor postgresql")
        options: dict[str, Any] = {"pool_pre_ping": True}
        if address.get_backend_name() == "sqlite":
            if not address.database or address.database == ":memory:":
                raise DatabaseError("--jobs-database: name a file: sqlite:///PATH")
            os.close(os.open(address.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # for its owner alone
            options["connect_args"] = {"timeout": _BUSY_SECONDS}
        engine = create_engine(address, **options)
        if address.get_backend_name() == "sqlite":
            event.listen(engine, "connect", _configure_sqlite)
        _retried(lambda: _metadata.create_all(engine))
    except (ArgumentError, ModuleNotFoundError, OperationalError, OSError) as error:
        raise DatabaseError(f"--jobs-database: {str(error)[:300]}") from None
    return engine


def _retried(create: Callable[[], object]) -> None:
    """Create tables, also where another process does so at the same time."""
    try:
        create()
    except (OperationalError, IntegrityError, ProgrammingError):
        create()


def _configure_sqlite(connection: Any, _: object) -> None:
    """Write ahead, so that readers need not wait, and a process that is killed leaves what it has committed."""
    for setting in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {setting}")


def _lock(connection: Any) -> None:
    """Let one process at a time count and add jobs."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("LOCK TABLE softserve_jobs IN SHARE ROW EXCLUSIVE MODE")
    else:
        connection.execute(update(_jobs).where(_jobs.c.id == "").values(failed=0))  # begins to write


def _job(connection: Any, identifier: str) -> Job:
    row = connection.execute(select(_jobs).where(_jobs.c.id == identifier)).one()
    names: Sequence[str] = tuple(Job.__dataclass_fields__)
    values = {name: getattr(row, name) for name in names if name != "options"}
    return Job(**values, options=json.loads(row.options))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
