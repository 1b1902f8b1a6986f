"""The database of an application, where it has one."""

from typing import TYPE_CHECKING

from service.settings import Settings

if TYPE_CHECKING:
    from service.store.database import Database

__all__ = ["database_of"]


def database_of(settings: Settings) -> "Database | None":
    """Open the database of an application; None where the settings name none. Raises `DatabaseError`."""
    if settings.database is None:
        return None
    from service.store.database import Database  # needs sqlalchemy

    return Database(settings.database)
