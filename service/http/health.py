"""Liveness, readiness and metrics."""

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from service.engine.served_models import ServedModels
from service.http.errors import Failure, error_response
from service.observability.exposition import Exposition
from service.observability.metrics import CONTENT_TYPE_LATEST

__all__ = ["router"]

router = APIRouter(tags=["health"])

_NOT_READY: dict[int | str, dict[str, object]] = {
    503: {"description": "Models are loading or failed to load, or the service is shutting down"}
}


class Alive(BaseModel):
    """The process answers."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    status: Literal["alive"] = "alive"
    """Always this text; the status of the response is what counts."""


class Ready(BaseModel):
    """Every configured model is loaded and warmed up."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    status: Literal["ready"] = "ready"
    """Always this text; the status of the response is what counts."""


@router.get("/livez")
async def livez() -> Alive:
    """Return 200 as long as the process answers."""
    return Alive()


class Healthy(BaseModel):
    """The service answers requests."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    status: Literal["ok"] = "ok"
    """Always this text; the status of the response is what counts."""


@router.get("/health", response_model=Healthy, responses=_NOT_READY)
async def health(request: Request) -> Healthy | Response:
    """Return what `/readyz` does, in the form that clients of LibreTranslate and TEI expect."""
    found = await readyz(request)
    return found if isinstance(found, Response) else Healthy()


@router.get("/readyz", response_model=Ready, responses=_NOT_READY)
async def readyz(request: Request) -> Ready | Response:
    """Return 200 while every configured model is loaded and warmed up, and the service is not shutting down."""
    served_models: ServedModels = request.app.state.served_models
    if served_models.obstacle is None:
        return Ready()
    return error_response(request.scope, Failure(503, served_models.obstacle, {"Retry-After": "1"}))


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return the metrics in Prometheus text format."""
    exposition: Exposition = request.app.state.exposition
    return Response(await exposition.text(), media_type=CONTENT_TYPE_LATEST)
