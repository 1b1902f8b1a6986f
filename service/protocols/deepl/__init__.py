"""DeepL's API (client: `deepl`, with `server_url`): texts, documents, languages, usage and glossaries."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BeforeValidator, Field, ValidationError
from starlette.responses import JSONResponse

from models import QueryError
from models.documents import format_of
from models.operations.translation import TranslateParams
from models.operations.validation import errors_of
from models.tasks.translation import Translation
from models.text.markup import MAX_NAMES, PLAIN, BlockTags, Markup
from service.http.auth import tenant_of
from service.http.documents import (
    document_pair,
    documents_of,
    file_response,
    find_job,
    rewriting_operation,
    submit,
    uploaded,
)
from service.http.errors import Failure
from service.http.glossaries import MOST_GLOSSARIES, load_glossaries
from service.http.requests import Texts
from service.http.usage import Usage
from service.protocols.deepl import glossaries
from service.protocols.fields import Fields, json_response, read_fields
from service.protocols.languages import language_name, two_letters
from service.protocols.protocol import Protocol
from service.protocols.translating import LanguagePair, find_pair, language_pairs, translated

if TYPE_CHECKING:
    from service.jobs.database import Job
    from service.store.glossaries import Loaded

__all__ = ["PROTOCOL"]

_SECONDS = 8.0
"""Deadline: the client reads for 10 seconds, and then sends the request again, up to five times."""
_STATUSES = {401: 403, 409: 456, 422: 400, 504: 413}
"""Statuses that the client knows by others: 456 for a request beyond a quota.

