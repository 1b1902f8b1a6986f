"""`GET /v1/models`: the served models."""

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from models import UnknownModelError
from models.bundle.manifest import Quality
from service.engine.registry import Registry
from service.engine.served_model import ServedModel, full_names, names_of
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"])


class Languages(BaseModel):
    """The source and target language of a translation model, as ISO 639 codes."""

    model_config = ConfigDict(extra="allow")

    source: str
    target: str
    """The only target language, or the default of several."""


class Limits(BaseModel):
    """The largest inputs and outputs of a model; a task may have others than these."""

    model_config = ConfigDict(extra="allow")

    max_tokens: int | None = None
    max_output_tokens: int | None = None
    max_pixels: int | None = None


class ModelInfo(BaseModel):
    """A served model: facts that all models have, and those of its task, which may be others than the ones here."""

    model_config = ConfigDict(extra="allow", json_schema_serialization_defaults_required=True)

    name: str
    version: int
    task: str
    description: str
    licence: str
    state: str
    digest: str
    """sha256 of the manifest."""
    operations: list[str]
    """Operations that the model offers, such as `classify`, which name its endpoints."""
    reads: str
    """Kind of input: `text` or `image`."""
    vocab_size: int | None = None
    """Size of the vocabulary of a model that reads texts."""
    kernels: list[str]
    languages: Languages | None = None
    """Languages of a translation model."""
    classes: int | None = None
    """Number of classes of a classifier."""
    threshold: float | None = None
    """Least probability of a predicted class, besides the best, of a multi-label classifier."""
    limits: Limits = Limits()
    quality: list[Quality]


class ModelList(BaseModel):
    """All served models."""

    models: list[ModelInfo]


@router.get("/models")
async def list_models(request: Request) -> ModelList:
    """Return every served model."""
    registry: Registry = request.app.state.registry
    return ModelList(models=[_model_info(served) for _, served in sorted(registry.served.items())])


@router.get("/models/{name}", responses={404: PROBLEM_RESPONSES[404]})
async def get_models(name: str, request: Request) -> ModelList:
    """Return every served version of one model; `name:version` for one of them."""
    registry: Registry = request.app.state.registry
    found = {key: served for key, served in registry.served.items() if name in names_of(key)}
    if not found:
        raise UnknownModelError(name, full_names(registry.served))
    return ModelList(models=[_model_info(served) for _, served in sorted(found.items())])


def _model_info(served: ServedModel) -> ModelInfo:
    manifest = served.manifest
    facts = manifest.model_dump(include={"name", "version", "task", "description", "licence", "quality"}) | {
        "state": "ready",
        "digest": served.digest,
        "operations": served.model.offers,
        "reads": served.model.reads,
        "kernels": [kernel.name for kernel in manifest.softmax.kernels],
    }
    return ModelInfo.model_validate({**manifest.config.summary(), **facts})
