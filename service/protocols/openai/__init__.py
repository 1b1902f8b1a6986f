"""OpenAI's completions and embeddings, and tokenizer endpoints as vLLM has them (clients: `openai`, `lm_eval`)."""

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from service.engine.served_models import ServedModels
from service.http.models import openai_models
from service.protocols.fields import json_response
from service.protocols.openai.completions import completions
from service.protocols.openai.embeddings import embeddings
from service.protocols.openai.failures import failure_response
from service.protocols.openai.tokens import detokenize, tokenize, tokenizer_info
from service.protocols.protocol import Protocol

__all__ = ["PROTOCOL"]

_UNSUPPORTED = ("/v1/chat/completions", "/v1/responses")

router = APIRouter()


async def models(request: Request) -> Response:
    """Answer `GET /v1/models` where the native endpoint, whose answer has the same members, is not served."""
    served_models: ServedModels = request.app.state.served_models
    content = {"object": "list", "data": [each.model_dump() for each in openai_models(served_models.served)]}
    return await json_response(request, lambda: content)


async def unsupported(request: Request) -> Response:
    """Answer what these models are not made for."""
    raise HTTPException(404, f"{request.url.path} is not supported: language models are served by /v1/completions")


router.add_route("/v1/completions", completions, methods=["POST"])
router.add_route("/v1/embeddings", embeddings, methods=["POST"])
router.add_route("/v1/models", models, methods=["GET"])
router.add_route("/tokenize", tokenize, methods=["POST"])
router.add_route("/detokenize", detokenize, methods=["POST"])
router.add_route("/tokenizer_info", tokenizer_info, methods=["GET"])
for path in _UNSUPPORTED:
    router.add_route(path, unsupported, methods=["POST"])

PROTOCOL = Protocol(
    router=router,
    prefixes=("/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize", "/tokenizer_info", *_UNSUPPORTED),
    error=failure_response,
)
