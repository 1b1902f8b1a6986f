"""Glossaries in the database. All functions block.

A glossary belongs to an API key and has dictionaries: the entries for a source and a target language.
"""

import json
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, update

from models import QueryError
from models.text.glossary import Glossary, merged_terms
from models.text.glossary_entries import check_term
from models.text.language_codes import two_letters
from service.store.database import Database, lock
from service.store.tables import DICTIONARIES, GLOSSARIES

__all__ = ["Glossaries", "Languages", "Loaded", "StoredGlossary", "TooManyGlossaries", "UnknownGlossary"]

_MOST_DICTIONARIES = 50
"""Dictionaries of a glossary."""
_LONGEST_NAME = 1024
"""Characters of a name."""
_LONGEST_CODE = 16
"""Characters of the code of a language."""
_KEPT = 16
"""Glossaries that are kept in memory, ready to be used: some 6 MB each where they have the most entries."""
_ID = re.compile("[0-9a-f-]{36}")


class UnknownGlossary(Exception):
    """A glossary, or a dictionary of it, that the API key does not have."""


class TooManyGlossaries(Exception):
    """A glossary beyond the limits of the API key."""


class Languages(NamedTuple):
    """The two languages of a dictionary, by their codes of two letters where they have one."""

    source: str
    target: str

    @classmethod
    def of(cls, source: str, target: str) -> "Languages":
        """Return languages by codes with or without region; raises `QueryError` for another string."""
        codes = two_letters(source), two_letters(target)
        for given, code in zip((source, target), codes, strict=True):
            if not code.isascii() or not code.isalnum() or len(code) > _LONGEST_CODE:
                raise QueryError(f"glossary: {given[:20]!r} is no code of a language")
        if codes[0] == codes[1]:
            raise QueryError(f"glossary: {source!r} and {target!r} are the same language")
        return cls(*codes)


@dataclass(frozen=True, slots=True)
class StoredGlossary:
    """A glossary without its entries."""

    id: str
    name: str
    created: float
    """Seconds since 1970."""
    dictionaries: Mapping[Languages, int]
    """The number of entries of each dictionary."""


class Loaded(NamedTuple):
    """Entries of glossaries that are used in a translation."""

    entries: dict[str, str]
    terms: Glossary


