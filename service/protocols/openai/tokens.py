"""`/tokenize`, `/detokenize` and `/tokenizer_info`, by which clients work with token ids (as vLLM has them)."""

from functools import partial
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BeforeValidator

from service.engine.served_models import ServedModels
from service.http.requests import ModelName, Text, caller_of, engine_of
from service.protocols.fields import Fields, json_response, read_fields
from service.protocols.openai.fields import is_ids
from service.protocols.openai.writers import writer_of

__all__ = ["detokenize", "tokenize", "tokenizer_info"]


def _ids(value: object) -> object:
    if not is_ids(value):
        raise ValueError("must be a list of token ids")
    return value


class TokenizeFields(Fields):
    """A text. To that of a model of words no tokens are added, whatever `add_special_tokens` says."""

    prompt: Text
    model: ModelName = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeFields(Fields):
    """Token ids."""

    tokens: Annotated[list[Any], BeforeValidator(_ids)]
    model: ModelName = None


async def tokenize(request: Request) -> Response:
    """Answer `POST /tokenize`.

    In the text of a model of words, `</s>` and `<unk>` are the sentence end and the unknown word.
    """
    fields = await read_fields(request, TokenizeFields)
    begun = engine_of(request).begin(caller_of(request), fields.model, "next-word")
    writer, special = writer_of(begun.served.model), fields.add_special_tokens is not False
    begun.expect_inputs("score", [fields.prompt])
    (ids,) = await begun.prepare("score", partial(writer.token_ids, special=special), [fields.prompt])
    await begun.reserve(len(ids))

    def content() -> dict[str, object]:
        answer: dict[str, object] = {"tokens": ids, "count": len(ids), "max_model_len": writer.longest}
        return {**answer, "token_strs": writer.spelled(ids)} if fields.return_token_strs else answer

    return await json_response(request, content, len(ids))


async def detokenize(request: Request) -> Response:
    """Answer `POST /detokenize`; words have a space between each two."""
    fields = await read_fields(request, DetokenizeFields)
    begun = engine_of(request).begin(caller_of(request), fields.model, "next-word")
    writer = writer_of(begun.served.model)
    await begun.reserve(len(fields.tokens))
    text = writer.text(fields.tokens)
    return await json_response(request, lambda: {"prompt": text}, len(fields.tokens))


async def tokenizer_info(request: Request) -> Response:
    """Answer `GET /tokenizer_info`; the parameter `model` names one of several language models."""
    served_models: ServedModels = request.app.state.served_models
    served = served_models.find(request.query_params.get("model"), "next-word")
    content = writer_of(served.model).info()
    return await json_response(request, lambda: content)
