"""Counts of characters: kept after a restart, shared by processes, and in memory without a database."""

import asyncio

from service.http.usage import Usage
from service.store.usage import count_characters


async def counted(database, *added):
    usage = Usage(database)
    async with usage.run():
        for owner, characters in added:
            usage.add(owner, characters)
        return await usage.count("a"), await usage.count("b")


def test_counts_of_a_key_are_kept(open_database, tmp_path):
    path = tmp_path / "store.db"
    assert asyncio.run(counted(open_database(path), ("a", 2), ("a", 3), ("b", 1))) == (5, 1)
    assert asyncio.run(counted(open_database(path), ("a", 10))) == (15, 1)


def test_counts_are_stored_when_the_process_ends(open_database, tmp_path):
    database = open_database(tmp_path / "store.db")

    async def run():
        usage = Usage(database)
        async with usage.run():
            usage.add("a", 7)

    asyncio.run(run())
    assert count_characters(open_database(tmp_path / "store.db"), "a") == 7


def test_counts_that_cannot_be_stored_now_are_stored_later(open_database, tmp_path, monkeypatch):
    database = open_database(tmp_path / "store.db")

    async def run():
        usage = Usage(database)
        usage.add("a", 7)
        with monkeypatch.context() as patch:
            patch.setattr(database, "transaction", None)
            assert await usage.count("a") == 0
        usage.add("a", 1)
        return await usage.count("a")

    assert asyncio.run(run()) == 8


def test_processes_add_to_the_same_count(open_database, tmp_path):
    databases = [open_database(tmp_path / "store.db") for _ in range(4)]

    async def add(database):
        usage = Usage(database)
        for _ in range(25):
            usage.add("a", 1)
            await usage.count("a")

    async def run():
        await asyncio.gather(*map(add, databases))

    asyncio.run(run())
    assert count_characters(databases[0], "a") == 100


def test_without_a_database_counts_are_in_memory():
    assert asyncio.run(counted(None, ("a", 2), ("a", 3))) == (5, 0)
    assert asyncio.run(counted(None)) == (0, 0)
