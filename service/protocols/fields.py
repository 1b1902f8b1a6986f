"""Requests and answers of protocols: fields of JSON or of a form in, JSON out."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import parse_qs

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from models.operations.validation import shown_name
from service.engine.resources import Resources
from service.http.answer import INLINE_ITEMS, ChunkedResponse
from service.http.auth import check_body_key, needs_body_key
from service.http.body import checked_body, read_body
from service.http.requests import server_timing

__all__ = ["Fields", "json_response", "read_fields"]

FieldsT = TypeVar("FieldsT", bound="Fields")

_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 10_000


class Fields(BaseModel):
    """Fields of a request. Unknown ones are ignored: clients send what other services understand."""

    model_config = ConfigDict(extra="ignore")

    api_key: str | None = None
    """The key, in protocols whose clients put it here."""


async def read_fields(request: Request, model: type[FieldsT], *, lists: frozenset[str] = frozenset()) -> FieldsT:
    """Read the body, JSON or a form, and check its fields and, where the header has none, its key.

    `lists` names fields that a form may repeat. Raises the errors of `read_body` and `checked_body`, and
    `HTTPException` for a body in another encoding or without a key that is needed.
    """
    headers = dict(request.scope["headers"])
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise HTTPException(415, "compressed bodies are not accepted", {"Accept-Encoding": "identity"})
    content, most = await read_body(request), request.app.state.settings.max_body_values
    kind = headers.get(b"content-type", b"").decode("latin-1")
    if not content:
        content, kind = b"{}", "application/json"
    if kind.partition(";")[0].strip().lower() == _FORM:
        content, kind = json.dumps(_form(content, lists)).encode(), "application/json"
    if needs_body_key(request):  # before anything else of the body is checked
        check_body_key(request, _key(content, kind, most))
    return checked_body(model, content, kind, most)


def _key(content: bytes, content_type: str, max_values: int) -> str | None:
    try:
        return checked_body(Fields, content, content_type, max_values).api_key
    except (RequestValidationError, HTTPException):
        return None


def _form(content: bytes, lists: frozenset[str]) -> Mapping[str, object]:
    try:
        found = parse_qs(
            content.decode(), keep_blank_values=True, strict_parsing=bool(content), max_num_fields=_MOST_FIELDS
        )
    except ValueError as error:
        raise HTTPException(400, "the body is not a form of UTF-8 text") from error
    if twice := [name for name, values in found.items() if len(values) > 1 and name not in lists]:
        raise HTTPException(400, f"the form has the field {shown_name(twice[0])} twice")
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


async def json_response(request: Request, content: Callable[[], object], items: int = 0) -> Response:
    """Return a response of JSON; one of many result items is made on another thread."""

    def encoded() -> bytes:
        return json.dumps(content(), ensure_ascii=False, allow_nan=False).encode()

    if items <= INLINE_ITEMS:
        body = encoded()
    else:
        resources: Resources = request.app.state.resources
        body = await asyncio.get_running_loop().run_in_executor(resources.encoder, encoded)
    return ChunkedResponse([body], server_timing(request))
