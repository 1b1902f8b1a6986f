"""What a server says that it serves, and what of it a load test asks."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from service.bench.client import Client, TransportError
from service.bench.options import KEY_VARIABLE, UsageError

__all__ = ["Served", "choose", "list_models"]

_SECONDS = 10.0
"""For an answer to `GET /v1/models`."""


class Limits(BaseModel):
    """What a model accepts."""

    max_pixels: int | None = None


class Languages(BaseModel):
    """Of a translator."""

    source: str


class Served(BaseModel):
    """A served model; of its entry in `GET /v1/models`, what is needed here."""

    name: Annotated[str, Field(pattern=r"^[!-~]+$")]
    version: int
    task: str
    limits: Limits
    languages: Languages | None = None


class _List(BaseModel):
    models: list[Served]


async def list_models(client: Client, base: str) -> list[Served]:
    """What is served, in the server's order. Raises `UsageError` where the address is not that of such a server."""
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


def choose(models: Sequence[Served], name: str | None) -> Served:
    """The newest of that name, or that name:version; without one that of the first that reads texts, else of the first.

    Raises `UsageError` where there is none.
    """
    if not models:
        raise UsageError("the server has no model to ask: its models may still be loading")
    if name is None:
        name = next((model for model in models if model.task != "image-classification"), models[0]).name
    found = [model for model in models if name in (model.name, f"{model.name}:{model.version}")]
    if not found:
        known = ", ".join(f"{model.name}:{model.version}" for model in models)
        raise UsageError(f"unknown model {name!r}; the server has {known}")
    return max(found, key=lambda model: model.version)
