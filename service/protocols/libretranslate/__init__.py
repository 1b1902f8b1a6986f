"""LibreTranslate's API (client: `libretranslatepy`, and many programs that take its address)."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.responses import JSONResponse

from models.decoding.sequence_to_sequence import MAX_BEAM_SIZE
from models.documents import format_of, formats
from models.operations.translation import TranslateParams
from models.operations.validation import errors_of
from models.tasks.translation import Translation
from models.text.language import detected_languages
from models.text.markup import Markup
from service.http.auth import check_body_key, needs_body_key
from service.http.documents import (
    document_pair,
    documents_of,
    file_response,
    find_job,
    finished,
    rewriting_operation,
    submit,
    uploaded,
)
from service.http.errors import Failure
from service.http.requests import OneOrSeveralTexts, Text
from service.protocols.fields import Fields, json_response, read_fields
from service.protocols.languages import language_name, same_language, two_letters
from service.protocols.protocol import Protocol
from service.protocols.translating import find_pair, language_pairs, translated

__all__ = ["PROTOCOL"]

_AUTO = "auto"
_DETECTED = 5
"""Languages that `/detect` lists at most."""
_LONGEST_NAME = 80
"""Characters of the name of a file, without its ending, that its translation has."""
_LEAST = 0.01
"""Probability from which it lists a language."""
_STATUSES = {401: 403, 422: 400}
"""Statuses that LibreTranslate has others for."""

_Json = dict[str, Any]

router = APIRouter()


class TranslateFields(Fields):
    q: OneOrSeveralTexts
    source: str
    target: str | None = None
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, lt=MAX_BEAM_SIZE)] = 0


class DetectFields(Fields):
    q: Text


async def translate(request: Request) -> Response:
    """Answer `POST /translate`."""
    fields = await read_fields(request, TranslateFields, lists=frozenset(("q",)))
    texts = [fields.q] if isinstance(fields.q, str) else fields.q
    detected: list[_Json] | None = [] if fields.source == _AUTO else None
    known, markup, target = _known(request), Markup(fields.format), _target(request, fields.target)
    source = fields.source if detected is None else _read(request, markup.plain(texts[0]), known, target)
    pair = find_pair(request, source, target)
    unknown = {"language": two_letters(pair.source), "confidence": 0.0}

    def detect_language(text: str) -> None:
        if detected is not None:
            detected.append(next(iter(_detected(markup.plain(text), known)), unknown))

    alternatives = fields.alternatives
    found = await translated(
        request,
        texts,
        pair,
        n_best=alternatives + 1,
        prepare=None if detected is None else detect_language,
        markup=markup,
    )
    single = isinstance(fields.q, str)

    def content() -> _Json:
        content = _content(list(found.results), detected, single=single, alternatives=alternatives > 0)
        return content if pair.via is None else content | {"via": pair.via}

    return await json_response(request, content, found.items)


def _target(request: Request, target: str | None) -> str:
    """Return the target language, by default that of the settings; raises `RequestValidationError` without one."""
    chosen = target or request.app.state.settings.default_target_language
    if chosen is None:
        raise RequestValidationError([{"type": "missing", "loc": ("body", "target"), "msg": "", "input": None}])
    return str(chosen)


def _read(request: Request, text: str, known: Collection[str], target: str) -> str | None:
    """Return the language of a text where a model translates it to the target, else None."""
    sources = {two_letters(pair.source) for pair in language_pairs(request) if same_language(pair.target, target)}
    return next((found["language"] for found in _detected(text, known)[:1] if found["language"] in sources), None)


def _content(
    translations: Sequence[Translation],
    detected: Sequence[_Json] | None,
    *,
    single: bool,
    alternatives: bool,
) -> _Json:
    content: _Json = {"translatedText": [each.translations[0].text for each in translations]}
    if alternatives:
        content["alternatives"] = [[other.text for other in each.translations[1:]] for each in translations]
    if detected is not None:
        content["detectedLanguage"] = list(detected)
    return {name: values[0] for name, values in content.items()} if single else content


async def detect(request: Request) -> Response:
    """Answer `POST /detect`."""
    fields = await read_fields(request, DetectFields)
    known = _known(request)
    return await json_response(request, lambda: _detected(fields.q, known))


def _detected(text: str, known: Collection[str]) -> list[_Json]:
    """Return the languages that a text may be in, most probable first; a text without letters has none."""
    found = [each for each in detected_languages(text) if each[0] in known and each[1] >= _LEAST]
    return [{"language": code, "confidence": round(100 * share, 1)} for code, share in found[:_DETECTED]]


def _known(request: Request) -> frozenset[str]:
    """Return the languages that `/languages` lists."""
    return frozenset(two_letters(code) for pair in language_pairs(request) for code in (pair.source, pair.target))


async def languages(request: Request) -> Response:
    """Answer `GET /languages`: each language, and those that it can be translated to."""
    await read_fields(request, Fields)
    targets: dict[str, list[str]] = {}
    for pair in language_pairs(request):
        source, target = two_letters(pair.source), two_letters(pair.target)
        known = targets.setdefault(source, [])
        targets.setdefault(target, [])
        if target not in known:
            known.append(target)
    content = [{"code": code, "name": language_name(code), "targets": others} for code, others in targets.items()]
    return await json_response(request, lambda: content)


async def frontend_settings(request: Request) -> Response:
    """Answer `GET /frontend/settings`."""
    await read_fields(request, Fields)
    pairs = language_pairs(request)
    source, target = ({"code": _AUTO, "name": "Auto"},) * 2
    if pairs:
        source, target = (
            {"code": two_letters(c), "name": language_name(c)} for c in (pairs[0].source, pairs[0].target)
        )
    settings = request.app.state.settings
    if (default := settings.default_target_language) is not None:
        target = {"code": two_letters(default), "name": language_name(default)}
    has_files = request.app.state.jobs is not None
    content = {
        "apiKeys": settings.api_keys is not None,
        "keyRequired": settings.api_keys is not None,
        "charLimit": -1,
        "frontendTimeout": 500,
        "suggestions": False,
        "filesTranslation": has_files,
        "supportedFilesFormat": [ending for each in formats() for ending in each.endings] if has_files else [],
        "language": {"source": source, "target": target},
    }
    return await json_response(request, lambda: content)


class FileFields(Fields):
    source: str
    target: str | None = None


async def translate_file(request: Request) -> Response:
    """Answer `POST /translate_file`, a form with the field `file`, once the file is translated."""
    if request.app.state.jobs is None and needs_body_key(request):
        check_body_key(request, None)  # the form is not read
    jobs = documents_of(request)
    async with uploaded(request, jobs) as upload:
        if needs_body_key(request):
            check_body_key(request, upload.fields.get("api_key"))
        fields = _checked(upload.fields)
        target, form = _target(request, fields.target), format_of(upload.name)
        source = None if fields.source == _AUTO else fields.source
        pair = await document_pair(request, jobs, upload, source, target)
        params = TranslateParams(source_language=None if pair.detected else pair.source, target_language=pair.target)
        job, key = await submit(
            request,
            jobs,
            upload,
            model=pair.model,
            operation=rewriting_operation(),
            params=params,
            through=pair.through,
        )
    await finished(request, jobs, job, key)
    name = f"{_plain_name(upload.name)}_{two_letters(pair.target)}{form.endings[0]}"
    address = f"{request.base_url}download_file/{job.id}.{key}.{name}"
    return await json_response(request, lambda: {"translatedFileUrl": address})


def _checked(fields: Mapping[str, str]) -> FileFields:
    try:
        return FileFields.model_validate(dict(fields))
    except ValidationError as error:
        raise RequestValidationError(errors_of(error, "body")) from None


def _plain_name(name: str) -> str:
    """Return the name of a file without its folder and ending, and without what an address spells otherwise."""
    stem = PurePosixPath(name.replace("\\", "/")).stem
    return re.sub(r"[^A-Za-z0-9-]+", "_", stem)[:_LONGEST_NAME].strip("_") or "file"


async def download_file(request: Request) -> Response:
    """Answer `GET /download_file/{name}`, whose name nobody can guess: no key is needed."""
    identifier, _, rest = request.path_params["name"].partition(".")
    key, _, name = rest.partition(".")
    jobs = documents_of(request)
    job = await find_job(request, jobs, identifier, key, of_any_caller=True)
    return await file_response(jobs, job, name)


def _error(failure: Failure) -> Response:
    status = _STATUSES.get(failure.status, failure.status)
    return JSONResponse({"error": failure.detail}, status, failure.headers)


router.add_route("/translate", translate, methods=["POST"])
router.add_route("/translate_file", translate_file, methods=["POST"])
router.add_route("/download_file/{name}", download_file, methods=["GET"])
router.add_route("/detect", detect, methods=["POST"])
router.add_route("/languages", languages, methods=["GET"])
router.add_route("/frontend/settings", frontend_settings, methods=["GET"])

PROTOCOL = Protocol(
    router=router,
    prefixes=("/translate", "/translate_file", "/download_file", "/detect", "/languages", "/frontend/settings"),
    open_paths=(r"/download_file/[0-9a-f]{32}\.[\w-]{32}\.[\w.-]{1,120}",),
    error=_error,
    key_in_body=True,
)
