"""The database of the service: SQLite, or PostgreSQL, through SQLAlchemy Core.

Several processes can share it. Functions that use a connection block: event loops call them with `Database.call`.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Table, create_engine, event, insert, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from service.store.tables import MIGRATIONS, SCHEMA, metadata

__all__ = ["Database", "DatabaseError", "lock"]

T = TypeVar("T")
_BUSY_SECONDS = 30
"""How long SQLite waits for another process that writes."""
_MIGRATION_LOCK = 0x50F75E
"""The lock of PostgreSQL that the process holds which creates or changes tables; a number of this service."""
_SQLITE_BEGIN = "softserve_begin"
"""Option of an engine: the statement that begins a transaction of SQLite."""


class DatabaseError(Exception):
    """A database that cannot be opened."""


class Database:
    """A database that several processes can share, with all tables of the service."""

    def __init__(self, url: str) -> None:
        """Open it, create tables that it lacks and migrate older ones; raises `DatabaseError`."""
        self._reading = _opened(url)
        self._writing = self._reading.execution_options(**{_SQLITE_BEGIN: "BEGIN IMMEDIATE"})
        self._thread = ThreadPoolExecutor(1, "softserve-database")
        try:
            _retried(self._migrate)
        except Exception as error:
            self.close()
            if isinstance(error, DBAPIError):
                raise DatabaseError(f"--database: {str(error)[:300]}") from None
            raise

    def transaction(self) -> contextlib.AbstractContextManager[Connection]:
        """Return a connection whose statements are committed together; in SQLite one at a time has a transaction."""
        return self._writing.begin()

    def reading(self) -> contextlib.AbstractContextManager[Connection]:
        """Return a connection that only reads, and waits for no transaction."""
        return self._reading.connect()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that uses the database on its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """Close all connections, after the calls that were made."""
        self._thread.shutdown(wait=True)
        self._reading.dispose()

    def _migrate(self) -> None:
        with self.transaction() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
            SCHEMA.create(connection, checkfirst=True)
            version = connection.execute(select(SCHEMA.c.version)).scalar()
            if version is None:
                connection.execute(insert(SCHEMA).values(version=len(MIGRATIONS)))
            elif version > len(MIGRATIONS):
                raise DatabaseError("--database: its tables are those of a newer version of the service")
            else:
                for migrate in MIGRATIONS[version:]:
                    migrate(connection)
                connection.execute(update(SCHEMA).values(version=len(MIGRATIONS)))
            metadata.create_all(connection)


def lock(connection: Connection, table: Table) -> None:
    """Let one transaction at a time go on from here, so that it can count rows before it adds some.

    SQLite has one transaction that writes at a time, so that nothing is done there.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")


def _opened(url: str) -> Engine:
    try:
        address = make_url(url)
        backend = address.get_backend_name()
        if backend not in ("sqlite", "postgresql"):
            raise DatabaseError(f"--database: {backend} is neither sqlite nor postgresql")
        options: dict[str, Any] = {"pool_pre_ping": True}
        if backend == "sqlite":
            if not address.database or address.database == ":memory:":
                raise DatabaseError("--database: name a file: sqlite:///PATH")
            os.close(os.open(address.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # for its owner alone
            options["connect_args"] = {"timeout": _BUSY_SECONDS}
        engine = create_engine(address, **options)
        if backend == "sqlite":
            event.listen(engine, "connect", _configure_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
    except (ArgumentError, ModuleNotFoundError, OSError) as error:
        raise DatabaseError(f"--database: {str(error)[:300]}") from None
    return engine


def _retried(create: Callable[[], object]) -> None:
    """Create tables, also where another process does so at the same time."""
    try:
        create()
    except DBAPIError:
        create()


def _configure_sqlite(connection: Any, _: object) -> None:
    """Write ahead, so that readers need not wait, and commits outlive a process that is killed."""
    connection.isolation_level = None  # transactions begin where SQLAlchemy says so, not at the first write
    for setting in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction, one that writes at once: another one that read before would fail where it writes."""
    connection.exec_driver_sql(connection.get_execution_options().get(_SQLITE_BEGIN, "BEGIN"))
