"""The database: its file, transactions of several connections, versions of its tables, URLs that are refused."""

import threading

import pytest
from sqlalchemy import delete, insert, inspect, select, update

from service.store import database as database_module
from service.store.database import Database, DatabaseError, lock
from service.store.tables import JOB_FILES, JOBS, SCHEMA
from tests.support.databases import POSTGRES


@pytest.fixture
def opened(open_database, tmp_path):
    """Return a function that opens the database of the test."""
    return lambda: open_database(tmp_path / "store.db")


def add_file(connection, content):
    """Add a job and its file."""
    names = ("id", "secret", "owner", "state", "form", "model", "operation", "options")
    connection.execute(insert(JOBS).values(**dict.fromkeys(names, "x"), size=1, created=0.0, expires=0.0))
    connection.execute(insert(JOB_FILES).values(job="x", kind="source", content=content))


def content(database):
    with database.reading() as connection:
        return connection.execute(select(JOB_FILES.c.content)).scalar()


def test_what_is_committed_is_there_after_a_restart(opened):
    first = opened()
    with first.transaction() as connection:
        add_file(connection, b"text")
    first.close()
    assert content(opened()) == b"text"


def test_a_transaction_that_fails_leaves_nothing(opened):
    database = opened()

    def fail():
        with database.transaction() as connection:
            add_file(connection, b"text")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert content(database) is None


def test_rows_of_a_deleted_row_are_deleted(opened):
    database = opened()
    with database.transaction() as connection:
        add_file(connection, b"text")
        connection.execute(delete(JOBS))
    assert content(database) is None


def test_a_reader_does_not_wait_for_a_writer(opened):
    one, other = opened(), opened()
    with one.transaction() as connection:
        add_file(connection, b"text")
        assert content(other) is None
    assert content(other) == b"text"


def test_writers_that_read_first_wait_for_each_other(opened):
    """Each of 4 threads adds 1 to a number 25 times: none of the changes is lost, and none fails."""
    databases = [opened() for _ in range(4)]
    with databases[0].transaction() as connection:
        add_file(connection, b"")

    def count(database):
        for _ in range(25):
            with database.transaction() as connection:
                lock(connection, JOBS)
                size = connection.execute(select(JOBS.c.size)).scalar_one()
                connection.execute(update(JOBS).values(size=size + 1))

    threads = [threading.Thread(target=count, args=(each,)) for each in databases]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with databases[0].reading() as connection:
        assert connection.execute(select(JOBS.c.size)).scalar_one() == 101


def test_several_processes_create_the_tables_at_once(opened):
    failures = []

    def open_it():
        try:
            opened()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []


def test_older_tables_are_migrated_once(opened, monkeypatch):
    opened().close()

    def migrate(connection):
        connection.exec_driver_sql("ALTER TABLE softserve_jobs ADD COLUMN rank INTEGER")

    monkeypatch.setattr(database_module, "MIGRATIONS", (migrate,))
    for _ in range(2):
        database = opened()
        with database.reading() as connection:
            assert "rank" in {each["name"] for each in inspect(connection).get_columns("softserve_jobs")}
            assert connection.execute(select(SCHEMA.c.version)).scalars().all() == [1]


def test_a_migration_that_fails_changes_nothing(opened, monkeypatch):
    opened().close()

    def migrate(connection):
        connection.exec_driver_sql("ALTER TABLE softserve_jobs ADD COLUMN rank INTEGER")
        raise ZeroDivisionError

    monkeypatch.setattr(database_module, "MIGRATIONS", (migrate,))
    with pytest.raises(ZeroDivisionError):
        opened()
    monkeypatch.undo()
    with opened().reading() as connection:
        assert "rank" not in {each["name"] for each in inspect(connection).get_columns("softserve_jobs")}


def test_tables_of_a_newer_version_are_refused(opened):
    with opened().transaction() as connection:
        connection.execute(update(SCHEMA).values(version=1000))
    with pytest.raises(DatabaseError, match="newer version"):
        opened()


@pytest.mark.skipif(bool(POSTGRES), reason="a file of SQLite")
def test_the_file_is_its_owners_alone(opened, tmp_path):
    opened()
    assert (tmp_path / "store.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("url", ["mysql://x", "nonsense", "sqlite://", "sqlite:////nowhere/at/all/jobs.db"])
def test_a_database_that_cannot_be_opened_is_an_error(url):
    with pytest.raises(DatabaseError, match="--database"):
        Database(url)


def test_a_file_that_is_no_database_is_an_error(tmp_path):
    (tmp_path / "a.db").write_bytes(b"no database" * 1000)
    with pytest.raises(DatabaseError, match="--database"):
        Database(f"sqlite:///{tmp_path / 'a.db'}")
