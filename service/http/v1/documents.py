"""`/v1/documents`: documents that are translated in the background, where there is a database of jobs."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models import QueryError
from models.operations.operation import Params
from models.operations.translation import TranslateParams
from models.operations.validation import errors_of
from models.text.markup import TextFormat
from service.engine.languages import Through
from service.engine.served_model import names_of
from service.http.documents import (
    Upload,
    document_pair,
    documents_of,
    file_response,
    find_job,
    rewriting_operation,
    submit,
    uploaded,
)
from service.http.errors import PROBLEM_RESPONSES, problem_schema
from service.http.glossaries import with_glossaries
from service.http.requests import engine_of

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"])

_MOST_NAMES = 100
Identifier = Annotated[str, Path(max_length=32, description="The `id` of the document.")]
KeyHeader = Annotated[str | None, Header(alias="X-Document-Key", max_length=100, description="The document's `key`.")]
KeyQuery = Annotated[str | None, Query(alias="key", max_length=100, description="The same, where no header can be.")]


class DocumentFields(BaseModel):
    """What is done with a document: fields of the form, or of the query."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: Annotated[str, Field(max_length=1000)] = ""
    """Name of the file, of whose ending its format follows; of a form that of its file."""
    filename: Annotated[str, Field(max_length=1000)] = ""
    """The same."""
    format: Annotated[str, Field(max_length=20)] | None = None
    """Format instead of that of the name, such as docx."""
    model: Annotated[str, Field(max_length=300)] | None = None
    """Such as de-en or de-en:5; optional where one model translates."""
    source_language: Annotated[str, Field(max_length=16)] | None = None
    """Code of the document's language, which chooses among models."""
    target_language: Annotated[str, Field(max_length=16)] | None = None
    """Code of the language to write."""
    glossary_id: Annotated[str, Field(max_length=200)] = ""
    """The id of a stored glossary, or several, separated by commas, as they are now."""
    params: Annotated[str, Field(max_length=50_000)] = "{}"
    """More parameters of `/v1/translate` as a JSON object, such as {"beam_size": 3}."""
    encoding: Annotated[str, Field(max_length=40)] | None = None
    """Encoding of a text file."""
    columns: Annotated[str, Field(max_length=5000)] = ""
    """Columns of CSV, separated by commas."""
    paths: Annotated[str, Field(max_length=5000)] = ""
    """Values of JSON, separated by commas, such as title,items.*.name."""
    value_format: TextFormat | None = None
    """Format of the values of JSON and of the cells of CSV; by default the `format` of the parameters."""
    overwrite: bool = False
    """Translate messages of PO and units of XLIFF again that have a translation."""
    join_lines: bool = False
    """Join the lines of the paragraphs of a text file."""

    def document(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of reading the document; `given` are those of the parameters."""
        values = {} if self.value_format is None else {"value_format": self.value_format}
        return {
            **given,
            **values,
            "encoding": self.encoding,
            "columns": _names(self.columns),
            "paths": _names(self.paths),
            "overwrite": self.overwrite,
            "join_lines": self.join_lines,
        }


class AcceptedDocument(BaseModel):
    """A document that will be translated."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    """Names the document."""
    key: str
    """Opens it: other requests need it."""


class DoubtfulDocumentText(BaseModel):
    """A text whose translation is likely to be poor."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    context: str
    """Where it is in the document, such as `line 3`; empty where its format has no such names."""
    text: str
    """Its first 200 characters, before it was translated."""


class DocumentStatus(BaseModel):
    """How far a document is."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    """Names the document."""
    status: Literal["queued", "translating", "done", "error"]
    """`error` is the end, as `done` is."""
    format: str
    """Format of the document."""
    model: str
    """`name:version` of the model."""
    via: str | None
    """Code of the third language that the document is translated through."""
    percent: float
    """Share of the characters that are translated, in percent."""
    characters: int | None
    """Characters of all texts; null before the document is read."""
    characters_done: int
    """Characters of the texts that are translated."""
    failed: int
    """Texts that were refused and stay as they are."""
    low_confidence: int
    """Texts whose translations are likely to be poor."""
    low_confidence_texts: list[DoubtfulDocumentText]
    """Some of these."""
    seconds_left: float | None
    """Expected time until it is done; null where that is not known."""
    error: str | None
    """Why there is no translation."""


_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "The document."},
                        **{
                            name: {"type": "string", "description": field.description}
                            for name, field in DocumentFields.model_fields.items()
                        },
                    },
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
_REFUSALS: dict[int | str, dict[str, object]] = {status: PROBLEM_RESPONSES[status] for status in (401, 404, 422)}
_UPLOAD_REFUSALS: dict[int | str, dict[str, object]] = {
    status: PROBLEM_RESPONSES[status] for status in (400, 401, 404, 413, 422, 429, 503)
}


@router.post(
    "/documents", status_code=202, response_model=AcceptedDocument, responses=_UPLOAD_REFUSALS, openapi_extra=_BODY
)
async def upload_document(request: Request) -> AcceptedDocument:
    """Translate a document in the background: a form with the field `file`, or the file itself and fields in the query.

    It is translated with the least urgency, and goes on where it was after a restart.
    """
    jobs, operation = documents_of(request), rewriting_operation()
    async with uploaded(request, jobs) as upload:
        try:
            fields = DocumentFields.model_validate(upload.fields)
            given = operation.params.model_validate(_object(fields.params))
        except ValidationError as error:
            raise RequestValidationError(errors_of(error, "body")) from None
        assert operation.in_documents is not None
        document = fields.document(operation.in_documents.reading(given))
        model, params, through = await _chosen(request, upload, fields, given, document)
        if identifiers := _names(fields.glossary_id):
            if not isinstance(params, TranslateParams):
                raise QueryError(f"glossary_id: the operation {operation.name} takes no glossary")
            params = await with_glossaries(
                request, params, identifiers, model=model, operation=operation.name, source=fields.source_language
            )
        found, key = await submit(
            request,
            jobs,
            upload,
            model=model,
            operation=operation,
            params=params,
            through=through,
            form=fields.format or fields.name or None,
            document=document,
        )
    return AcceptedDocument(id=found.id, key=key)


@router.get("/documents/{identifier}", response_model=DocumentStatus, responses=_REFUSALS)
async def document_status(
    identifier: Identifier, request: Request, header: KeyHeader = None, key: KeyQuery = None
) -> DocumentStatus:
    """Return how far a document is."""
    job = await find_job(request, documents_of(request), identifier, header or key or "")
    return DocumentStatus(
        id=job.id,
        status=job.state,
        format=job.form,
        model=job.model,
        via=job.via,
        percent=round(job.percent, 2),
        characters=job.characters,
        characters_done=job.characters_done,
        failed=job.failed,
        low_confidence=job.doubtful,
        low_confidence_texts=[
            DoubtfulDocumentText(context=each.context, text=each.text) for each in job.doubtful_texts
        ],
        seconds_left=None if job.seconds_left is None else round(job.seconds_left, 1),
        error=job.error,
    )


@router.get(
    "/documents/{identifier}/result",
    response_class=Response,
    responses={**_REFUSALS, 409: problem_schema("It is not done"), 200: {"description": "The translated document."}},
)
async def document_result(
    identifier: Identifier, request: Request, header: KeyHeader = None, key: KeyQuery = None
) -> Response:
    """Return the translated document, in the format of the document."""
    jobs = documents_of(request)
    job = await find_job(request, jobs, identifier, header or key or "")
    if job.state != "done":
        raise HTTPException(409, job.error or "the document is not translated yet")
    return await file_response(jobs, job)


@router.delete("/documents/{identifier}", status_code=204, response_class=Response, responses=_REFUSALS)
async def delete_document(
    identifier: Identifier, request: Request, header: KeyHeader = None, key: KeyQuery = None
) -> Response:
    """Delete a document and its translation; one that is being translated is cancelled."""
    jobs = documents_of(request)
    job = await find_job(request, jobs, identifier, header or key or "")
    await jobs.delete(job.id)
    return Response(status_code=204)


def _object(params: str) -> dict[str, Any]:
    try:
        found = json.loads(params)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HTTPException(422, 'params: this is no JSON object, such as {"beam_size": 3}')
    return found


def _names(text: str) -> list[str]:
    names = [each.strip() for each in text.split(",") if each.strip()]
    if len(names) > _MOST_NAMES:
        raise QueryError(f"more than {_MOST_NAMES} columns or paths")
    return names


async def _chosen(
    request: Request, upload: Upload, fields: DocumentFields, params: Params, document: Mapping[str, Any]
) -> tuple[str, Params, Through | None]:
    """Return the model of a document by its name or its languages, the parameters with these, and the first step.

    Raises the errors of `find` and of `document_pair`.
    """
    engine, operation = engine_of(request), rewriting_operation()
    between = operation.between_languages
    assert between is not None
    asked = between.asked(params)
    source, target = fields.source_language or asked[0], fields.target_language or asked[1]
    if fields.model is None:
        target = target or engine.settings.default_target_language
    if fields.model is not None or (source, target) == (None, None):
        model = names_of(engine.served_models.find(fields.model, operation.name).key)[1]
        return model, params if target is None else _checked(between.chosen(params, asked[0], target)), None
    form = fields.format or fields.name or None
    pair = await document_pair(request, documents_of(request), upload, source, target, form=form, document=document)
    read = None if pair.detected else pair.source
    return pair.model, _checked(between.chosen(params, read, pair.target)), pair.through


def _checked(params: Params) -> Params:
    return type(params).model_validate(params.model_dump(exclude_unset=True))
