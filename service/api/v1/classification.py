"""`POST /v1/classify`."""

import base64
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field

from models import QueryError
from models.tasks.image_classification import ImageClassifier, ImageQuery
from models.tasks.text_classification import Classifier, ClassifyQuery
from service.api.answer import Answer, Result, Results
from service.api.endpoint import answer, register
from service.api.requests import Body, Deadline, ModelName, Priority, Texts, Truncate, examples
from service.api.route import ModelRoute
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"], route_class=ModelRoute)
register("classification")(router)


class ClassifyRequest(Body):
    """Texts or images to classify."""

    model_config = examples(
        {"text": "book a table for two", "top_k": 3},
        {"text": ["play some music", "what is the weather"], "truncate": True},
    )

    text: Annotated[Texts | None, Field(description="A text or a list of texts.")] = None
    image: Annotated[Texts | None, Field(description="PNG or JPEG files in base64, instead of texts.")] = None
    top_k: Annotated[int, Field(ge=1, le=1_000_000, description="Classes to return; all where there are fewer.")] = 5
    truncate: Truncate = False
    model: ModelName = None


class LabelProbability(Result):
    """A class and its probability."""

    label: str
    """Name of the class."""
    probability: float
    """Its probability, above 0."""


class ClassifyResult(Result):
    """The classes of one text or image, most probable first.

    Classes of probability 0 are left out, so that a sparse-softmax may return fewer than asked for.
    """

    text: str | None = None
    """The text as it was sent; absent for an image."""
    labels: list[LabelProbability]
    """The classes, most probable first."""
    out_of_scope: Annotated[
        bool | None,
        Field(description="Whether the input is likely to be of no class; absent for a model that cannot tell."),
    ] = None


class ClassifyResponse(Results[ClassifyResult]):
    """One result per text or image, in order."""


@router.post(
    "/classify", response_model=ClassifyResponse, response_model_exclude_none=True, responses=PROBLEM_RESPONSES
)
async def classify(
    body: ClassifyRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None
) -> Answer[Any]:
    """Return the most probable classes of each text or image."""
    if (body.text is None) == (body.image is None):
        raise QueryError("give either text or image")

    def text_query(model: Classifier, text: str) -> ClassifyQuery:
        return model.query(text, body.top_k, truncate=body.truncate)

    def image_query(model: ImageClassifier, image: str) -> ImageQuery:
        return model.query(_bytes(image), body.top_k)

    return await answer(
        request,
        "classify",
        body.text or body.image or (),
        text_query if body.image is None else image_query,
        ClassifyResult.of,
        model=body.model,
        timeout_ms=timeout_ms,
        priority=priority,
        reads="text" if body.image is None else "image",
        items_per_input=lambda model: min(body.top_k, len(model.labels)),
    )


def _bytes(image: str) -> bytes:
    try:
        return base64.b64decode(image, validate=True)
    except ValueError:
        raise QueryError("the image is not base64") from None
