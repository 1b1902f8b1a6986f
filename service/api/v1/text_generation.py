"""`POST /v1/generate-text`."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field

from models.tasks.text_generation import GenerationQuery, Generator
from service.api.answer import Answer, Result, Results
from service.api.endpoint import answer, register
from service.api.requests import Deadline, Priority, examples
from service.api.route import ModelRoute
from service.api.search import ScoredText, SearchBody
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"], route_class=ModelRoute)
register("text-generation")(router)


class GenerateRequest(SearchBody):
    """Texts from which to generate others, such as summaries or questions, as the model was trained to."""

    model_config = examples({"text": "The meeting is moved to Friday at ten.", "beam_size": 4, "max_output_tokens": 20})

    max_output_tokens: Annotated[
        int | None,
        Field(ge=1, description="Where an output that has not ended is cut off."),
    ] = None


class GenerateResult(Result):
    """The outputs for one text, best first."""

    text: str
    """The text as it was sent."""
    outputs: list[ScoredText]
    """The `n_best` outputs, best first."""


class GenerateResponse(Results[GenerateResult]):
    """One result per text, in order."""


@router.post("/generate-text", response_model=GenerateResponse, responses=PROBLEM_RESPONSES)
async def generate_text(
    body: GenerateRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None
) -> Answer[Any]:
    """Generate a text from each text, independently of the others and of other requests."""
    options = body.options()

    def query(model: Generator, text: str) -> GenerationQuery:
        return model.query(
            text,
            body.beam_size,
            options=options,
            max_output_tokens=body.max_output_tokens,
            truncate=body.truncate,
        )

    result = GenerateResult.of
    return await answer(
        request, "generate", body.text, query, result, model=body.model, timeout_ms=timeout_ms, priority=priority
    )
