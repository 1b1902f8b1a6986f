"""Stored glossaries over HTTP, for all protocols: those of the key of a request."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import HTTPException, Request

from models import QueryError
from models.operations.translation import TranslateParams
from service.http.auth import tenant_of
from service.http.requests import engine_of
from service.settings import Settings

if TYPE_CHECKING:
    from service.store.database import Database
    from service.store.glossaries import Glossaries, Loaded

__all__ = ["MOST_GLOSSARIES", "ask_glossaries", "glossaries_of", "load_glossaries", "with_glossaries"]

T = TypeVar("T")
MOST_GLOSSARIES = 5
"""Glossaries of one translation."""


def glossaries_of(settings: Settings, database: "Database | None") -> "Glossaries | None":
    """Return the glossaries of an application; None where there is no database."""
    if database is None:
        return None
    from service.store.glossaries import Glossaries

    return Glossaries(database, per_owner=settings.max_glossaries, entries_per_owner=settings.max_glossary_entries)


async def ask_glossaries(request: Request, function: Callable[["Glossaries", str], T]) -> T:
    """Call a function with the stored glossaries and the owner of those of a request, on the thread of the database.

    Raises its `QueryError`, also where there is no database, and `HTTPException` for an unknown glossary or dictionary
    and where there are too many.
    """
    glossaries: Glossaries | None = request.app.state.glossaries
    if glossaries is None:
        raise QueryError("glossaries are not stored here: the service runs without --database")
    owner = tenant_of(request)
    with _as_answers():
        return await glossaries.database.call(lambda: function(glossaries, owner))


@contextlib.contextmanager
def _as_answers() -> Iterator[None]:
    from service.store.glossaries import TooManyGlossaries, UnknownGlossary

    try:
        yield
    except UnknownGlossary:
        raise HTTPException(404, "this key has no such glossary, or it lacks these languages") from None
    except TooManyGlossaries as error:
        raise HTTPException(409, str(error)) from None


async def load_glossaries(request: Request, identifiers: Sequence[str], source: str, target: str) -> "Loaded":
    """Return the entries of glossaries for two languages; raises the errors of `ask_glossaries`, `QueryError`."""

    def load(glossaries: "Glossaries", owner: str) -> "Loaded":
        from service.store.glossaries import Languages

        return glossaries.load(owner, identifiers, Languages.of(source, target))

    if len(identifiers) > MOST_GLOSSARIES:
        raise QueryError(f"at most {MOST_GLOSSARIES} glossaries can be used together")
    return await ask_glossaries(request, load)


async def with_glossaries(
    request: Request,
    params: TranslateParams,
    identifiers: str | Sequence[str],
    *,
    model: str | None,
    operation: str,
    source: str | None = None,
) -> TranslateParams:
    """Return parameters with the entries of stored glossaries, for their languages or those of the model.

    `source` is the source language where the parameters have none.

    Raises the errors of `load_glossaries` and `find`, and `QueryError` where there are other entries, and where the
    source language is not known.
    """
    if params.glossary is not None:
        raise QueryError("give either glossary or glossary_id")
    source, target = params.source_language or source, params.target_language
    if source is None or target is None:
        languages: Any = engine_of(request).served_models.find(model, operation).model.config.languages
        if source is None and len(languages.known_sources()) > 1:
            raise QueryError("glossary_id needs source_language: the model reads several languages")
        source, target = source or languages.source, target or languages.target
    several = [identifiers] if isinstance(identifiers, str) else identifiers
    loaded = await load_glossaries(request, several, source, target)
    return params.with_glossary(loaded.entries, loaded.terms)
