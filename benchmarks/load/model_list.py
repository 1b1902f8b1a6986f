"""The models that a server lists in `GET /v1/models`, and the choice of the one to test."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from benchmarks.load.client import Client, TransportError
from benchmarks.load.options import KEY_VARIABLE, UsageError

__all__ = ["ListedModel", "choose", "list_models"]

_TIMEOUT = 10.0
"""Seconds within which the server must list its models."""


class Limits(BaseModel):
    """The largest input that a model accepts."""

    max_pixels: int | None = None


class Languages(BaseModel):
    """The languages of a translation model."""

    source: str


class ListedModel(BaseModel):
    """An entry of `GET /v1/models`: the fields that a load test needs."""

    name: Annotated[str, Field(pattern=r"^[!-~]+$")]
    version: int
    task: str
    operations: tuple[str, ...]
    reads: Literal["text", "image"]
    limits: Limits
    languages: Languages | None = None


class _List(BaseModel):
    models: list[ListedModel]


async def list_models(client: Client, base: str) -> list[ListedModel]:
    """Return the served models in the server's order; raises `UsageError` where the address is of no such server."""
    try:
        response = await client.get("/v1/models", _TIMEOUT)
    except TransportError as error:
        raise UsageError(f"{base} does not answer: {error}") from None
    if response.status == 401:
        raise UsageError(f"{base} requires an API key: set --api-key-file or {KEY_VARIABLE}")
    if response.status != 200:
        raise UsageError(f"{base}/v1/models answers with status {response.status}: is that the address of a Softserve?")
    try:
        return _List.model_validate_json(response.content).models
    except ValidationError:
        raise UsageError(f"{base}/v1/models lists no models of Softserve") from None


def choose(models: Sequence[ListedModel], name: str | None) -> ListedModel:
    """Return the newest model of that name, or `name:version`; by default the first model that reads texts, if any.

    Raises `UsageError` where there is none.
    """
    if not models:
        raise UsageError("the server has no models: they may still be loading")
    if name is None:
        name = next((model for model in models if model.reads == "text"), models[0]).name
    found = [model for model in models if name in (model.name, f"{model.name}:{model.version}")]
    if not found:
        known = ", ".join(f"{model.name}:{model.version}" for model in models)
        raise UsageError(f"unknown model {name!r}; the server has {known}")
    return max(found, key=lambda model: model.version)
