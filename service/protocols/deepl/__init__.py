"""DeepL's API, version 2 (client: `deepl`, with `server_url`): texts, languages and usage."""

from collections import Counter
from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BeforeValidator, Field
from starlette.responses import JSONResponse

from models import QueryError
from models.tasks.translation import Translation
from models.text.markup import MAX_NAMES, PLAIN, Markup
from service.http.auth import tenant_of
from service.http.errors import Failure
from service.http.requests import Texts
from service.protocols.fields import Fields, json_response, read_fields
from service.protocols.languages import language_name, two_letters
from service.protocols.protocol import Protocol
from service.protocols.translating import find_pair, language_pairs, translated

__all__ = ["PROTOCOL"]

_SECONDS = 8.0
"""Deadline: the client reads for 10 seconds, and then sends the request again, up to five times."""
_STATUSES = {401: 403, 422: 400, 504: 413}
"""Statuses that the client knows by others. It would repeat what took too long: 413 says that it was too much."""
_REGIONS = {"en": ("EN-GB", "EN-US"), "pt": ("PT-BR", "PT-PT")}
"""Spellings of target languages that the client asks for by region."""
_UNLIMITED = 10**12
_REFUSED = (
    "glossary_id",
    "glossary_ids",
    "style_id",
    "custom_instructions",
    "translation_memory_id",
    "translation_memory_ids",
)
"""Options that ask for another translation, and that the models do not have."""
_COUNTS = "deepl_characters"
"""Attribute of the application's state: characters that were translated since the start, by API key."""

router = APIRouter()


def _names(given: object) -> object:
    return given.split(",") if isinstance(given, str) else given


class TranslateFields(Fields):
    text: Annotated[Texts, Field(max_length=50)]
    target_lang: str
    source_lang: str | None = None
    formality: Literal["default", "prefer_more", "prefer_less"] = "default"
    split_sentences: Literal["1", "nonewlines", 1, True] = "1"
    glossary_id: object = None
    glossary_ids: object = None
    tag_handling: Literal["html", "xml", "", None] = None
    ignore_tags: Annotated[list[str], Field(max_length=MAX_NAMES), BeforeValidator(_names)] | None = None
    """Names of elements, as a list or separated by commas."""
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
    pair = find_pair(request, fields.source_lang or None, fields.target_lang)
    join_lines = fields.split_sentences == "nonewlines"
    found = await translated(
        request, fields.text, pair, seconds=_SECONDS, join_lines=join_lines, markup=_markup(fields)
    )

    def content() -> dict[str, object]:
        return {"translations": [_translation(each, pair.source) for each in found.results]}

    response = await json_response(request, content, found.items)
    _counts(request)[tenant_of(request)] += sum(map(len, fields.text))
    return response


def _markup(fields: TranslateFields) -> Markup:
    names = tuple(filter(None, (name.strip() for name in fields.ignore_tags or ())))
    return Markup(fields.tag_handling, names) if fields.tag_handling else PLAIN


def _counts(request: Request) -> Counter[str]:
    state = request.app.state
    if not hasattr(state, _COUNTS):
        setattr(state, _COUNTS, Counter())
    counts: Counter[str] = getattr(state, _COUNTS)
    return counts


def _translation(translation: Translation, source: str) -> dict[str, object]:
    return {
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
    """Answer `GET /v2/usage`: the characters translated with the request's key since the service started."""
    count = _counts(request)[tenant_of(request)]
    return await json_response(request, lambda: {"character_count": count, "character_limit": _UNLIMITED})


def _error(failure: Failure) -> Response:
    status = _STATUSES.get(failure.status, failure.status)
    return JSONResponse({"message": failure.detail, "detail": ""}, status, failure.headers)


router.add_route("/v2/translate", translate, methods=["POST"])
router.add_route("/v2/languages", languages, methods=["GET"])
router.add_route("/v2/usage", usage, methods=["GET"])

PROTOCOL = Protocol(router=router, prefixes=("/v2/translate", "/v2/languages", "/v2/usage"), error=_error)
