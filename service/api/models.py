"""`GET /v1/models`: what is served."""

from fastapi import APIRouter, Request
from pydantic import BaseModel

from models import UnknownModelError
from models.bundle.manifest import Languages, Limits, Quality
from service.engine.registry import Registry, ServedModel
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"])


class ModelInfo(BaseModel):
    """A served model."""

    name: str
    version: int
    task: str
    description: str
    licence: str
    state: str
    digest: str
    """sha256 of the manifest."""
    vocab_size: int | None
    """Of a model that reads texts."""
    kernels: list[str]
    languages: Languages | None
    """Of a translator."""
    classes: int | None
    """How many a classifier tells apart."""
    threshold: float | None
    """Where a text can be of several classes: the probability from which on it is of one, besides the best."""
    limits: Limits
    quality: list[Quality]


class ModelList(BaseModel):
    """All served models."""

    models: list[ModelInfo]


@router.get("/models")
async def list_models(request: Request) -> ModelList:
    """Every served model."""
    registry: Registry = request.app.state.registry
    return ModelList(models=[_model_info(served) for _, served in sorted(registry.served.items())])


@router.get("/models/{name}", responses={404: PROBLEM_RESPONSES[404]})
async def get_models(name: str, request: Request) -> ModelList:
    """Every served version of one model; `name:version` for one of them."""
    registry: Registry = request.app.state.registry
    found = {key: served for key, served in registry.served.items() if name in (key[0], f"{key[0]}:{key[1]}")}
    if not found:
        raise UnknownModelError(name, [f"{known}:{version}" for known, version in sorted(registry.served)])
    return ModelList(models=[_model_info(served) for _, served in sorted(found.items())])


def _model_info(served: ServedModel) -> ModelInfo:
    manifest = served.manifest
    return ModelInfo(
        name=manifest.name,
        version=manifest.version,
        task=manifest.task,
        description=manifest.description,
        licence=manifest.licence,
        state="ready",
        digest=served.digest,
        vocab_size=manifest.vocab_size,
        kernels=[kernel.name for kernel in manifest.softmax.kernels],
        languages=manifest.languages,
        classes=None if manifest.classes is None else manifest.classes.count,
        threshold=None if manifest.classes is None else manifest.classes.threshold,
        limits=manifest.limits,
        quality=list(manifest.quality),
    )
