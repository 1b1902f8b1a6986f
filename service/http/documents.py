"""Documents over HTTP, for all protocols: uploads to disk, jobs of them, and translated files."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any

from fastapi import HTTPException, Request, Response

from models import QueryError
from models.documents import format_of
from models.operations.operation import AnyOperation, Params
from models.tasks.registry import listed_operations
from service.engine.client import Engine
from service.engine.languages import LanguagePair, Through, find_pair, language_pairs
from service.http.auth import tenant_of
from service.http.requests import engine_of
from service.settings import Settings

if TYPE_CHECKING:
    from service.jobs.database import Job
    from service.jobs.jobs import Jobs
    from service.store.database import Database

__all__ = [
    "UPLOAD_PATHS",
    "Upload",
    "document_pair",
    "documents_of",
    "file_response",
    "find_job",
    "finished",
    "jobs_of",
    "rewriting_operation",
    "submit",
    "upload_limit",
    "uploaded",
]

UPLOAD_PATHS = ("/v1/documents", "/v2/document", "/translate_file")
"""Paths whose bodies hold a document."""
_FORM_BYTES = 1 << 16
"""What a form may have besides the document; also the size of a field."""
_IN_MEMORY = 1 << 20
"""Bytes of an upload from which it is written to a temporary file."""
_MOST_FIELDS = 50
_POLL_SECONDS = 0.1
"""Between two looks at a job that a request waits for, which any process may compute."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A document that was received, and the other fields of its form."""

    fields: Mapping[str, str]
    name: str
    """The name of its file, which nothing but its ending is read of."""
    file: IO[bytes]


def jobs_of(settings: Settings, engine: Engine, database: "Database | None") -> "Jobs | None":
    """Return the jobs of an application; None where there is no database."""
    if database is None:
        return None
    from service.jobs.jobs import Jobs  # needs the extra `documents`

    return Jobs(settings, engine, database)


def upload_limit(settings: Settings) -> int:
    """Return the size of the largest request with a document."""
    return settings.max_document_bytes + _FORM_BYTES


def documents_of(request: Request) -> "Jobs":
    """Return the jobs of the application; raises `HTTPException` where documents are not served."""
    jobs: Jobs | None = request.app.state.jobs
    if jobs is None:
        raise HTTPException(404, "documents are not served here: the service runs without --database")
    return jobs


def rewriting_operation() -> AnyOperation:
    """Return the operation that rewrites documents."""
    return next(each for each in listed_operations() if each.in_documents is not None)


@contextlib.asynccontextmanager
async def uploaded(request: Request, jobs: "Jobs") -> AsyncIterator[Upload]:
    """Receive a document into a temporary file: the field `file` of a form, or the whole body.

    A body that is no form has its fields in the query. Raises `HTTPException` where too many are received at a time,
    and for a form without a document.
    """
    if jobs.uploads.locked():
        raise HTTPException(429, "too many documents are being received", {"Retry-After": "5"})
    async with jobs.uploads:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "multipart/form-data":
            async with request.form(max_files=1, max_fields=_MOST_FIELDS, max_part_size=_FORM_BYTES) as form:
                file = form.get("file")
                if file is None or isinstance(file, str):
                    raise HTTPException(400, "the form has no file in the field file")
                fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
                yield Upload(fields, fields.get("filename") or file.filename or "", file.file)
        else:
            with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spooled:
                async for chunk in request.stream():
                    spooled.write(chunk)
                spooled.seek(0)
                fields = dict(request.query_params)
                yield Upload(fields, fields.get("name", ""), spooled)


