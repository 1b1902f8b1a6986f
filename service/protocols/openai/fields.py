"""Fields of a request for completions, checked."""

import secrets
from collections.abc import Sequence
from itertools import chain
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from models import QueryError
from models.text.limits import checked_text
from service.http.requests import ModelName, types_of
from service.protocols.fields import Fields

__all__ = ["CompletionFields", "Prompt", "is_ids"]

Prompt = str | list[int]
"""A text, or token ids."""

_FORMS = "must be a text, a list of texts, a list of token ids, or a list of lists of token ids"
_MOST_STOPS, _STOP_CHARACTERS = 64, 1000
"""Stop sequences, and the characters of all together: every completion is compared with them at every step."""
_DEFAULTS = {
    "suffix": (None, ""),
    "best_of": (None, 1),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
}
"""Fields that are not supported, and the values with which they change nothing."""


def is_ids(value: object) -> bool:
    """Return whether a value is a list of token ids."""
    return isinstance(value, list) and types_of(value) <= {int}


def _prompts(value: object) -> list[Prompt]:
    if isinstance(value, str):
        return [checked_text(value)]
    if not isinstance(value, list) or not value:
        raise ValueError(_FORMS)
    if is_ids(value):
        return [value]
    if types_of(value) == {str}:
        checked_text("".join(value))
        return value
    if types_of(value) == {list} and types_of(chain.from_iterable(value)) <= {int}:
        return value
    raise ValueError(_FORMS)


def _stops(value: object) -> list[str]:
    found = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError("must be a text or a list of texts")
    if len(found) > _MOST_STOPS or sum(map(len, found)) > _STOP_CHARACTERS:
        raise ValueError(f"must be at most {_MOST_STOPS} texts of at most {_STOP_CHARACTERS} characters in all")
    return [each for each in found if each]


def _or_default(default: object) -> BeforeValidator:
    return BeforeValidator(lambda value: default if value is None else value)


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class CompletionFields(Fields):
    """Texts to go on with. Fields that change nothing are ignored, others that are not supported are refused."""

    model_config = ConfigDict(extra="allow")

    prompt: Annotated[list[object], BeforeValidator(_prompts)]
    model: ModelName = None
    max_tokens: Annotated[int, Field(ge=0), _or_default(16)] = 16
    temperature: Annotated[float, Field(ge=0, le=2), _or_default(1.0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1), _or_default(1.0)] = 1.0
    n: Annotated[int, Field(ge=1, le=128), _or_default(1)] = 1
    seed: Annotated[int, _or_default(None)] | None = None
    stop: Annotated[list[str], BeforeValidator(_stops), Field(default_factory=list)]
    stream: Annotated[bool, _or_default(False)] = False
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: Annotated[bool, _or_default(False)] = False

    def check(self) -> None:
        """Raise `QueryError` for a field that is not supported and would change the answer."""
        for name, values in _DEFAULTS.items():
            if (self.model_extra or {}).get(name) not in values:
                raise QueryError(f"{name} is not supported")

    def seeds(self) -> Sequence[Sequence[int]]:
        """Return the seed of each completion: the same for the same `seed`, whatever else is computed."""
        first = secrets.randbits(64) if self.seed is None else self.seed % 2**64
        return [(first, prompt, choice) for prompt in range(len(self.prompt)) for choice in range(self.n)]
