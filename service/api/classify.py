"""`POST /v1/classify`."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from models.classifier import Classification, Classifier
from service.api.requests import (
    Body,
    Deadline,
    ModelName,
    Texts,
    Truncate,
    deadline_of,
    find,
    queries_of,
    say_timing,
)
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"])


class ClassifyRequest(Body):
    """Texts to classify."""

    text: Texts
    top_k: Annotated[int, Field(ge=1, le=1_000_000, description="Classes to return; all where there are fewer.")] = 5
    truncate: Truncate = False
    model: ModelName = None


class LabelProbability(BaseModel):
    """A class that the text may be of."""

    label: str
    probability: float


class ClassifyResult(BaseModel):
    """The classes of one text, most probable first; none of probability 0, which a sparse-softmax gives most."""

    text: str
    labels: list[LabelProbability]


class ClassifyResponse(BaseModel):
    """One result per text, in order."""

    model: str
    version: int
    results: list[ClassifyResult]


@router.post("/classify", responses=PROBLEM_RESPONSES)
async def classify(
    body: ClassifyRequest, request: Request, response: Response, timeout_ms: Deadline = None
) -> ClassifyResponse:
    """The most probable classes of each text."""
    served = find(request, body.model, "text-classification")
    model = served.model
    assert isinstance(model, Classifier)
    deadline = deadline_of(request, timeout_ms)
    queries, tokenized = await queries_of(
        served, lambda text: model.query(text, body.top_k, truncate=body.truncate), body.text
    )
    results, timing = await served.worker.submit("classify", queries, deadline)
    say_timing(response, tokenized, timing)
    name, version = served.manifest.name, served.manifest.version
    return ClassifyResponse(model=name, version=version, results=[_result(result) for result in results])


def _result(result: Classification) -> ClassifyResult:
    labels = [LabelProbability(label=each.label, probability=each.probability) for each in result.labels]
    return ClassifyResult(text=result.text, labels=labels)