class Glossaries:
    """Glossaries in a database. An API key finds those that it has stored, no others."""

    def __init__(self, database: Database, *, per_owner: int, entries_per_owner: int) -> None:
        """Store glossaries in a database, of each API key so many, and so many entries in all."""
        self.database = database
        self._per_owner, self._entries_per_owner = per_owner, entries_per_owner
        self._loaded: OrderedDict[Any, Loaded] = OrderedDict()

    def create(self, owner: str, name: str, dictionaries: Mapping[Languages, Mapping[str, str]]) -> StoredGlossary:
        """Store a glossary; raises `QueryError` for entries that cannot be used, `TooManyGlossaries`."""
        found = {languages: _checked(entries) for languages, entries in dictionaries.items()}
        identifier = str(uuid.uuid4())
        with self.database.transaction() as connection:
            lock(connection, GLOSSARIES)
            owned = select(func.count()).select_from(GLOSSARIES).where(GLOSSARIES.c.owner == owner)
            if connection.execute(owned).scalar_one() >= self._per_owner:
                raise TooManyGlossaries(f"this key has {self._per_owner} glossaries, and may have no more: delete some")
            values = {"id": identifier, "owner": owner, "name": _checked_name(name), "created": time.time()}
            connection.execute(insert(GLOSSARIES).values(**values))
            return self._stored(connection, owner, identifier, found)

    def list(self, owner: str) -> Sequence[StoredGlossary]:
        """Return the glossaries of an API key, oldest first."""
        with self.database.reading() as connection:
            rows = connection.execute(
                select(GLOSSARIES).where(GLOSSARIES.c.owner == owner).order_by(GLOSSARIES.c.created, GLOSSARIES.c.id)
            ).all()
            counts = connection.execute(
                select(
                    DICTIONARIES.c.glossary, DICTIONARIES.c.source, DICTIONARIES.c.target, DICTIONARIES.c.entry_count
                )
                .join(GLOSSARIES)
                .where(GLOSSARIES.c.owner == owner)
                .order_by(DICTIONARIES.c.source, DICTIONARIES.c.target)
            ).all()
        found: dict[str, dict[Languages, int]] = {row.id: {} for row in rows}
        for each in counts:
            found.setdefault(each.glossary, {})[Languages(each.source, each.target)] = each[3]
        return [StoredGlossary(row.id, row.name, row.created, found[row.id]) for row in rows]

    def find(self, owner: str, identifier: str) -> StoredGlossary:
        """Return a glossary; raises `UnknownGlossary`."""
        with self.database.reading() as connection:
            return _found(connection, owner, identifier)

    def entries(self, owner: str, identifier: str, languages: Languages | None = None) -> Mapping[str, str]:
        """Return the entries of a dictionary, by default the only one; raises `UnknownGlossary`, `QueryError`."""
        with self.database.reading() as connection:
            known = _found(connection, owner, identifier).dictionaries
            if languages is None:
                if len(known) != 1:
                    raise QueryError(f"the glossary has {len(known)} dictionaries: give both languages of one")
                languages = next(iter(known))
            return _entries(connection, identifier, languages)

    def change(
        self,
        owner: str,
        identifier: str,
        *,
        name: str | None = None,
        dictionaries: Mapping[Languages, Mapping[str, str]],
    ) -> StoredGlossary:
        """Change the name, and add entries, which replace those of the same term, and dictionaries.

        Raises `UnknownGlossary`, `QueryError`, `TooManyGlossaries`.
        """
        with self.database.transaction() as connection:
            _hold(connection, owner, identifier)
            if name is not None:
                renamed = update(GLOSSARIES).where(GLOSSARIES.c.id == identifier)
                connection.execute(renamed.values(name=_checked_name(name)))
            known = _found(connection, owner, identifier).dictionaries
            merged = {
                languages: merged_terms([entries, _entries(connection, identifier, languages)])
                if languages in known
                else entries
                for languages, entries in dictionaries.items()
            }
            found = {languages: _checked(entries) for languages, entries in merged.items()}
            return self._stored(connection, owner, identifier, found)

    def replace(self, owner: str, identifier: str, languages: Languages, entries: Mapping[str, str]) -> StoredGlossary:
        """Store a dictionary in place of that of the same languages; raises the errors of `extend`."""
        found = _checked(entries)
        with self.database.transaction() as connection:
            _hold(connection, owner, identifier)
            return self._stored(connection, owner, identifier, {languages: found})

    def delete(self, owner: str, identifier: str, languages: Languages | None = None) -> None:
        """Delete a glossary, or one of its dictionaries; raises `UnknownGlossary`."""
        with self.database.transaction() as connection:
            _hold(connection, owner, identifier)
            rows = delete(GLOSSARIES).where(GLOSSARIES.c.id == identifier)
            if languages is not None:
                rows = delete(DICTIONARIES).where(*_dictionary(identifier, languages))
            if connection.execute(rows).rowcount != 1:
                raise UnknownGlossary

    def load(self, owner: str, identifiers: Sequence[str], languages: Languages) -> Loaded:
        """Return the entries of glossaries for two languages, the first one's where several have a term.

        Raises `UnknownGlossary`, and `QueryError` for a glossary without these languages.
        """
        with self.database.reading() as connection:
            key = (languages, *((each, _revision(connection, owner, each)) for each in identifiers))
            if key in self._loaded:
                self._loaded.move_to_end(key)
                return self._loaded[key]
            try:
                entries = merged_terms(_entries(connection, each, languages) for each in identifiers)
            except UnknownGlossary:
                raise QueryError(
                    f"the glossary has no entries from {languages.source!r} to {languages.target!r}"
                ) from None
        loaded = self._loaded[key] = Loaded(entries, Glossary.of(entries))
        while len(self._loaded) > _KEPT:
            self._loaded.popitem(last=False)
        return loaded

    def _stored(
        self, connection: Connection, owner: str, identifier: str, dictionaries: Mapping[Languages, Mapping[str, str]]
    ) -> StoredGlossary:
        """Store dictionaries, and return the glossary as it is then."""
        for languages, entries in dictionaries.items():
            connection.execute(delete(DICTIONARIES).where(*_dictionary(identifier, languages)))
            values = {"glossary": identifier, "source": languages.source, "target": languages.target}
            content = json.dumps(entries, ensure_ascii=False)
            connection.execute(insert(DICTIONARIES).values(**values, entry_count=len(entries), entries=content))
        counts = select(func.coalesce(func.sum(DICTIONARIES.c.entry_count), 0)).join(GLOSSARIES)
        if connection.execute(counts.where(GLOSSARIES.c.owner == owner)).scalar_one() > self._entries_per_owner:
            raise TooManyGlossaries(f"the glossaries of this key may have {self._entries_per_owner} entries in all")
        found = _found(connection, owner, identifier)
        if len(found.dictionaries) > _MOST_DICTIONARIES:
            raise QueryError(f"glossary: at most {_MOST_DICTIONARIES} dictionaries are possible")
        return found


