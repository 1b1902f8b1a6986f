"""`POST /v1/embed`."""

from fastapi import APIRouter, Request
from pydantic import BaseModel

from models.backend import Array
from service.api.answer import Answer
from service.api.endpoint import answer
from service.api.requests import Body, Deadline, ModelName, Priority, Texts, Truncate
from service.api.route import ModelRoute
from softserve_embedding.model import EmbeddingModel, EmbeddingQuery

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"], route_class=ModelRoute)


class EmbedRequest(Body):
    """Texts to embed."""

    text: Texts
    truncate: Truncate = False
    model: ModelName = None


class EmbedResult(BaseModel):
    """The vector of one text."""

    embedding: list[float]


class EmbedResponse(BaseModel):
    """One result per text, in order."""

    model: str
    version: int
    results: list[EmbedResult]


@router.post("/embed", response_model=EmbedResponse)
async def embed(body: EmbedRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None) -> Answer:
    """Return a unit vector for each text."""

    def query(model: EmbeddingModel, text: str) -> EmbeddingQuery:
        return model.query(text, truncate=body.truncate)

    def result(vector: Array) -> EmbedResult:
        return EmbedResult(embedding=vector.tolist())

    return await answer(
        request, "embed", body.text, query, result, model=body.model, timeout_ms=timeout_ms, priority=priority
    )
