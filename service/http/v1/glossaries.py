"""`/v1/glossaries`: glossaries that are kept for an API key, where there is a database."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from models import QueryError
from models.text.glossary_entries import EntryFormat, read_entries, written_entries
from service.http.body import checked_body, read_body
from service.http.errors import PROBLEM_RESPONSES, problem_schema
from service.http.glossaries import ask_glossaries
from service.http.requests import Body

if TYPE_CHECKING:
    from service.store.glossaries import Glossaries, StoredGlossary

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"])

BodyT = TypeVar("BodyT", bound=Body)
EntryForm = Literal["json", "tsv", "csv"]
_MEDIA_TYPES: Mapping[str, EntryFormat] = {"text/tab-separated-values": "tsv", "text/csv": "csv"}
_MOST_DICTIONARIES = 50
Identifier = Annotated[str, Path(max_length=36, description="The `id` of the glossary.")]
Code = Annotated[str, Field(min_length=2, max_length=16)]
SourceQuery = Annotated[Code, Query(description="Code of the language of the terms.")]
TargetQuery = Annotated[Code, Query(description="Code of the language of their translations.")]


class Dictionary(Body):
    """Entries for two languages."""

    source_language: Annotated[Code, Field(description="Code of the language of the terms.")]
    target_language: Annotated[Code, Field(description="Code of the language of their translations.")]
    entries: Annotated[dict[str, str], Field(description="Translations by term, as in `glossary` of `/v1/translate`.")]


class NewGlossary(Body):
    """A glossary to be stored."""

    name: Annotated[str, Field(description="A name, which need not be unique.")]
    dictionaries: Annotated[
        list[Dictionary], Field(min_length=1, max_length=_MOST_DICTIONARIES, description="One for each two languages.")
    ]


class Entries(Body):
    """Entries of a dictionary."""

    entries: Annotated[dict[str, str], Field(description="Translations by term, as in `glossary` of `/v1/translate`.")]


class DictionaryInfo(BaseModel):
    """Languages and size of a dictionary."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    source_language: str
    """Code of the language of the terms."""
    target_language: str
    """Code of the language of their translations."""
    entry_count: int
    """Number of entries."""


class GlossaryInfo(BaseModel):
    """A stored glossary without its entries."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    """Names the glossary: the `glossary_id` of `/v1/translate` and `/v1/documents`."""
    name: str
    """The name it was given."""
    created: datetime
    """When it was stored."""
    dictionaries: list[DictionaryInfo]
    """Its dictionaries."""


class GlossaryList(BaseModel):
    """The glossaries of an API key."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    glossaries: list[GlossaryInfo]
    """Oldest first."""


def _refusals(*statuses: int) -> dict[int | str, dict[str, object]]:
    found: dict[int | str, dict[str, object]] = {each: PROBLEM_RESPONSES[each] for each in statuses}
    return found


_REFUSALS = _refusals(401, 404, 422)
_BODY_REFUSALS = {
    **_refusals(400, 401, 404, 413, 415, 422),
    409: problem_schema("The key has as many glossaries or entries as it may"),
}
_TEXT = {kind: {"schema": {"type": "string"}} for kind in _MEDIA_TYPES}


