"""Answers of model endpoints: from results to JSON in chunks, so that a large answer does not delay others."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.types import Receive, Scope, Send

from models.operations.operation import Record
from service.engine.client import Outcome
from service.engine.resources import Resources

__all__ = ["INLINE_ITEMS", "Answer", "ChunkedResponse", "Result", "Results", "encoded"]

INLINE_ITEMS = 1000
"""Larger answers are encoded on another thread."""
_CHUNK = 1 << 16
"""Bytes that are handed to the connection at a time."""


Result = Record
"""A part of a response."""

ResultT = TypeVar("ResultT", bound=Result)


class Results(BaseModel, Generic[ResultT]):
    """One result per input, in order."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    model: str
    """Name of the model that answered."""
    version: int
    """Its version."""
    results: list[ResultT]
    """One for each input, in order."""


Answer = Outcome
"""The results of a request."""


async def encoded(request: Request, answer: Answer[Any] | BaseModel, *, exclude_none: bool) -> list[bytes]:
    """Return the JSON of an answer in chunks."""
    if isinstance(answer, BaseModel):
        return [answer.__pydantic_serializer__.to_json(answer, exclude_none=exclude_none)]
    if answer.items <= INLINE_ITEMS:
        return list(_chunks(answer, exclude_none))
    resources: Resources = request.app.state.resources
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(resources.encoder, lambda: list(_chunks(answer, exclude_none)))


def _chunks(answer: Answer[Any], exclude_none: bool) -> Iterator[bytes]:
    manifest = answer.served.manifest
    chunk = bytearray(f'{{"model":{json.dumps(manifest.name)},"version":{manifest.version},"results":['.encode())
    for place, result in enumerate(answer.results):
        if place:
            chunk += b","
        if not isinstance(result, bytes):
            result = result.__pydantic_serializer__.to_json(result, exclude_none=exclude_none)
        chunk += result
        if len(chunk) >= _CHUNK:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk + b"]}")


class ChunkedResponse(Response):
    """A JSON response that is sent in chunks, each once the client has read enough of those before.

    So what the request has reserved is released only when all but a little of the answer is sent.
    """

    def __init__(self, chunks: list[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(b"", headers={**headers, "Content-Length": str(sum(map(len, chunks)))})
        self._chunks = chunks

    media_type = "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        pieces = [chunk[start : start + _CHUNK] for chunk in self._chunks for start in range(0, len(chunk), _CHUNK)]
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
