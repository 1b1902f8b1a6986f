"""Next words and scores of sentences: parameters and records."""

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field

from models.operations.operation import Record, Truncated, TruncateParams

__all__ = [
    "ComponentWeight",
    "ExplainedScore",
    "ExplainedToken",
    "NextWordParams",
    "NextWordResult",
    "ScoreParams",
    "ScoreResult",
    "Token",
    "Word",
]


class NextWordParams(TruncateParams):
    """What can be chosen of the next words."""

    top_k: Annotated[int, Field(ge=1, description="Words to return; all where there are fewer.")] = 10
    explain: Annotated[bool, Field(description="Return the weight of each mixture component.")] = False


class ScoreParams(TruncateParams):
    """What can be chosen of a score."""

    explain: Annotated[
        bool, Field(description="Return each token's rank, the entropy before it, and the most probable words instead.")
    ] = False
    top_k: Annotated[
        int,
        Field(
            ge=1, le=100, description="Words to return instead of each token, with explain; all where there are fewer."
        ),
    ] = 5

    @property
    def alternatives(self) -> int:
        """Words to return instead of each token."""
        return self.top_k if self.explain else 0


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


Finite = Annotated[float | None, BeforeValidator(_finite)]
"""A number, or `null` where it is infinite: JSON has no infinity."""


class Word(Record):
    """A word of the vocabulary, or the end of the sentence, which is spelled `</s>`."""

    word: str
    """The word, or `</s>`."""
    probability: float
    """Its probability, above 0."""
    log_probability: float
    """Natural logarithm of the probability."""
    sentence_end: bool
    """Whether it is the end of the sentence."""


class ComponentWeight(Record):
    """Weight of one mixture component in this context."""

    kernel: str
    """Name of the component's kernel."""
    weight: float
    """Its weight, 0 to 1; the weights of all components sum to 1."""


class NextWordResult(Record):
    """The next words after one context, most probable first; entropy of the whole distribution in nats.

    Words of probability 0 are left out, so that a sparse-softmax may return fewer words than asked for.
    """

    context: str
    """The context as it was sent."""
    words: list[Word]
    """The next words, most probable first."""
    unknown: Annotated[list[str], Field(description="Words of the context that are outside the vocabulary.")]
    unknown_probability: Annotated[
        float, Field(description="Probability of any word outside the vocabulary; with all words it sums to 1.")
    ]
    entropy: float
    """Entropy of the whole distribution, in nats."""
    components: list[ComponentWeight] | None = None
    """Weights of a mixture's components, with `explain`."""
    truncated: Truncated = None


class Token(Record):
    """One word of a scored text; the last is the sentence end."""

    word: str
    """The word as the model reads it, or `</s>`."""
    log_probability: Annotated[Finite, Field(description="`null` where the probability is 0.")]
    unknown: Annotated[bool, Field(description="The word is outside the vocabulary.")]
    sentence_end: bool
    """Whether it is the end of the sentence."""


class ExplainedToken(Token):
    """A word and the distribution that it is drawn from: its entropy in nats, and its most probable words."""

    rank: Annotated[int | None, Field(description="1 for the most probable word; `null` where the probability is 0.")]
    entropy: float
    """Entropy of the distribution that the word is drawn from, in nats."""
    alternatives: list[Word]
    """The most probable words at this position."""


class ScoreResult(Record):
    """Log-probability (base e) of a text and its end, and the perplexity per token.

    Most sentences end with punctuation: compare texts that end alike.

    Both are `null` where a token has probability 0, which a sparse-softmax gives all words but the best: JSON has no
    infinity.
    """

    text: str
    """The text as it was sent."""
    log_probability: Finite
    """Natural logarithm of the probability of the text and its end; `null` where it is minus infinity."""
    perplexity: Finite
    """Perplexity per token, the sentence end included; `null` where it is infinite."""
    tokens: Sequence[Token]
    """The words of the text and the sentence end, in order."""
    truncated: Truncated = Field(default=None, exclude_if=lambda value: value is None)  # other nulls are shown


class ExplainedScore(ScoreResult):
    """A score with the distribution that each word is drawn from."""

    tokens: Sequence[ExplainedToken]
    """The words of the text and the sentence end, in order."""
