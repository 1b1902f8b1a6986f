"""`/tokenize`, `/detokenize` and `/tokenizer_info`, by which clients work with token ids (as vLLM has them)."""

from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BeforeValidator

from models.text.tokenization import END, UNKNOWN
from service.engine.served_models import ServedModels
from service.http.requests import ModelName, Text, caller_of, engine_of
from service.protocols.fields import Fields, json_response, read_fields
from service.protocols.openai.fields import is_ids
from service.protocols.openai.word_models import word_model

__all__ = ["detokenize", "tokenize", "tokenizer_info"]


def _ids(value: object) -> object:
    if not is_ids(value):
        raise ValueError("must be a list of token ids")
    return value


class TokenizeFields(Fields):
    """A text. No tokens are added to it, whatever `add_special_tokens` says."""

    prompt: Text
    model: ModelName = None
    return_token_strs: bool | None = None


class DetokenizeFields(Fields):
    """Token ids."""

    tokens: Annotated[list[Any], BeforeValidator(_ids)]
    model: ModelName = None


async def tokenize(request: Request) -> Response:
    """Answer `POST /tokenize`; in the text, `</s>` and `<unk>` are the sentence end and the unknown word."""
    fields = await read_fields(request, TokenizeFields)
    begun = engine_of(request).begin(caller_of(request), fields.model, "next-word")
    model = word_model(begun.served.model)
    begun.expect_inputs("score", [fields.prompt])
    (ids,) = await begun.prepare("score", model.token_ids, [fields.prompt])
    await begun.reserve(len(ids))

    def content() -> dict[str, object]:
        answer: dict[str, object] = {"tokens": ids, "count": len(ids), "max_model_len": model.longest_input}
        return {**answer, "token_strs": model.spelled(ids)} if fields.return_token_strs else answer

    return await json_response(request, content, len(ids))


async def detokenize(request: Request) -> Response:
    """Answer `POST /detokenize`: the words with a space between each two."""
    fields = await read_fields(request, DetokenizeFields)
    begun = engine_of(request).begin(caller_of(request), fields.model, "next-word")
    model = word_model(begun.served.model)
    await begun.reserve(len(fields.tokens))
    words = model.spelled(fields.tokens)
    return await json_response(request, lambda: {"prompt": " ".join(words)}, len(words))


async def tokenizer_info(request: Request) -> Response:
    """Answer `GET /tokenizer_info`; the parameter `model` names one of several language models."""
    served_models: ServedModels = request.app.state.served_models
    served = served_models.find(request.query_params.get("model"), "next-word")
    model = word_model(served.model)
    content = {
        "tokenizer_class": "WordLevel",
        "model_max_length": model.longest_input,
        "vocab_size": model.vocab_size,
        "bos_token": None,
        "eos_token": END,
        "unk_token": UNKNOWN,
        "pad_token": None,
        "add_bos_token": False,
        "add_eos_token": False,
        "chat_template": None,
    }
    return await json_response(request, lambda: content)
