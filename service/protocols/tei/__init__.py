"""Text Embeddings Inference's API for classifiers: `/predict` and `/info`."""

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import PlainValidator
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from models import QueryError
from models.text.limits import checked_text
from service.engine.served_model import ServedModel
from service.engine.served_models import ServedModels
from service.http.errors import Failure
from service.http.requests import types_of
from service.protocols.classifying import class_scores, classified
from service.protocols.fields import Fields, json_response, read_fields
from service.protocols.protocol import Protocol

__all__ = ["PROTOCOL"]

_TYPES = {400: "Empty", 429: "Overloaded", 503: "Unhealthy"}
_VALIDATION = (404, 405, 408, 413, 414, 415, 422, 431)
_STATUSES = {500: 424, 504: 424}

router = APIRouter()


_FORMS = "must be a text, a text in a list, or a batch of lists of one text"


def _forms(value: object) -> object:
    entries: list[Any] = value if isinstance(value, list) else [value]
    texts = list(chain.from_iterable(entries)) if types_of(entries) == {list} else entries
    if not types_of(texts) <= {str}:
        raise ValueError(_FORMS)
    checked_text("".join(texts))
    return value


class PredictFields(Fields):
    inputs: Annotated[Any, PlainValidator(_forms)]
    """A text, a text in a list, or a batch of lists of one text. Lists of two texts are pairs."""
    raw_scores: bool = False
    truncate: bool = False


async def predict(request: Request) -> Response:
    """Answer `POST /predict`."""
    fields = await read_fields(request, PredictFields)
    if fields.raw_scores:
        raise QueryError("raw_scores is not supported: these models give probabilities")
    texts, batch = _texts(fields.inputs)
    found = await classified(request, texts, truncate=fields.truncate)

    def content() -> object:
        scores = [class_scores(each) for each in found.results]
        return scores if batch else scores[0]

    return await json_response(request, content, found.items)


def _texts(inputs: str | Sequence[str] | Sequence[Sequence[str]]) -> tuple[list[str], bool]:
    """Return the texts, and whether they are a batch; raises `QueryError` for pairs, `HTTPException` for no text."""
    if isinstance(inputs, str):
        return [inputs], False
    batch = bool(inputs) and not isinstance(inputs[0], str)
    entries = inputs if batch else [inputs]
    lengths = set(map(len, entries))
    if 0 in lengths:
        raise HTTPException(400, "`inputs` cannot be empty")
    if lengths != {1}:
        raise QueryError("pairs of texts are not supported; a batch is a list of lists of one text: [[text], [text]]")
    return [str(each[0]) for each in entries], batch


async def info(request: Request) -> Response:
    """Answer `GET /info`."""
    served_models: ServedModels = request.app.state.served_models
    served = served_models.find(None, "classify")
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


def _described(served: ServedModel) -> dict[str, object]:
    classifier: Any = served.model
    name, labels = served.manifest.name, classifier.labels
    classes = {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    return {
        "model_id": name,
        "served_model_name": name,
        "model_sha": served.digest,
        "model_dtype": "float32" if served.manifest.quantization is None else served.manifest.quantization.kind,
        "model_type": {"classifier": classes},
    }


def _error(failure: Failure) -> Response:
    status = _STATUSES.get(failure.status, failure.status)
    kind = "Validation" if status in _VALIDATION else _TYPES.get(status, "Backend")
    return JSONResponse({"error": failure.detail, "error_type": kind}, status, failure.headers)


router.add_route("/predict", predict, methods=["POST"])
router.add_route("/info", info, methods=["GET"])

PROTOCOL = Protocol(router=router, prefixes=("/predict", "/info"), error=_error)
