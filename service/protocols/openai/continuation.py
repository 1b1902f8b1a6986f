"""A completion that grows by a token at a time: its text, and where it stops."""

import codecs
import math
from dataclasses import dataclass, field

import numpy as np

from models.tasks.language_sampling import Drawn, DrawQuery
from service.protocols.openai.fields import CompletionFields
from service.protocols.openai.logged import LoggedToken
from service.protocols.openai.writers import Writer

__all__ = ["Continuation"]


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")


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
    salt: str = ""
    """The part of the model's cache that may be used."""
    prefix: object = None
    """What the network has read, as the model tells it."""
    text: str = ""
    tokens: list[LoggedToken] = field(default_factory=list)
    finish_reason: str | None = None
    sent: int = 0
    """Characters of the text that were taken by `fresh`."""
    decoder: codecs.IncrementalDecoder = field(default_factory=_decoder)
    """Makes characters of the bytes of tokens, of which some are parts of a character."""
    adjustments: dict[int, float] = field(default_factory=dict)
    """What penalties and biases add to the log-probabilities of tokens."""
    seen: set[int] = field(default_factory=set)
    """The tokens of the completion, where there is a penalty for them."""

    def __post_init__(self) -> None:
        self.adjustments.update(self.fields.logit_bias)

    def query(self) -> DrawQuery:
        """Return the query of the next token."""
        fields = self.fields
        return DrawQuery(
            self.unread,
            self.prefix,
            fields.temperature,
            fields.top_p,
            self.generator.random(),
            fields.logprobs or 0,
            goes_on=len(self.tokens) + 1 < fields.max_tokens,
            salt=self.salt,
            adjustments=self.adjustments,
        )

    @property
    def mean_log_probability(self) -> float:
        """Log-probability for each token of the completion, 0 without tokens."""
        values = [each.log_probability for each in self.tokens if each.log_probability is not None]
        return math.fsum(values) / len(values) if values else 0.0

    def _penalize(self, token: int) -> None:
        """Count a token: its penalties are those of OpenAI's API, `frequency` times its count, and `presence` once."""
        frequency, presence = self.fields.frequency_penalty, self.fields.presence_penalty
        if frequency or presence:
            added = frequency if token in self.seen else frequency + presence
            self.adjustments[token] = self.adjustments.get(token, 0.0) - added
            self.seen.add(token)

    def add(self, drawn: Drawn, writer: Writer) -> None:
        """Add a token; it ends the completion where it ends a text or a stop sequence, or is the last one."""
        first = self.prompt_tokens == 0 and not self.tokens
        tokens = [drawn.token, *(token for token, _ in drawn.alternatives)]
        (text, piece), *others = writer.written(tokens, first=first)
        alternatives = [(other, value) for (other, _), (_, value) in zip(others, drawn.alternatives, strict=True)]
        self.unread, self.prefix = (drawn.token,), drawn.prefix
        self._penalize(drawn.token)
        ended = drawn.token == writer.end
        last = ended or len(self.tokens) + 1 >= self.fields.max_tokens
        before = len(self.text)
        self.text += self.decoder.decode(b"" if ended else piece, last)
        whole = ended or piece.decode(errors="replace") == text
        characters = None if whole else len(self.text) - before
        self.tokens.append(LoggedToken(text, drawn.log_probability, alternatives, characters))
        found = [self.text.find(stop, max(0, before - len(stop))) for stop in self.fields.stop]
        if places := [place for place in found if place >= 0]:
            self.text, self.finish_reason = self.text[: min(places)], "stop"
        elif last:
            self.finish_reason = "stop" if ended else "length"
        if self.finish_reason is not None:
            self.prefix = None  # it may be large

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
