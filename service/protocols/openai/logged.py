"""Tokens of an answer with their log-probabilities, as OpenAI's completions have them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LoggedToken", "RankedToken", "log_probabilities", "ranked_log_probabilities"]

_IMPOSSIBLE = -9999.0
"""Stands for minus infinity, the log-probability of a word that a sparse layer excludes: JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class LoggedToken:
    """A token of an answer."""

    text: str
    """With the space before it. The end of a text has a spelling here, but none in a completion's text, and so have
    bytes that are no whole character: `bytes:\\xf0\\x9f`."""
    log_probability: float | None
    """None for the first token of a prompt, which nothing precedes."""
    alternatives: Sequence[tuple[str, float]] = ()
    """The most probable tokens instead of it."""
    characters: int | None = None
    """Characters of the text that are ascribed to it, by default those of its own text."""

    def __len__(self) -> int:
        return len(self.text) if self.characters is None else self.characters


@dataclass(frozen=True, slots=True)
class RankedToken:
    """A token in the distribution that a token of a prompt is drawn from."""

    token: int
    """Its id."""
    text: str
    """Spelled as in `LoggedToken.text`."""
    log_probability: float
    rank: int | None
    """1 for the most probable token; None for a word of probability 0."""


def ranked_log_probabilities(tokens: Sequence[Sequence[RankedToken] | None]) -> list[dict[str, object] | None]:
    """Return the member `prompt_logprobs` of a choice, as vLLM has it.

    Of each token of a prompt, `tokens` has itself and then the most probable ones, of which it may be one; None where
    nothing precedes it.
    """
    return [None if some is None else _by_id(some) for some in tokens]


def _by_id(tokens: Sequence[RankedToken]) -> dict[str, object]:
    found: dict[str, object] = {}
    for each in tokens:
        value = {"logprob": _finite(each.log_probability), "rank": each.rank, "decoded_token": each.text}
        found.setdefault(str(each.token), value)
    return found


def log_probabilities(tokens: Sequence[LoggedToken], offset: int, *, alternatives: bool) -> dict[str, object]:
    """Return the member `logprobs` of a choice; `offset` is the place in the text where its first token begins."""
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_finite(token.log_probability) for token in tokens],
        "top_logprobs": [_top(token) for token in tokens] if alternatives else None,
        "text_offset": offsets,
    }


def _top(token: LoggedToken) -> dict[str, float] | None:
    """Return the most probable tokens and the token itself, with the very number that it has elsewhere."""
    value = _finite(token.log_probability)
    return None if value is None else {**dict(token.alternatives), token.text: value}


def _finite(value: float | None) -> float | None:
    return _IMPOSSIBLE if value == -math.inf else value
