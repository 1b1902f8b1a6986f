"""A completion that grows by a token at a time: its text, where it stops, and its log-probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from models.tasks.language_model import LanguageModel
from models.tasks.language_results import Prefix, SentenceScore
from models.tasks.language_sampling import Drawn, DrawQuery
from models.text.tokenization import END
from service.protocols.openai.fields import CompletionFields

__all__ = ["Continuation", "LoggedToken", "log_probabilities", "logged_prompt", "spaced"]

_IMPOSSIBLE = -9999.0
"""Stands for minus infinity, the log-probability of a word that a sparse layer excludes: JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class LoggedToken:
    """A token of an answer."""

    text: str
    """With the space before it; a sentence end has a spelling here, but none in a completion's text."""
    log_probability: float | None
    """None for the first token of a prompt, which nothing precedes."""
    alternatives: Sequence[tuple[str, float]] = ()
    """The most probable tokens instead of it."""


def spaced(words: Sequence[str], *, first: bool) -> list[str]:
    """Return words with a space before each, but the first of a text."""
    return [word if first and place == 0 else f" {word}" for place, word in enumerate(words)]


def logged_prompt(words: Sequence[str], score: SentenceScore | None) -> list[LoggedToken]:
    """Return the tokens of a prompt; `score` holds the last ones, and an end that is none of them."""
    texts = spaced(words, first=True)
    scored = [] if score is None else score.tokens[:-1]
    unscored = len(words) - len(scored)
    tokens = [LoggedToken(text, None) for text in texts[:unscored]]
    for text, token in zip(texts[unscored:], scored, strict=True):
        alternatives = [(f" {each.word}", each.log_probability) for each in token.alternatives]
        tokens.append(LoggedToken(text, token.log_probability, alternatives))
    if tokens:  # nothing precedes it
        tokens[0] = LoggedToken(texts[0], None)
    return tokens


@dataclass(slots=True)
class Continuation:
    """One completion of one prompt. `add` takes the tokens that were drawn by its `query`."""

    index: int
    """Place among the completions of a request."""
    fields: CompletionFields
    generator: np.random.Generator
    unread: tuple[int, ...]
    """Tokens that the network is still to read, the prompt's at first."""
    prompt_tokens: int
    prefix: Prefix | None = None
    text: str = ""
    tokens: list[LoggedToken] = field(default_factory=list)
    finish_reason: str | None = None
    sent: int = 0
    """Characters of the text that were taken by `fresh`."""

    def query(self) -> DrawQuery:
        """Return the query of the next token."""
        fields = self.fields
        return DrawQuery(
            self.unread, self.prefix, fields.temperature, fields.top_p, self.generator.random(), fields.logprobs or 0
        )

    def add(self, drawn: Drawn, model: LanguageModel) -> None:
        """Add a token; it ends the completion where it is a sentence end, ends a stop sequence, or is the last one."""
        first = self.prompt_tokens == 0 and not self.tokens
        words = model.spelled([drawn.token, *(token for token, _ in drawn.alternatives)])
        text, *others = [spaced([word], first=first)[0] for word in words]
        alternatives = [(other, value) for other, (_, value) in zip(others, drawn.alternatives, strict=True)]
        self.tokens.append(LoggedToken(text, drawn.log_probability, alternatives))
        self.unread, self.prefix = (drawn.token,), drawn.prefix
        if words[0] == END:
            self.finish_reason = "stop"
            return
        before, self.text = len(self.text), self.text + text
        found = [self.text.find(stop, max(0, before - len(stop))) for stop in self.fields.stop]
        if places := [place for place in found if place >= 0]:
            self.text, self.finish_reason = self.text[: min(places)], "stop"
        elif len(self.tokens) >= self.fields.max_tokens:
            self.finish_reason = "length"

    def fresh(self) -> str:
        """Take the text that is new and certain: not what may be the beginning of a stop sequence."""
        end = len(self.text)
        if self.finish_reason is None:
            end -= max((_beginning(self.text, stop) for stop in self.fields.stop), default=0)
        text, self.sent = self.text[self.sent : end], max(self.sent, end)
        return text


def _beginning(text: str, stop: str) -> int:
    """Return how many of the last characters of a text are the first ones of a stop sequence."""
    tail = text[max(0, len(text) - len(stop) + 1) :]
    place = tail.find(stop[0])
    while place >= 0 and not stop.startswith(tail[place:]):
        place = tail.find(stop[0], place + 1)
    return len(tail) - place if place >= 0 else 0


def log_probabilities(tokens: Sequence[LoggedToken], offset: int, *, alternatives: bool) -> dict[str, object]:
    """Return the member `logprobs` of a choice; `offset` is the place in the text where its first token begins."""
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
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