def _described(model: type[BaseModel]) -> dict[str, object]:
    """Return the description of a body that may also be rows of text."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    if "Dictionary" in definitions:
        schema["properties"]["dictionaries"]["items"] = definitions["Dictionary"]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}, **_TEXT}}}


@router.post(
    "/glossaries",
    status_code=201,
    response_model=GlossaryInfo,
    responses=_BODY_REFUSALS,
    openapi_extra=_described(NewGlossary),
)
async def create_glossary(
    request: Request,
    name: Annotated[str, Query(description="With rows of text: the name.")] = "",
    source_language: Annotated[str, Query(description="With rows of text: the language of the terms.")] = "",
    target_language: Annotated[str, Query(description="With rows of text: that of their translations.")] = "",
) -> GlossaryInfo:
    """Store a glossary: JSON, or rows of text with a term and its translation and the other fields in the query."""
    from service.store.glossaries import Languages

    content, form = await _content(request)
    if form == "json":
        given = _checked(NewGlossary, request, content)
        name = given.name
        dictionaries = {
            Languages.of(each.source_language, each.target_language): each.entries for each in given.dictionaries
        }
        if len(dictionaries) < len(given.dictionaries):
            raise QueryError("dictionaries: two are for the same languages")
    else:
        dictionaries = {Languages.of(source_language, target_language): read_entries(_decoded(content), form)}
    return _info(await ask_glossaries(request, lambda known, owner: known.create(owner, name, dictionaries)))


@router.get("/glossaries", response_model=GlossaryList, responses=_refusals(401))
async def list_glossaries(request: Request) -> GlossaryList:
    """Return the glossaries of the key, without their entries."""
    found = await ask_glossaries(request, lambda known, owner: known.list(owner))
    return GlossaryList(glossaries=[_info(each) for each in found])


@router.get("/glossaries/{identifier}", response_model=GlossaryInfo, responses=_REFUSALS)
async def glossary(identifier: Identifier, request: Request) -> GlossaryInfo:
    """Return a glossary without its entries."""
    return _info(await ask_glossaries(request, lambda known, owner: known.find(owner, identifier)))


@router.delete("/glossaries/{identifier}", status_code=204, response_class=Response, responses=_REFUSALS)
async def delete_glossary(identifier: Identifier, request: Request) -> Response:
    """Delete a glossary. Documents that were sent with it are still translated by it."""
    await ask_glossaries(request, lambda known, owner: known.delete(owner, identifier))
    return Response(status_code=204)


@router.get(
    "/glossaries/{identifier}/entries",
    response_class=Response,
    responses={**_REFUSALS, 200: {"content": {"application/json": {"schema": {"type": "object"}}, **_TEXT}}},
)
async def glossary_entries(
    identifier: Identifier,
    request: Request,
    source_language: Annotated[str, Query(description="Of a glossary with several dictionaries.")] = "",
    target_language: Annotated[str, Query(description="Of a glossary with several dictionaries.")] = "",
    form: Annotated[EntryForm | None, Query(alias="format", description="By default as `Accept` says.")] = None,
) -> Response:
    """Return the entries of a dictionary: a JSON object of translations by term, or rows of text."""
    from service.store.glossaries import Languages

    languages = Languages.of(source_language, target_language) if source_language or target_language else None
    found = await ask_glossaries(request, lambda known, owner: known.entries(owner, identifier, languages))
    form = form or next((_MEDIA_TYPES[kind] for kind in _accepted(request) if kind in _MEDIA_TYPES), "json")
    for kind, each in _MEDIA_TYPES.items():
        if each == form:
            return Response(written_entries(found, each), media_type=f"{kind}; charset=utf-8")
    return Response(Entries(entries=dict(found)).model_dump_json(), media_type="application/json")


@router.put(
    "/glossaries/{identifier}/entries",
    response_model=GlossaryInfo,
    responses=_BODY_REFUSALS,
    openapi_extra=_described(Entries),
)
async def replace_entries(
    identifier: Identifier, request: Request, source_language: SourceQuery, target_language: TargetQuery
) -> GlossaryInfo:
    """Store a dictionary in place of that of the same languages, or in addition: JSON or rows of text."""
    from service.store.glossaries import Languages

    content, form = await _content(request)
    entries = _checked(Entries, request, content).entries if form == "json" else read_entries(_decoded(content), form)
    languages = Languages.of(source_language, target_language)

    def replace(known: "Glossaries", owner: str) -> "StoredGlossary":
        return known.replace(owner, identifier, languages, entries)

    return _info(await ask_glossaries(request, replace))


def _info(found: "StoredGlossary") -> GlossaryInfo:
    dictionaries = [
        DictionaryInfo(source_language=languages.source, target_language=languages.target, entry_count=count)
        for languages, count in found.dictionaries.items()
    ]
    created = datetime.fromtimestamp(found.created, UTC)
    return GlossaryInfo(id=found.id, name=found.name, created=created, dictionaries=dictionaries)


async def _content(request: Request) -> tuple[bytes, EntryForm]:
    """Return the body and its format; raises the errors of `read_body`, `HTTPException` for a compressed one."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "compressed bodies are not accepted", {"Accept-Encoding": "identity"})
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return await read_body(request), _MEDIA_TYPES.get(kind, "json")


def _checked(model: type[BodyT], request: Request, content: bytes) -> BodyT:
    kind = request.headers.get("content-type", "")
    return checked_body(model, content, kind, request.app.state.settings.max_body_values)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"the body is not UTF-8 from byte {error.start} on") from None


def _accepted(request: Request) -> list[str]:
    return [each.partition(";")[0].strip().lower() for each in request.headers.get("accept", "").split(",")]
