"""`POST /v1/generate-text`."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from models import Generator
from models.tasks.text_generation import Generation
from service.api.answer import Answer
from service.api.requests import (
    Deadline,
    Priority,
    deadline_of,
    find,
    note_timing,
    queries_of,
    reserve_results,
    urgency_of,
)
from service.api.route import ModelRoute
from service.api.search import ScoredText, SearchBody
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"], route_class=ModelRoute)


class GenerateRequest(SearchBody):
    """Texts from which to write others, such as summaries or questions: what the model has learnt to."""

    max_output_tokens: Annotated[
        int | None,
        Field(ge=1, description="Where an output that has not ended is cut off."),
    ] = None


class GenerateResult(BaseModel):
    """What was written of one text, best first."""

    text: str
    outputs: list[ScoredText]


class GenerateResponse(BaseModel):
    """One result per text, in order."""

    model: str
    version: int
    results: list[GenerateResult]


@router.post("/generate-text", response_model=GenerateResponse, responses=PROBLEM_RESPONSES)
async def generate_text(
    body: GenerateRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None
) -> Answer:
    """Writes a text from each text, independently of the others and of other requests."""
    served = find(request, body.model, "text-generation")
    model = served.model
    assert isinstance(model, Generator)
    deadline = deadline_of(request, timeout_ms)
    options = body.options()
    queries, tokenized = await queries_of(
        request,
        served,
        lambda text: model.query(
            text,
            body.beam_size,
            options=options,
            max_output_tokens=body.max_output_tokens,
            truncate=body.truncate,
        ),
        body.text,
        deadline,
    )
    sources = [query.source for query in queries]
    items = sum(source.result_items for source in sources)
    await reserve_results(request, items, deadline)
    found, timing = await served.worker.submit(str(body.beam_size), sources, deadline, urgency_of(priority))
    note_timing(request, tokenized, timing)
    results = (_result(model.written(*pair)) for pair in zip(queries, found, strict=True))
    return Answer(served, results, items)


def _result(generation: Generation) -> GenerateResult:
    outputs = [ScoredText(text=each.text, score=each.score) for each in generation.outputs]
    return GenerateResult(text=generation.text, outputs=outputs)