It would repeat what took too long: 413 says that it was too much.
"""
_QUOTA_EXCEEDED = 456
"""The status of a key whose budget is used up, after which the client does not send the request again."""
_REGIONS = {"en": ("EN-GB", "EN-US"), "pt": ("PT-BR", "PT-PT")}
"""Spellings of target languages that the client asks for by region."""
_UNLIMITED = 10**12
_REFUSED = (
    "style_id",
    "custom_instructions",
    "translation_memory_id",
    "translation_memory_ids",
)
"""Options that ask for another translation, and that the models do not have."""
router = APIRouter()


def _names(given: object) -> object:
    return given.split(",") if isinstance(given, str) else given or []


class GlossaryChoice(Fields):
    glossary_id: str | None = None
    glossary_ids: Annotated[list[str], BeforeValidator(_names), Field(max_length=MOST_GLOSSARIES)] = Field(
        default_factory=list
    )

    def identifiers(self) -> list[str]:
        """Return the ids of glossaries; raises `QueryError` where both fields have some."""
        if self.glossary_id and self.glossary_ids:
            raise QueryError("give either glossary_id or glossary_ids")
        return [self.glossary_id] if self.glossary_id else self.glossary_ids


_Names = Annotated[list[str], Field(max_length=MAX_NAMES), BeforeValidator(_names)]
"""Names of elements, as a list or separated by commas."""


class TranslateFields(GlossaryChoice):
    text: Annotated[Texts, Field(max_length=50)]
    target_lang: str
    source_lang: str | None = None
    formality: Literal["default", "prefer_more", "prefer_less"] = "default"
    split_sentences: Literal["0", "1", "nonewlines", 0, 1, True, False] = "1"
    tag_handling: Literal["html", "xml", "", None] = None
    ignore_tags: _Names = Field(default_factory=list)
    splitting_tags: _Names = Field(default_factory=list)
    non_splitting_tags: _Names = Field(default_factory=list)
    outline_detection: bool = True
    style_id: object = None
    custom_instructions: object = None
    translation_memory_id: object = None
    translation_memory_ids: object = None


class LanguagesFields(Fields):
    type: Literal["source", "target"] = "source"


async def translate(request: Request) -> Response:
    """Answer `POST /v2/translate`."""
    fields = await read_fields(request, TranslateFields, lists=frozenset(("text",)))
    if refused := [name for name in _REFUSED if getattr(fields, name)]:
        raise QueryError(f"{refused[0]} is not supported")
    markup = _markup(fields)
    pair = find_pair(request, fields.source_lang or None, fields.target_lang, read=lambda: markup.plain(fields.text[0]))
    found = await translated(
        request,
        fields.text,
        pair,
        seconds=_SECONDS,
        join_lines=fields.split_sentences == "nonewlines",
        split_sentences=fields.split_sentences not in ("0", 0),
        markup=markup,
        glossary=await _glossary(request, fields.identifiers(), pair),
    )

    def content() -> dict[str, object]:
        return {"translations": [_translation(each, pair.source) for each in found.results]}

    response = await json_response(request, content, found.items)
    _usage(request).add(tenant_of(request), sum(map(len, fields.text)))
    return response


async def _glossary(request: Request, identifiers: Sequence[str], pair: LanguagePair) -> "Loaded | None":
    """Return the entries of glossaries for two languages; raises `QueryError`, the errors of `load_glossaries`."""
    if not identifiers:
        return None
    if pair.detected:
        raise QueryError("source_lang is needed with a glossary")
    return await load_glossaries(request, identifiers, pair.source, pair.target)


def _markup(fields: TranslateFields) -> Markup:
    if not fields.tag_handling:
        return PLAIN
    ignored, splitting, non_splitting = (
        tuple(filter(None, map(str.strip, names)))
        for names in (fields.ignore_tags, fields.splitting_tags, fields.non_splitting_tags)
    )
    block_tags = BlockTags(frozenset(splitting), frozenset(non_splitting), fields.outline_detection)
    return Markup(fields.tag_handling, ignored, block_tags=block_tags)


def _usage(request: Request) -> Usage:
    usage: Usage = request.app.state.usage
    return usage


def _translation(translation: Translation, source: str) -> dict[str, object]:
    via = {} if translation.via is None else {"via": two_letters(translation.via).upper()}
    return {
        **via,
        "detected_source_language": two_letters(
            translation.detected_language or translation.source_language or source
        ).upper(),
        "text": translation.translations[0].text,
        "billed_characters": len(translation.text),
    }


async def languages(request: Request) -> Response:
    """Answer `GET /v2/languages`, whose field `type` may be in the query or in a form."""
    fields = await read_fields(request, LanguagesFields)
    kind = request.query_params.get("type", fields.type)
    found: dict[str, dict[str, object]] = {}
    for pair in language_pairs(request):
        code = two_letters(pair.source if kind == "source" else pair.target)
        for shown in (code.upper(),) if kind == "source" else _REGIONS.get(code, (code.upper(),)):
            found[shown] = {"language": shown, "name": language_name(code)}
            if kind == "target":
                found[shown]["supports_formality"] = False
    return await json_response(request, lambda: list(found.values()))


async def usage(request: Request) -> Response:
    """Answer `GET /v2/usage`: the characters translated with the request's key, documents included.

    Without a database they are those since the service started. A key with a daily budget gets the characters of the
    day and the budget, so that a client sees when it is used up.
    """
    tenant = tenant_of(request)
    count, limit = _usage(request).day_budget(tenant) or (await _usage(request).count(tenant), _UNLIMITED)
    return await json_response(request, lambda: {"character_count": count, "character_limit": limit})


class DocumentFields(GlossaryChoice):
    target_lang: str
    source_lang: str | None = None
    formality: Literal["default", "prefer_more", "prefer_less"] = "default"
    output_format: str | None = None
    style_id: object = None
    custom_instructions: object = None
    translation_memory_id: object = None
    translation_memory_ids: object = None


class DocumentKey(Fields):
    document_key: str = ""


async def upload_document(request: Request) -> Response:
    """Answer `POST /v2/document`: a form with the field `file`."""
    jobs = documents_of(request)
    async with uploaded(request, jobs) as upload:
        try:
            fields = DocumentFields.model_validate(dict(upload.fields))
        except ValidationError as error:
            raise RequestValidationError(errors_of(error, "body")) from None
        if refused := [name for name in _REFUSED if getattr(fields, name)]:
            raise QueryError(f"{refused[0]} is not supported")
        if fields.output_format and format_of(fields.output_format).name != format_of(upload.name).name:
            raise QueryError("output_format: a document is written in its own format")
        pair = await document_pair(request, jobs, upload, fields.source_lang or None, fields.target_lang)
        source = None if pair.detected else pair.source
        params = TranslateParams(source_language=source, target_language=pair.target)
        if (glossary := await _glossary(request, fields.identifiers(), pair)) is not None:
            params = params.with_glossary(glossary.entries, glossary.terms)
        job, key = await submit(
            request,
            jobs,
            upload,
            model=pair.model,
            operation=rewriting_operation(),
            params=params,
            through=pair.through,
        )
    return await json_response(request, lambda: {"document_id": job.id, "document_key": key})


async def document_status(request: Request) -> Response:
    """Answer `POST /v2/document/{document_id}`."""
    job = await _document(request)
    content: dict[str, object] = {"document_id": job.id, "status": job.state}
    if job.state == "translating" and job.seconds_left is not None:
        content["seconds_remaining"] = max(1, round(job.seconds_left))
    if job.state == "done":
        content["billed_characters"] = job.characters or 0
    if job.error is not None:
        content["error_message"] = job.error
    return await json_response(request, lambda: content)


async def document_result(request: Request) -> Response:
    """Answer `POST /v2/document/{document_id}/result`."""
    job = await _document(request)
    if job.state == "error":
        raise QueryError(job.error or "the document was not translated")
    if job.state != "done":
        raise HTTPException(503, "the document is not translated yet", {"Retry-After": "5"})
    return await file_response(documents_of(request), job)


async def _document(request: Request) -> "Job":
    fields = await read_fields(request, DocumentKey)
    return await find_job(request, documents_of(request), request.path_params["identifier"], fields.document_key)


def _error(failure: Failure) -> Response:
    status = _QUOTA_EXCEEDED if failure.budget_used else _STATUSES.get(failure.status, failure.status)
    return JSONResponse({"message": failure.detail, "detail": ""}, status, failure.headers)


router.add_route("/v2/translate", translate, methods=["POST"])
router.add_route("/v2/languages", languages, methods=["GET"])
router.add_route("/v2/usage", usage, methods=["GET"])
router.add_route("/v2/document", upload_document, methods=["POST"])
router.add_route("/v2/document/{identifier}", document_status, methods=["POST"])
router.add_route("/v2/document/{identifier}/result", document_result, methods=["POST"])

for path, endpoint, method in glossaries.ROUTES:
    router.add_route(path, endpoint, methods=[method])

PROTOCOL = Protocol(
    router=router,
    prefixes=("/v2/translate", "/v2/languages", "/v2/usage", "/v2/document", *glossaries.PREFIXES),
    error=_error,
)
