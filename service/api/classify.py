"""`POST /v1/classify`."""

import base64
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from models import QueryError
from models.tasks.text_classification import Classification, Classifier, ClassifyQuery
from models.tasks.image_classification import ImageClassification, ImageClassifier, ImageQuery
from service.api.answer import Answer
from service.api.requests import (
    Body,
    Deadline,
    ModelName,
    Priority,
    Texts,
    Truncate,
    deadline_of,
    find,
    note_timing,
    queries_of,
    reserve_results,
    urgency_of,
)
from service.api.route import ModelRoute
from service.engine.registry import ServedModel
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"], route_class=ModelRoute)


class ClassifyRequest(Body):
    """Texts or images to classify."""

    text: Texts | None = None
    image: Annotated[Texts | None, Field(description="PNG or JPEG files in base64, instead of texts.")] = None
    top_k: Annotated[int, Field(ge=1, le=1_000_000, description="Classes to return; all where there are fewer.")] = 5
    truncate: Truncate = False
    model: ModelName = None


class LabelProbability(BaseModel):
    """A class that the text or image may be of."""

    label: str
    probability: float


class ClassifyResult(BaseModel):
    """The classes of one text or image, most probable first.

    Classes of probability 0 are left out, so that a sparse-softmax may return fewer than asked for.
    """

    text: str | None = None
    labels: list[LabelProbability]


class ClassifyResponse(BaseModel):
    """One result per text or image, in order."""

    model: str
    version: int
    results: list[ClassifyResult]


@router.post(
    "/classify", response_model=ClassifyResponse, response_model_exclude_none=True, responses=PROBLEM_RESPONSES
)
async def classify(
    body: ClassifyRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None
) -> Answer:
    """The most probable classes of each text or image."""
    if (body.text is None) == (body.image is None):
        raise QueryError("give either text or image")
    served = find(request, body.model, "text-classification" if body.image is None else "image-classification")
    deadline = deadline_of(request, timeout_ms)
    inputs = body.text or body.image or ()
    assert served.manifest.classes is not None
    items = len(inputs) * min(body.top_k, served.manifest.classes.count)
    await reserve_results(request, items, deadline)
    images = body.image is not None
    queries, tokenized = await queries_of(request, served, _query(served, body), inputs, deadline, images=images)
    found, timing = await served.worker.submit("classify", queries, deadline, urgency_of(priority))
    note_timing(request, tokenized, timing)
    results: Sequence[Classification | ImageClassification] = found
    return Answer(served, map(_result, results), items)


def _query(served: ServedModel, body: ClassifyRequest) -> Callable[[str], ClassifyQuery | ImageQuery]:
    """What checks and tokenizes a text, or decodes an image."""
    model = served.model
    if isinstance(model, ImageClassifier):
        return lambda image: model.query(_bytes(image), body.top_k)
    assert isinstance(model, Classifier)
    return lambda text: model.query(text, body.top_k, truncate=body.truncate)


def _bytes(image: str) -> bytes:
    try:
        return base64.b64decode(image, validate=True)
    except ValueError:
        raise QueryError("the image is not base64") from None


def _result(found: Classification | ImageClassification) -> ClassifyResult:
    labels = [LabelProbability(label=each.label, probability=each.probability) for each in found.labels]
    return ClassifyResult(text=found.text if isinstance(found, Classification) else None, labels=labels)
