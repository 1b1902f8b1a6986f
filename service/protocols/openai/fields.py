"""Fields of a request for completions, checked."""

import re
import secrets
from collections.abc import Mapping, Sequence
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
_MOST_BIASES, _LARGEST_BIAS = 300, 100
"""Entries of `logit_bias`, and the largest absolute value of one."""
_TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")


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


def _biases(value: object) -> Mapping[int, float]:
    """Return values by token id; raises `ValueError`."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(_is_bias(*each) for each in value.items()):
        raise ValueError(f"must map token ids to numbers from -{_LARGEST_BIAS} to {_LARGEST_BIAS}")
    if len(value) > _MOST_BIASES:
        raise ValueError(f"must have at most {_MOST_BIASES} token ids")
    return {int(token): float(bias) for token, bias in value.items()}


def _is_bias(token: object, bias: object) -> bool:
    """Return whether a member of `logit_bias` is a token id, in decimal digits without leading zeros, and its bias."""
    if not isinstance(token, str) or not isinstance(bias, int | float) or isinstance(bias, bool):
        return False
    return _TOKEN_ID.fullmatch(token) is not None and abs(bias) <= _LARGEST_BIAS


def _or_default(default: object) -> BeforeValidator:
    return BeforeValidator(lambda value: default if value is None else value)


Penalty = Annotated[float, Field(ge=-2, le=2), _or_default(0.0)]


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class CompletionFields(Fields):
    """Texts to go on with."""

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
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    logit_bias: Annotated[Mapping[int, float], BeforeValidator(_biases)] = Field(default_factory=dict)
    best_of: Annotated[int, Field(ge=1, le=128)] | None = None
    prompt_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    suffix: object = None

    def check(self) -> None:
        """Raise `QueryError` for fields that are not supported, or not together."""
        if self.suffix not in (None, ""):
            raise QueryError("suffix is not supported: the models continue a text, and do not fill in its middle")
        if self.candidates < self.n:
            raise QueryError(f"best_of must be at least n, {self.n}, not {self.candidates}")
        if self.stream and self.candidates > self.n:
            raise QueryError("completions are not streamed where best_of is above n: the best are known at the end")
        if self.stream and self.prompt_logprobs is not None:
            raise QueryError("prompt_logprobs are not available where stream is true")

    @property
    def candidates(self) -> int:
        """Completions that are made of each prompt, of which the best `n` are returned."""
        return self.n if self.best_of is None else self.best_of

    @property
    def explain(self) -> int:
        """Tokens that stand instead of each token of a prompt, at least 1 where ranks are asked for."""
        echoed = (self.logprobs or 0) if self.echo else 0
        return echoed if self.prompt_logprobs is None else max(1, echoed, self.prompt_logprobs)

    def seeds(self) -> Sequence[Sequence[int]]:
        """Return the seed of each completion: the same for the same `seed`, whatever else is computed."""
        first = secrets.randbits(64) if self.seed is None else self.seed % 2**64
        return [(first, prompt, choice) for prompt in range(len(self.prompt)) for choice in range(self.candidates)]
