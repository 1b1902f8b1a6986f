"""`/v1/admin/models/{name}`: load and unload models while others serve, and change their thresholds."""

from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from models import BundleError, QueryError, UnsupportedDeviceError
from models.tasks.scope import OutOfScope, ScopePoint
from service.engine.administration import Administration, ChangeScope, Load, LoadedModel, Unload, scoped
from service.engine.served_model import Key
from service.http.auth import ADMIN_PREFIX
from service.http.errors import PROBLEM_RESPONSES, problem_schema
from service.http.models import Name
from service.http.requests import Body

__all__ = ["administration_of", "load_model", "router"]

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
    """The rule for inputs out of scope of a classifier, by one of three numbers."""

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


def administration_of(request: Request) -> Administration:
    """Return the administration of the application."""
    administration: Administration = request.app.state.administration
    return administration


async def load_model(administration: Administration, name: str) -> LoadedModel:
    """Load a model from disk and serve it; raises `HTTPException` where it does not load, and `UnknownModelError`."""
    try:
        return (await administration.call(Load(name)))[0]
    except (BundleError, UnsupportedDeviceError, TimeoutError) as error:
        raise HTTPException(409, f"{name} does not load: {error}") from error


@router.post("/models/{name}/load", responses={**_REFUSALS, 409: problem_schema("It does not load")})
async def load(name: Name, request: Request) -> Loaded:
    """Load the newest version of a model, or `name:version`, and switch to it once it is warm.

    A served one is loaded again. Where that fails, the model that was served before goes on serving.
    """
    loaded = await load_model(administration_of(request), name)
    return Loaded(name=loaded.key[0], version=loaded.key[1], digest=loaded.digest)


@router.post("/models/{name}/unload", responses=_REFUSALS)
async def unload(name: Name, request: Request) -> Unloaded:
    """Stop serving all versions of a model, or `name:version`."""
    removed, *_ = await administration_of(request).call(Unload(name))
    return Unloaded(unloaded=[f"{known}:{version}" for known, version in removed])


def _scope(key: Key, rule: OutOfScope) -> Scope:
    return Scope(name=key[0], version=key[1], **dict(rule))


@router.get("/models/{name}/thresholds", responses={**_REFUSALS, 422: PROBLEM_RESPONSES[422]})
async def thresholds(name: Name, request: Request) -> Scope:
    """Return when an input is out of scope, and what other thresholds would refuse."""
    served, rule = scoped(request.app.state.served_models, name)
    return _scope(served.key, rule)


@router.post("/models/{name}/thresholds", responses={**_REFUSALS, 422: PROBLEM_RESPONSES[422]})
async def change_thresholds(name: Name, body: Thresholds, request: Request) -> Scope:
    """Choose by a rate of errors when an input is out of scope, until the model is loaded again.

    `softserve-train calibrate --reject-rate` stores the rule in the bundle.
    """
    scoped(request.app.state.served_models, name)
    if sum(value is not None for value in body.model_dump().values()) != 1:
        raise QueryError("give one of reject_rate, pass_rate and threshold")
    changed, *_ = await administration_of(request).call(ChangeScope(name=name, **body.model_dump()))
    return _scope(*changed)
