"""Counts of characters and the use of daily budgets: kept after a restart, shared by processes, or in memory."""

import asyncio

from service.engine.caller import Account
from service.engine.quotas import Limits
from service.engine.tenants import Tenant, Tenants
from service.http.usage import Usage
from service.observability.metrics import Metrics
from service.store.usage import count_characters, read_day_use, write_day_use


async def counted(database, *added):
    usage = Usage(database, Tenants(Metrics()))
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
        usage = Usage(database, Tenants(Metrics()))
        async with usage.run():
            usage.add("a", 7)

    asyncio.run(run())
    assert count_characters(open_database(tmp_path / "store.db"), "a") == 7


def test_counts_that_cannot_be_stored_now_are_stored_later(open_database, tmp_path, monkeypatch):
    database = open_database(tmp_path / "store.db")

    async def run():
        usage = Usage(database, Tenants(Metrics()))
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
        usage = Usage(database, Tenants(Metrics()))
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


def tenants_of(**limits):
    tenants = Tenants(Metrics())
    tenants.replace([Tenant(id="a", name="one", limits=Limits(**limits)), Tenant(id="b", name="two")])
    return tenants


async def spent(database, tenants, characters):
    """Return the rest of the budget of the day after a start and a request."""
    async with Usage(database, tenants).run():
        account = Account()
        lease = tenants.begin("a", account)
        lease.take(["x" * characters])
        lease.used = True
        account.close()
    return {quota.name: quota.left for quota in account.quotas()}


def test_the_use_of_a_daily_budget_is_kept(open_database, tmp_path):
    path = tmp_path / "store.db"
    assert asyncio.run(spent(open_database(path), tenants_of(characters_per_day=100), 30)) == {"characters-per-day": 70}
    assert asyncio.run(spent(open_database(path), tenants_of(characters_per_day=100), 20)) == {"characters-per-day": 50}
    assert asyncio.run(spent(open_database(path), tenants_of(characters_per_day=1000), 1)) == {
        "characters-per-day": 949
    }


def test_the_use_of_another_day_is_not(open_database, tmp_path):
    database = open_database(tmp_path / "store.db")
    with database.transaction() as connection:
        write_day_use(connection, {"a": (1, 90), "other": (2, 5)})
    assert asyncio.run(spent(database, tenants_of(characters_per_day=100), 30)) == {"characters-per-day": 70}
    assert read_day_use(database)["other"] == (2, 5)


def test_a_key_that_gets_a_budget_later_continues_as_well(open_database, tmp_path):
    path = tmp_path / "store.db"
    asyncio.run(spent(open_database(path), tenants_of(characters_per_day=100), 30))
    tenants, kept = Tenants(Metrics()), read_day_use(open_database(path))
    tenants.resume(kept)
    assert tenants.day_use == {}
    tenants.replace([Tenant(id="a", name="one", limits=Limits(characters_per_day=100))])
    assert tenants.day_use == kept
