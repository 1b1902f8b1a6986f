"""Characters of API keys, in the database: of all translations, and of daily budgets. All functions block."""

from collections.abc import Mapping

from sqlalchemy import Connection, insert, select, update

from service.store.database import Database, lock
from service.store.tables import DAY_USE, USAGE

__all__ = ["add_characters", "count_characters", "read_day_use", "write_day_use"]


def add_characters(connection: Connection, characters: Mapping[str, int]) -> None:
    """Add characters to the counts of API keys."""
    lock(connection, USAGE)
    for owner, count in sorted(characters.items()):
        added = update(USAGE).where(USAGE.c.owner == owner).values(characters=USAGE.c.characters + count)
        if connection.execute(added).rowcount == 0:
            connection.execute(insert(USAGE).values(owner=owner, characters=count))


def count_characters(database: Database, owner: str) -> int:
    """Return the characters of an API key."""
    with database.reading() as connection:
        return connection.execute(select(USAGE.c.characters).where(USAGE.c.owner == owner)).scalar() or 0


def write_day_use(connection: Connection, used: Mapping[str, tuple[int, int]]) -> None:
    """Store the last day of API keys, in days since 1970, and the characters used in it."""
    lock(connection, DAY_USE)
    for owner, (day, characters) in sorted(used.items()):
        changed = update(DAY_USE).where(DAY_USE.c.owner == owner).values(day=day, characters=characters)
        if connection.execute(changed).rowcount == 0:
            connection.execute(insert(DAY_USE).values(owner=owner, day=day, characters=characters))


def read_day_use(database: Database) -> dict[str, tuple[int, int]]:
    """Return the last day of each API key with a daily budget and the characters used in it."""
    with database.reading() as connection:
        rows = connection.execute(select(DAY_USE.c.owner, DAY_USE.c.day, DAY_USE.c.characters))
        return {owner: (day, characters) for owner, day, characters in rows}