async def document_pair(
    request: Request,
    jobs: "Jobs",
    upload: Upload,
    source: str | None,
    target: str | None,
    *,
    form: str | None = None,
    document: Mapping[str, Any] | None = None,
) -> LanguagePair:
    """Return the pair of a source and a target for a document, which is read to detect its language among several.

    Raises `QueryError` where no model has the pair, and `DocumentError` for a document that cannot be read.
    """
    engine = engine_of(request)
    pairs = language_pairs(engine.served_models, rewriting_operation(), engine.settings.pivot_language)
    found = find_pair(pairs, source, target)
    if source is not None or len({each.models for each in pairs if each.target == found.target}) < 2:
        return found
    name = format_of(form or upload.name).name
    async with jobs.stored:
        content = upload.file.read(engine.settings.max_document_bytes + 1)
        upload.file.seek(0)
        text = await jobs.beginning(name, content, document or {})
    return find_pair(pairs, None, target, read=lambda: text)


async def submit(
    request: Request,
    jobs: "Jobs",
    upload: Upload,
    *,
    model: str,
    operation: AnyOperation,
    params: Params,
    through: Through | None = None,
    form: str | None = None,
    document: Mapping[str, Any] | None = None,
) -> tuple["Job", str]:
    """Store a job for an upload; return it and its secret.

    `through` is the first step of a translation through a third language. `form` is the name of the document's format
    instead of that of the file's ending, `document` what of it is read.
    Raises `DocumentError` for a format that is not known, and `HTTPException` for an empty document and where there are
    too many.
    """
    from service.jobs.database import NewJob, TooManyJobs

    found = format_of(form or upload.name)
    async with jobs.stored:
        content = upload.file.read(request.app.state.settings.max_document_bytes + 1)
        if not content:
            raise HTTPException(400, "the document is empty")
        if len(content) > request.app.state.settings.max_document_bytes:
            raise HTTPException(413, "the document is larger than this service accepts (--max-document-bytes)")
        assert operation.in_documents is not None
        reading = {**operation.in_documents.reading(params), **(document or {})}
        options: dict[str, Any] = {"params": params.model_dump(exclude_unset=True), "document": reading}
        if through is not None:
            options["through"] = asdict(through)
        new = NewJob(
            owner=tenant_of(request),
            form=found.name,
            model=model,
            operation=operation.name,
            options=options,
            content=content,
        )
        try:
            return await jobs.add(new)
        except TooManyJobs as error:
            raise HTTPException(429, str(error), {"Retry-After": "60"}) from None


async def find_job(request: Request, jobs: "Jobs", identifier: str, key: str, *, of_any_caller: bool = False) -> "Job":
    """Return the job of an id and a key of the caller, or of any; raises `HTTPException` where there is none."""
    found = await jobs.find(identifier, key, None if of_any_caller else tenant_of(request))
    if found is None:
        raise HTTPException(404, "there is no document of this id and key, or it has expired")
    return found


async def finished(request: Request, jobs: "Jobs", job: "Job", key: str) -> None:
    """Wait until a job is done; delete it where the request is cancelled or takes longer than the longest deadline.

    Raises `QueryError` for a document that is not translated, `HTTPException` where that takes too long.
    """
    most = request.app.state.settings.max_request_timeout_ms / 1000
    ended: Job | None = job
    try:
        async with asyncio.timeout(most):
            while ended is not None and ended.state not in ("done", "error"):
                await asyncio.sleep(_POLL_SECONDS)
                ended = await jobs.find(job.id, key, None)
    except TimeoutError:
        await jobs.delete(job.id)
        raise HTTPException(504, f"the document takes longer than {most:g} seconds; POST /v1/documents waits") from None
    except BaseException:
        await jobs.delete(job.id)
        raise
    if ended is None or ended.error is not None:
        raise QueryError("the document was deleted" if ended is None else str(ended.error))


async def file_response(jobs: "Jobs", job: "Job", name: str | None = None) -> Response:
    """Return the translated document, as a file of that name; raises `HTTPException` where it is gone."""
    async with jobs.stored:
        content = await jobs.result(job.id)
    if content is None:
        raise HTTPException(404, "there is no document of this id and key, or it has expired")
    form = format_of(job.form)
    headers = {
        "Content-Disposition": f'attachment; filename="{name or f"translated{form.endings[0]}"}"',
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return Response(content, media_type=form.media_type, headers=headers)
