"""Characters that were translated with each API key, in the database. All functions block."""

from collections.abc import Mapping

from sqlalchemy import Connection, insert, select, update

from service.store.database import Database, lock
from service.store.tables import USAGE

__all__ = ["add_characters", "count_characters"]


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
