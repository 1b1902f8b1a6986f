"""Text Embeddings Inference's API: `/predict`, `/embed`, `/rerank` and `/info`."""

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field, PlainValidator
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from models import QueryError
from models.operations.encoding import EmbedParams, RerankParams
from models.tasks.text_classification import Classification
from models.text.limits import checked_text
from service.engine.client import Outcome
from service.engine.served_model import ServedModel
from service.engine.served_models import ServedModels
from service.http.errors import Failure
from service.http.requests import Text, types_of
from service.protocols.classifying import class_scores, classified
from service.protocols.encoding import TextPair, classified_pairs, embedded, reranked
from service.protocols.fields import Fields, json_response, read_fields
from service.protocols.protocol import Protocol

__all__ = ["PROTOCOL"]

_TYPES = {400: "Empty", 429: "Overloaded", 503: "Unhealthy"}
_OPERATIONS = ("classify", "embed", "rerank")
_VALIDATION = (404, 405, 408, 413, 414, 415, 422, 431)
_UNSUPPORTED = ("/embed_sparse", "/embed_all")
_STATUSES = {500: 424, 504: 424}

router = APIRouter()


_FORMS = "must be a text, one or two texts in a list, or a batch of such lists"


def _forms(value: object) -> object:
    entries: list[Any] = value if isinstance(value, list) else [value]
    texts = list(chain.from_iterable(entries)) if types_of(entries) == {list} else entries
    if not types_of(texts) <= {str}:
        raise ValueError(_FORMS)
    checked_text("".join(texts))
    return value


class PredictFields(Fields):
    inputs: Annotated[Any, PlainValidator(_forms)]
    """A text, one or two texts in a list, or a batch of such lists. Two texts are a pair."""
    raw_scores: bool = False
    truncate: bool = False


async def predict(request: Request) -> Response:
    """Answer `POST /predict`."""
    fields = await read_fields(request, PredictFields)
    if fields.raw_scores:
        raise QueryError("raw_scores is not supported: these models give probabilities")
    entries, batch = _entries(fields.inputs)
    found: Outcome[Classification]
    if len(entries[0]) == 1:
        found = await classified(request, [each[0] for each in entries], truncate=fields.truncate)
    else:
        pairs = [TextPair(first, second) for first, second in entries]
        found = await classified_pairs(request, pairs, truncate=fields.truncate)

    def content() -> object:
        scores = [class_scores(each) for each in found.results]
        return scores if batch else scores[0]

    return await json_response(request, content, found.items)


def _entries(inputs: str | Sequence[str] | Sequence[Sequence[str]]) -> tuple[Sequence[Sequence[str]], bool]:
    """Return the texts of each entry, and whether they are a batch; raises `QueryError`, `HTTPException`."""
    if isinstance(inputs, str):
        return [[inputs]], False
    batch = bool(inputs) and not isinstance(inputs[0], str)
    entries: Sequence[Any] = inputs if batch else [inputs]
    lengths = set(map(len, entries))
    if 0 in lengths:
        raise HTTPException(400, "`inputs` cannot be empty")
    if lengths not in ({1}, {2}):
        raise QueryError("a batch is a list of lists of one text, or of lists of two: [[text], [text]]")
    return entries, batch


def _embed_inputs(value: object) -> object:
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list):
        raise ValueError("must be a text, a list of texts, or token ids")
    kinds = types_of(entries)
    if kinds == {int}:
        return [entries]
    if kinds <= {str}:
        checked_text("".join(entries))
        return entries
    if kinds == {list} and all(each and types_of(each) == {int} for each in entries):
        return entries
    raise ValueError("must be a text, a list of texts, or token ids")


class EmbedFields(Fields):
    inputs: Annotated[Any, PlainValidator(_embed_inputs)]
    """A text, a list of texts, or token ids."""
    normalize: bool = True
    truncate: bool = False
    truncation_direction: Literal["right", "Right"] = "right"
    prompt_name: str | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


