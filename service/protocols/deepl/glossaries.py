"""DeepL's glossaries: version 2 with one pair of languages each, version 3 with several."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

from fastapi import HTTPException, Request, Response
from pydantic import Field

from models import QueryError
from models.text.glossary_entries import entry_format, read_entries, written_entries
from service.http.glossaries import ask_glossaries
from service.protocols.fields import Fields, json_response, read_fields
from service.protocols.languages import two_letters
from service.protocols.translating import find_pair, language_pairs

if TYPE_CHECKING:
    from service.store.glossaries import Glossaries, Languages, StoredGlossary

__all__ = ["PREFIXES", "ROUTES"]

T = TypeVar("T")
PREFIXES = ("/v2/glossaries", "/v2/glossary-language-pairs", "/v3/glossaries")
_TSV = "text/tab-separated-values"
_MOST_DICTIONARIES = 50


class DictionaryFields(Fields):
    source_lang: str
    target_lang: str
    entries: str
    entries_format: str = "tsv"

    def read(self, request: Request) -> "tuple[Languages, Mapping[str, str]]":
        """Return the languages, which a served model translates, and the entries; raises `QueryError`."""
        languages = _languages(request, self.source_lang, self.target_lang)
        return languages, read_entries(self.entries, entry_format(self.entries_format))


class GlossaryFields(DictionaryFields):
    name: str


class MultilingualFields(Fields):
    name: str
    dictionaries: Annotated[list[DictionaryFields], Field(min_length=1, max_length=_MOST_DICTIONARIES)]


class ChangedFields(Fields):
    name: str | None = None
    dictionaries: Annotated[list[DictionaryFields], Field(max_length=_MOST_DICTIONARIES)] = Field(default_factory=list)


def _languages(request: Request, source: str, target: str) -> "Languages":
    """Return the languages of a dictionary; raises `QueryError` where no model translates between them."""
    from service.store.glossaries import Languages

    find_pair(request, source, target)
    return Languages.of(source, target)


async def language_pairs_of_glossaries(request: Request) -> Response:
    """Answer `GET /v2/glossary-language-pairs`: the pairs that are translated."""
    pairs = dict.fromkeys((two_letters(each.source), two_letters(each.target)) for each in language_pairs(request))
    found = [{"source_lang": source, "target_lang": target} for source, target in pairs]
    return await json_response(request, lambda: {"supported_languages": found})


async def create(request: Request) -> Response:
    """Answer `POST /v2/glossaries`."""
    fields = await read_fields(request, GlossaryFields)
    dictionaries = dict([fields.read(request)])
    return await _stored(request, lambda known, owner: known.create(owner, fields.name, dictionaries), _plain, 201)


async def create_multilingual(request: Request) -> Response:
    """Answer `POST /v3/glossaries`."""
    fields = await read_fields(request, MultilingualFields)
    dictionaries = _dictionaries(request, fields.dictionaries)
    return await _stored(request, lambda known, owner: known.create(owner, fields.name, dictionaries), _several, 201)


async def list_plain(request: Request) -> Response:
    """Answer `GET /v2/glossaries`, which leaves out those with several pairs of languages."""
    found = await ask_glossaries(request, lambda known, owner: known.list(owner))
    shown = [_plain(each) for each in found if len(each.dictionaries) == 1]
    return await json_response(request, lambda: {"glossaries": shown})


async def list_multilingual(request: Request) -> Response:
    """Answer `GET /v3/glossaries`."""
    found = await ask_glossaries(request, lambda known, owner: known.list(owner))
    return await json_response(request, lambda: {"glossaries": [_several(each) for each in found]})


async def find(request: Request) -> Response:
    """Answer `GET /v2/glossaries/{identifier}`."""
    return await _stored(request, lambda known, owner: known.find(owner, _identifier(request)), _plain)


async def find_multilingual(request: Request) -> Response:
    """Answer `GET /v3/glossaries/{identifier}`."""
    return await _stored(request, lambda known, owner: known.find(owner, _identifier(request)), _several)


async def change(request: Request) -> Response:
    """Answer `PATCH /v3/glossaries/{identifier}`: another name, and entries that are added or changed."""
    fields = await read_fields(request, ChangedFields)
    dictionaries = _dictionaries(request, fields.dictionaries)

    def changed(known: "Glossaries", owner: str) -> "StoredGlossary":
        return known.change(owner, _identifier(request), name=fields.name, dictionaries=dictionaries)

    return await _stored(request, changed, _several)


async def replace_dictionary(request: Request) -> Response:
    """Answer `PUT /v3/glossaries/{identifier}/dictionaries`."""
    fields = await read_fields(request, DictionaryFields)
    languages, entries = fields.read(request)

    def replaced(known: "Glossaries", owner: str) -> "StoredGlossary":
        return known.replace(owner, _identifier(request), languages, entries)

    return await _stored(request, replaced, lambda found: _dictionary(languages, found.dictionaries[languages]))


async def delete(request: Request) -> Response:
    """Answer `DELETE /v2/glossaries/{identifier}` and `/v3/glossaries/{identifier}`."""
    await ask_glossaries(request, lambda known, owner: known.delete(owner, _identifier(request)))
    return Response(status_code=204)


async def delete_dictionary(request: Request) -> Response:
    """Answer `DELETE /v3/glossaries/{identifier}/dictionaries`, with both languages in the query."""
    languages = _asked(request)
    if languages is None:
        raise QueryError("source_lang and target_lang are missing")
    await ask_glossaries(request, lambda known, owner: known.delete(owner, _identifier(request), languages))
    return Response(status_code=204)


async def entries(request: Request) -> Response:
    """Answer `GET /v2/glossaries/{identifier}/entries`: rows of tab-separated values."""
    found = await ask_glossaries(request, lambda known, owner: known.entries(owner, _identifier(request)))
    return Response(written_entries(found, "tsv"), media_type=f"{_TSV}; charset=utf-8")


async def entries_of_languages(request: Request) -> Response:
    """Answer `GET /v3/glossaries/{identifier}/entries`: those of the languages in the query, or all of them."""
    asked = _asked(request)

    def read(known: "Glossaries", owner: str) -> "dict[Languages, Mapping[str, str]]":
        all_languages = known.find(owner, _identifier(request)).dictionaries if asked is None else (asked,)
        return {each: known.entries(owner, _identifier(request), each) for each in all_languages}

    found = await ask_glossaries(request, read)
    shown = [
        {
            "source_lang": languages.source,
            "target_lang": languages.target,
            "entries": written_entries(each, "tsv").rstrip("\n"),
            "entries_format": "tsv",
        }
        for languages, each in found.items()
    ]
    return await json_response(request, lambda: {"dictionaries": shown}, sum(map(len, found.values())))


def _dictionaries(request: Request, given: "list[DictionaryFields]") -> "dict[Languages, Mapping[str, str]]":
    found = dict(each.read(request) for each in given)
    if len(found) < len(given):
        raise QueryError("dictionaries: two are for the same languages")
    return found


def _asked(request: Request) -> "Languages | None":
    """Return the languages in the query; None without any. Raises `QueryError`."""
    from service.store.glossaries import Languages

    source, target = (request.query_params.get(name, "") for name in ("source_lang", "target_lang"))
    return Languages.of(source, target) if source or target else None


def _identifier(request: Request) -> str:
    return str(request.path_params["identifier"])


async def _stored(
    request: Request,
    function: "Callable[[Glossaries, str], StoredGlossary]",
    shown: "Callable[[StoredGlossary], Mapping[str, object]]",
    status: int = 200,
) -> Response:
    """Return the answer that shows a glossary."""
    content = shown(await ask_glossaries(request, function))
    response = await json_response(request, lambda: content)
    response.status_code = status
    return response


def _head(found: "StoredGlossary") -> dict[str, object]:
    created = datetime.fromtimestamp(found.created, UTC)
    return {
        "glossary_id": found.id,
        "name": found.name,
        "creation_time": created.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00"),
    }


def _plain(found: "StoredGlossary") -> dict[str, object]:
    """Return a glossary of version 2; raises `HTTPException` for one with several pairs of languages."""
    if len(found.dictionaries) != 1:
        raise HTTPException(404, "the glossary has several pairs of languages: use version 3 of the API")
    ((languages, count),) = found.dictionaries.items()
    return {**_head(found), "ready": True, **_dictionary(languages, count)}


def _several(found: "StoredGlossary") -> dict[str, object]:
    return {**_head(found), "dictionaries": [_dictionary(*each) for each in found.dictionaries.items()]}


def _dictionary(languages: "Languages", count: int) -> dict[str, object]:
    return {"source_lang": languages.source, "target_lang": languages.target, "entry_count": count}


ROUTES: Sequence[tuple[str, Callable[[Request], Awaitable[Response]], str]] = (
    ("/v2/glossary-language-pairs", language_pairs_of_glossaries, "GET"),
    ("/v2/glossaries", create, "POST"),
    ("/v2/glossaries", list_plain, "GET"),
    ("/v2/glossaries/{identifier}", find, "GET"),
    ("/v2/glossaries/{identifier}", delete, "DELETE"),
    ("/v2/glossaries/{identifier}/entries", entries, "GET"),
    ("/v3/glossaries", create_multilingual, "POST"),
    ("/v3/glossaries", list_multilingual, "GET"),
    ("/v3/glossaries/{identifier}", find_multilingual, "GET"),
    ("/v3/glossaries/{identifier}", change, "PATCH"),
    ("/v3/glossaries/{identifier}", delete, "DELETE"),
    ("/v3/glossaries/{identifier}/entries", entries_of_languages, "GET"),
    ("/v3/glossaries/{identifier}/dictionaries", replace_dictionary, "PUT"),
    ("/v3/glossaries/{identifier}/dictionaries", delete_dictionary, "DELETE"),
)
"""Path, endpoint and method of each route."""
