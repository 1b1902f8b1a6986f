"""`POST /v1/admin/models/{name}/load` and `unload`: load and unload models while others serve."""

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, ConfigDict

from models import BundleError, UnsupportedDeviceError
from service.engine.served_model import ServedModel
from service.engine.served_models import ServedModels
from service.http.auth import ADMIN_PREFIX
from service.http.errors import PROBLEM_RESPONSES, problem_schema
from service.http.models import Name

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