async def embed(request: Request) -> Response:
    """Answer `POST /embed`."""
    fields = await read_fields(request, EmbedFields)
    if not fields.inputs:
        raise HTTPException(400, "`inputs` cannot be empty")
    params = EmbedParams(
        prompt=fields.prompt_name,
        dimensions=fields.dimensions,
        normalize=fields.normalize,
        truncate=fields.truncate,
    )
    found = await embedded(request, fields.inputs, params)
    return await json_response(request, lambda: [each.values() for each in found.results], found.items)


class RerankFields(Fields):
    query: Text
    texts: list[Text]
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool = False
    truncation_direction: Literal["right", "Right"] = "right"


async def rerank(request: Request) -> Response:
    """Answer `POST /rerank`: the texts in the order of their scores."""
    fields = await read_fields(request, RerankFields)
    if not fields.texts:
        raise HTTPException(400, "`texts` cannot be empty")
    activation: Literal["none", "sigmoid"] = "none" if fields.raw_scores else "sigmoid"
    params = RerankParams(query=fields.query, activation=activation, truncate=fields.truncate)
    found = await reranked(request, fields.texts, params)

    def content() -> object:
        scored = [{"index": index, "score": each.score} for index, each in enumerate(found.results)]
        scored.sort(key=lambda each: -each["score"])
        if not fields.return_text:
            return scored
        return [{**each, "text": fields.texts[int(each["index"])]} for each in scored]

    return await json_response(request, content, found.items)


async def unsupported(request: Request) -> Response:
    """Answer what these models do not compute."""
    raise QueryError(f"{request.url.path} is not supported: vectors of whole texts are at /embed")


async def info(request: Request) -> Response:
    """Answer `GET /info`."""
    served_models: ServedModels = request.app.state.served_models
    served = _served(served_models)
    settings = request.app.state.settings
    content = {
        **_described(served),
        "max_concurrent_requests": settings.limit_connections,
        "max_input_length": served.model.longest_input,
        "max_batch_tokens": settings.max_batch_tokens,
        "max_batch_requests": settings.max_batch_items,
        "max_client_batch_size": settings.max_queue_items,
        "auto_truncate": False,
        "tokenization_workers": 1,
        "version": request.app.version,
    }
    return await json_response(request, lambda: content)


def _served(served_models: ServedModels) -> ServedModel:
    """Return the one model of the first of TEI's operations that is served; raises the errors of `find`."""
    offered = {name for served in served_models.served.values() for name in served.model.offers}
    return served_models.find(None, next((name for name in _OPERATIONS if name in offered), _OPERATIONS[0]))


def _described(served: ServedModel) -> dict[str, object]:
    name, model = served.manifest.name, served.model
    return {
        "model_id": name,
        "served_model_name": name,
        "model_sha": served.digest,
        "model_dtype": "float32" if served.manifest.quantization is None else served.manifest.quantization.kind,
        "model_type": _model_type(model),
    }


def _model_type(model: Any) -> dict[str, object]:
    if "classify" in model.offers:
        labels = model.labels
        classes = {
            "id2label": {str(index): label for index, label in enumerate(labels)},
            "label2id": {label: index for index, label in enumerate(labels)},
        }
        return {"classifier": classes}
    if "rerank" in model.offers:
        return {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
    return {"embedding": {"pooling": model.config.pooling}}


def _error(failure: Failure) -> Response:
    status = _STATUSES.get(failure.status, failure.status)
    kind = "Validation" if status in _VALIDATION else _TYPES.get(status, "Backend")
    return JSONResponse({"error": failure.detail, "error_type": kind}, status, failure.headers)


router.add_route("/predict", predict, methods=["POST"])
router.add_route("/embed", embed, methods=["POST"])
router.add_route("/rerank", rerank, methods=["POST"])
router.add_route("/info", info, methods=["GET"])
for path in _UNSUPPORTED:
    router.add_route(path, unsupported, methods=["POST"])

PROTOCOL = Protocol(router=router, prefixes=("/predict", "/embed", "/rerank", "/info", *_UNSUPPORTED), error=_error)
