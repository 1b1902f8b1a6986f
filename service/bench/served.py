"""The models that a server lists, and the choice of one for a load test."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from service.bench.client import Client, TransportError
from service.bench.options import KEY_VARIABLE, UsageError

__all__ = ["ListedModel", "choose", "list_models"]

_SECONDS = 10.0
"""Timeout of `GET /v1/models`."""


class Limits(BaseModel):
    """The largest inputs of a model."""

    max_pixels: int | None = None


class Languages(BaseModel):
    """The languages of a translation model."""

    source: str


class ListedModel(BaseModel):
    """A served model: the part of its entry in `GET /v1/models` that a load test needs."""

    name: Annotated[str, Field(pattern=r"^[!-~]+$")]
    version: int
    task: str
    operations: Annotated[list[str], Field(min_length=1)]
    reads: str
    limits: Limits
    languages: Languages | None = None


class _List(BaseModel):
    models: list[ListedModel]


async def list_models(client: Client, base: str) -> list[ListedModel]:
    """Return the models in the server's order; raises `UsageError` where the address is not that of such a server."""
    try:
        answer = await client.get("/v1/models", _SECONDS)
    except TransportError as error:
        raise UsageError(f"{base} does not answer: {error}") from None
    if answer.status == 401:
        raise UsageError(f"{base} asks for a key: give a right one with --api-key-file or {KEY_VARIABLE}")
    if answer.status != 200:
        raise UsageError(f"{base}/v1/models answers with status {answer.status}: is that the address of a Softserve?")
    try:
        return _List.model_validate_json(answer.content).models
    except ValidationError:
        raise UsageError(f"{base}/v1/models lists no models of Softserve") from None


def choose(models: Sequence[ListedModel], name: str | None) -> ListedModel:
    """Return the newest version of a name, or name:version; by default of the first that reads texts, else the first.

    Raises `UsageError` where there is none.
    """
    if not models:
        raise UsageError("the server has no model to ask: its models may still be loading")
    if name is None:
        name = next((model for model in models if model.reads == "text"), models[0]).name
    found = [model for model in models if name in (model.name, f"{model.name}:{model.version}")]
    if not found:
        known = ", ".join(f"{model.name}:{model.version}" for model in models)
        raise UsageError(f"unknown model {name!r}; the server has {known}")
    return max(found, key=lambda model: model.version)