def _checked(entries: Mapping[str, str]) -> dict[str, str]:
    """Return entries without white space around them; raises `QueryError` for those that cannot be used."""
    found = {term.strip(): translation.strip() for term, translation in entries.items()}
    if not found:
        raise QueryError("glossary: there are no entries")
    for each in found.items():
        any(map(check_term, each))
    Glossary.of(found)
    return found


def _checked_name(name: str) -> str:
    name = name.strip()
    if not name or len(name) > _LONGEST_NAME:
        raise QueryError(f"glossary: a name has 1 to {_LONGEST_NAME} characters")
    check_term(name)
    return name


def _owned(owner: str, identifier: str) -> tuple[Any, ...]:
    """Return the conditions for a glossary; raises `UnknownGlossary` for a string that is no id."""
    if _ID.fullmatch(identifier) is None:
        raise UnknownGlossary
    return GLOSSARIES.c.id == identifier, GLOSSARIES.c.owner == owner


def _dictionary(identifier: str, languages: Languages) -> tuple[Any, ...]:
    columns = DICTIONARIES.c
    return columns.glossary == identifier, columns.source == languages.source, columns.target == languages.target


def _hold(connection: Connection, owner: str, identifier: str) -> None:
    """Count a change, which keeps other transactions from changing the glossary until this one ends."""
    lock(connection, GLOSSARIES)
    changed = update(GLOSSARIES).where(*_owned(owner, identifier)).values(revision=GLOSSARIES.c.revision + 1)
    if connection.execute(changed).rowcount != 1:
        raise UnknownGlossary


def _revision(connection: Connection, owner: str, identifier: str) -> int:
    found = connection.execute(select(GLOSSARIES.c.revision).where(*_owned(owner, identifier))).scalar()
    if found is None:
        raise UnknownGlossary
    return int(found)


def _found(connection: Connection, owner: str, identifier: str) -> StoredGlossary:
    row = connection.execute(select(GLOSSARIES).where(*_owned(owner, identifier))).first()
    if row is None:
        raise UnknownGlossary
    counts = connection.execute(
        select(DICTIONARIES.c.source, DICTIONARIES.c.target, DICTIONARIES.c.entry_count)
        .where(DICTIONARIES.c.glossary == identifier)
        .order_by(DICTIONARIES.c.source, DICTIONARIES.c.target)
    ).all()
    return StoredGlossary(row.id, row.name, row.created, {Languages(each[0], each[1]): each[2] for each in counts})


def _entries(connection: Connection, identifier: str, languages: Languages) -> dict[str, str]:
    found = connection.execute(select(DICTIONARIES.c.entries).where(*_dictionary(identifier, languages))).scalar()
    if found is None:
        raise UnknownGlossary
    entries: dict[str, str] = json.loads(found)
    return entries
