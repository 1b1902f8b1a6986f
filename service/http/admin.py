"""`/v1/admin/models/{name}`: load and unload models while others serve, and change their thresholds."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from models import BundleError, QueryError, UnsupportedDeviceError
from models.tasks.scope import OutOfScope, ScopePoint
from service.engine.served_model import ServedModel
from service.engine.served_models import ServedModels
from service.http.auth import ADMIN_PREFIX
from service.http.errors import PROBLEM_RESPONSES, problem_schema
from service.http.models import Name
from service.http.requests import Body, engine_of

__all__ = ["load_model", "router"]

router = APIRouter(prefix=ADMIN_PREFIX.rstrip("/"), tags=["admin"])


_REFUSALS: dict[int | str, dict[str, object]] = {status: PROBLEM_RESPONSES[status] for status in (401, 404)}


class Loaded(BaseModel):
    """A model that is served from now on."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    """Name of the model."""
    version: int
    """Its version."""
    digest: str
    """sha256 of its manifest."""


class Unloaded(BaseModel):
    """Models that are no longer served; requests that hold them are still answered."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    unloaded: list[str]
    """The versions that were served, as `name:version`."""


class Thresholds(Body):
    """Which inputs of a classifier are out of scope: by one of three."""

    reject_rate: Annotated[
        float | None, Field(description="Fraction of the inputs in scope that may be refused as out of scope.")
    ] = None
    pass_rate: Annotated[float | None, Field(description="Fraction of the inputs out of scope that may pass.")] = None
    threshold: Annotated[
        float | None, Field(description="Least probability, or score, of the best class of an input that is in scope.")
    ] = None


class Scope(BaseModel):
    """When an input of a model is out of scope, and how the rule and others decide on validation examples."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    """Name of the model."""
    version: int
    """Its version."""
    score: Literal["probability", "logit"]
    """The number of the best class that thresholds are of: its probability, or its score before the softmax."""
    threshold: float
    """Least probability, or score, of the best class of an input that is in scope."""
    rejected: float
    """Fraction of the inputs in scope that are refused."""
    detected: float | None
    """Fraction of the inputs out of scope that are refused; null where the model had no examples of such."""
    trade_off: list[ScopePoint]
    """The same of other thresholds, ascending."""


async def load_model(served_models: ServedModels, name: str) -> ServedModel:
    """Load a model from disk and serve it; raises `HTTPException` where it does not load, and `UnknownModelError`."""
    try:
        return await served_models.add(name)
    except (BundleError, UnsupportedDeviceError, TimeoutError) as error:
        raise HTTPException(409, f"{name} does not load: {error}") from error


@router.post("/models/{name}/load", responses={**_REFUSALS, 409: problem_schema("It does not load")})
async def load(name: Name, request: Request) -> Loaded:
    """Load the newest version of a model, or `name:version`, and switch to it once it is warm.

    A served one is loaded again. Where that fails, the model that was served before goes on serving.
    """
    served = await load_model(request.app.state.served_models, name)
    return Loaded(name=served.manifest.name, version=served.manifest.version, digest=served.digest)


@router.post("/models/{name}/unload", responses=_REFUSALS)
async def unload(name: Name, request: Request) -> Unloaded:
    """Stop serving all versions of a model, or `name:version`."""
    served_models: ServedModels = request.app.state.served_models
    removed = await served_models.remove(name)
    return Unloaded(unloaded=[f"{known}:{version}" for known, version in removed])


def _scoped(request: Request, name: str) -> tuple[ServedModel, OutOfScope]:
    """Return a served model and its rule; raises `QueryError` where it has none, and `UnknownModelError`."""
    served_models: ServedModels = request.app.state.served_models
    served = served_models.named(name)
    rule: OutOfScope | None = getattr(served.model, "scope", None)
    if rule is None:
        raise QueryError(f"{name} does not tell inputs that are out of scope")
    return served, rule


def _scope(served: ServedModel, rule: OutOfScope) -> Scope:
    manifest = served.manifest
    return Scope(name=manifest.name, version=manifest.version, **dict(rule))


@router.get("/models/{name}/thresholds", responses={**_REFUSALS, 422: PROBLEM_RESPONSES[422]})
async def thresholds(name: Name, request: Request) -> Scope:
    """Return when an input is out of scope, and what other thresholds would refuse."""
    return _scope(*_scoped(request, name))


@router.post("/models/{name}/thresholds", responses={**_REFUSALS, 422: PROBLEM_RESPONSES[422]})
async def change_thresholds(name: Name, body: Thresholds, request: Request) -> Scope:
    """Choose by a rate of errors when an input is out of scope, until the model is loaded again.

    `softserve-train calibrate --reject-rate` stores the rule in the bundle.
    """
    served, rule = _scoped(request, name)
    if sum(value is not None for value in body.model_dump().values()) != 1:
        raise QueryError("give one of reject_rate, pass_rate and threshold")
    if body.reject_rate is not None:
        rule = rule.with_reject_rate(body.reject_rate)
    elif body.pass_rate is not None:
        rule = rule.with_pass_rate(body.pass_rate)
    elif body.threshold is not None:
        rule = rule.with_threshold(body.threshold)
    model: Any = served.model
    model.scope = rule
    engine_of(request).forget_results(served)
    return _scope(served, rule)
