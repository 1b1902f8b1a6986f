"""`POST /v1/embeddings`: vectors of texts, as numbers or as base64 of their bytes."""

import base64
from typing import Annotated, Any, Literal

from fastapi import Request, Response
from pydantic import Field, PlainValidator

from models.operations.encoding import EmbedParams
from models.tasks.text_embedding import Embedding
from models.text.limits import checked_text
from service.http.requests import types_of
from service.protocols.encoding import embedded
from service.protocols.fields import Fields, json_response, read_fields

__all__ = ["embeddings"]


def _inputs(value: object) -> list[Any]:
    """Return the inputs of a field: a text, a list of texts, token ids, or a list of lists of token ids."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value:
        raise ValueError("must be a text, a list of texts, or token ids")
    kinds = types_of(value)
    if kinds == {int}:
        return [value]
    if kinds == {str}:
        checked_text("".join(value))
        return value
    if kinds == {list} and all(each and types_of(each) == {int} for each in value):
        return value
    raise ValueError("must be a text, a list of texts, or token ids")


class EmbeddingFields(Fields):
    input: Annotated[list[Any], PlainValidator(_inputs)]
    """Texts, or lists of token ids."""
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    embed_dtype: Literal["float32", "float16"] = "float32"
    """Type of the numbers of `base64`, as in vLLM; not in OpenAI's API."""
    dimensions: Annotated[int, Field(ge=1)] | None = None
    prompt_name: str | None = None
    """Name of a prompt of the model, as in sentence-transformers; not in OpenAI's API."""


async def embeddings(request: Request) -> Response:
    """Answer `POST /v1/embeddings`. Raises the errors of `read_fields` and `Engine.run`."""
    fields = await read_fields(request, EmbeddingFields)
    precision = fields.embed_dtype if fields.encoding_format == "base64" else "float32"
    params = EmbedParams(prompt=fields.prompt_name, dimensions=fields.dimensions, precision=precision)
    found = await embedded(request, fields.input, params, model=fields.model)

    def content() -> dict[str, object]:
        data, read = [], 0
        for index, each in enumerate(found.results):
            data.append({"object": "embedding", "index": index, "embedding": _encoded(each, fields.encoding_format)})
            read += each.tokens
        model = fields.model or found.served.manifest.name
        return {"object": "list", "data": data, "model": model, "usage": {"prompt_tokens": read, "total_tokens": read}}

    return await json_response(request, content, found.items)


def _encoded(result: Embedding, encoding: str) -> object:
    """Return the elements of a vector, or the base64 of its little-endian numbers."""
    if encoding == "base64":
        numbers = result.vector.astype(result.vector.dtype.newbyteorder("<"))
        return base64.b64encode(numbers.tobytes()).decode()
    return result.values()
