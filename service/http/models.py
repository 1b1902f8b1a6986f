"""`GET /v1/models`: the served models."""

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path as PathlibPath
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict

from models import UnknownModelError
from models.bundle.manifest import Quality
from service.engine.served_model import Key, ServedModel, full_names, names_of
from service.engine.served_models import ServedModels
from service.http.errors import PROBLEM_RESPONSES

__all__ = ["Name", "openai_models", "router"]

router = APIRouter(prefix="/v1", tags=["native"])

_MAX_PROBLEMS, _MAX_PROBLEM = 100, 1000
"""Problems that are listed at most, and characters of each."""

Name = Annotated[str, Path(description="Name of a model, or `name:version`.", examples=["next-word", "next-word:2"])]
"""The name of a model in a path, with or without its version."""


class Languages(BaseModel):
    """The source and target language of a translation model, as ISO 639 codes."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    source: str
    """Source language."""
    target: str
    """The only target language, or the default of several."""


class Limits(BaseModel):
    """The largest inputs and outputs of a model; a task may have others than these."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    max_tokens: int | None = None
    """Longest text, in tokens; of a translation model the longest sentence."""
    max_output_tokens: int | None = None
    """Longest output of a text generator, in tokens."""
    max_pixels: int | None = None
    """Largest image, height times width."""


class ModelInfo(BaseModel):
    """A served model: facts that all models have, and those of its task, which may be others than the ones here."""

    model_config = ConfigDict(
        extra="allow", json_schema_serialization_defaults_required=True, use_attribute_docstrings=True
    )

    name: str
    """Name of the model, by which requests choose it."""
    version: int
    """Its version."""
    task: str
    """Name of its task."""
    description: str
    """One sentence, from its manifest."""
    licence: str
    """Licence of the trained model."""
    state: str
    """State of the model: `ready`."""
    digest: str
    """sha256 of the manifest."""
    operations: list[str]
    """Operations that the model offers, such as `classify`, which name its endpoints."""
    reads: str
    """Kind of input: `text` or `image`."""
    vocab_size: int | None = None
    """Size of the vocabulary of a model that reads texts."""
    kernels: list[str]
    """Kernels of the output layer, one for each component of a mixture, and the components that are no kernels."""
    languages: Languages | None = None
    """Languages of a translation model."""
    classes: int | None = None
    """Number of classes of a classifier."""
    threshold: float | None = None
    """Least probability of a predicted class, besides the best, of a multi-label classifier."""
    limits: Limits = Limits()
    """The largest inputs and outputs."""
    quality: list[Quality]
    """Metrics that were measured when the bundle was exported."""


class OpenaiModel(BaseModel):
    """A model as OpenAI's clients read it."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    """Name, or name and version where it is not the newest one."""
    object: Literal["model"] = "model"
    """Kind of the object."""
    created: int
    """The day of its export, in seconds since 1970."""
    owned_by: str = "softserve"
    """Always the same."""


class ModelVersions(OpenaiModel):
    """The served versions of a model."""

    models: list[ModelInfo]
    """The served versions, oldest first."""


class BundleProblem(BaseModel):
    """An entry of the model directories that is not served, since it did not load or cannot be read."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    bundle: str
    """The entry: name and version, as `name/version`, or a name."""
    problem: str
    """The fault, in a sentence."""


class ModelList(BaseModel):
    """All served models; `object` and `data` are for OpenAI's clients."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    models: list[ModelInfo]
    """The served models."""
    problems: list[BundleProblem]
    """Entries of the model directories that did not load the last time, or cannot be read. A version that was served
    before goes on being served."""
    object: Literal["list"] = "list"
    """Kind of the object."""
    data: list[OpenaiModel]
    """The same models, as OpenAI's clients read them."""


@router.get("/models")
async def list_models(request: Request) -> ModelList:
    """Return every served model."""
    served_models: ServedModels = request.app.state.served_models
    models = [_model_info(served) for _, served in sorted(served_models.served.items())]
    problems = [
        BundleProblem(bundle=_entry_of(path, served_models.directories), problem=problem[:_MAX_PROBLEM])
        for path, problem in itertools.islice(served_models.problems.items(), _MAX_PROBLEMS)
    ]
    return ModelList(models=models, problems=problems, data=openai_models(served_models.served))


@router.get("/models/{name}", responses={404: PROBLEM_RESPONSES[404]})
async def get_models(name: Name, request: Request) -> ModelVersions:
    """Return every served version of one model; `name:version` for one of them."""
    served_models: ServedModels = request.app.state.served_models
    found = {key: served for key, served in served_models.served.items() if name in names_of(key)}
    if not found:
        raise UnknownModelError(name, full_names(served_models.served))
    newest = found[max(found)]
    models = [_model_info(served) for _, served in sorted(found.items())]
    return ModelVersions(models=models, id=name, created=_created(newest))


def openai_models(served: Mapping[Key, ServedModel]) -> list[OpenaiModel]:
    """Return the served models as OpenAI's clients read them: each by its name, older versions by name and version."""
    newest = dict(sorted(served))
    return [
        OpenaiModel(id=key[0] if newest[key[0]] == key[1] else names_of(key)[1], created=_created(served[key]))
        for key in sorted(served)
    ]


def _entry_of(path: PathlibPath, directories: Sequence[PathlibPath]) -> str:
    """Return an entry of a model directory, relative to that; of a whole directory its name."""
    return next((str(path.relative_to(each)) for each in directories if each in path.parents), path.name)


def _created(served: ServedModel) -> int:
    day = date.fromisoformat(served.manifest.provenance.date)
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _model_info(served: ServedModel) -> ModelInfo:
    manifest, scope = served.manifest, getattr(served.model, "scope", None)
    facts = manifest.model_dump(include={"name", "version", "task", "description", "licence", "quality"}) | {
        "state": "ready",
        "digest": served.digest,
        "operations": served.model.offers,
        "reads": served.model.reads,
        "kernels": [] if manifest.softmax is None else list(manifest.softmax.names),
    }
    rule = {} if scope is None else {"out_of_scope": scope.model_dump()}  # an administrator may have changed it
    return ModelInfo.model_validate({**manifest.config.summary(), **rule, **facts})
