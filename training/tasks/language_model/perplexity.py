"""Perplexity of a language model on a text."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from models.tasks.language_model import LanguageModel

__all__ = ["Perplexity", "bundle_perplexity", "covered_line", "perplexity_line"]


@dataclass(frozen=True, slots=True)
class Perplexity:
    """How probable the tokens of a text are, sentence ends included."""

    log_probability: float
    """Summed (base e) over the tokens whose probability is not 0."""
    num_tokens: int
    """All of them."""
    num_impossible: int = 0
    """Tokens of probability 0: those that a sparse-softmax did not keep."""

    @property
    def value(self) -> float:
        """Return the perplexity per token; infinite where a token is impossible."""
        return math.inf if self.num_impossible else self.of_possible

    @property
    def of_possible(self) -> float:
        """Return the perplexity per possible token. Judge it by `coverage` too: dropping hard tokens improves it."""
        try:
            return math.exp(-self.log_probability / (self.num_tokens - self.num_impossible))
        except (OverflowError, ZeroDivisionError):
            return math.inf

    @property
    def coverage(self) -> float:
        """Return the fraction of tokens that are possible."""
        return 1 - self.num_impossible / self.num_tokens

    @classmethod
    def of(cls, log_probabilities: Iterable[float]) -> Self:
        """Return the perplexity of tokens with these log-probabilities."""
        values = list(log_probabilities)
        possible = [value for value in values if value != -math.inf]
        return cls(math.fsum(possible), len(values), len(values) - len(possible))


def bundle_perplexity(model: LanguageModel, texts: Sequence[str], *, stream: bool = False) -> Perplexity:
    """Return the perplexity of a loaded bundle, by the same code that serves it.

    With `stream` each text is read after those before it.
    """
    scores = model.score_in_order(texts) if stream else model.score(texts)
    return Perplexity.of(token.log_probability for score in scores for token in score.tokens)


def perplexity_line(metric: str, result: Perplexity) -> str:
    """Return a line about all tokens."""
    return f"{metric} {result.value:.4f}, log-probability {result.log_probability:.2f}, {result.num_tokens} tokens"


def covered_line(result: Perplexity) -> str:
    """Return a line about the tokens that a sparse-softmax gives a probability."""
    covered = result.num_tokens - result.num_impossible
    return (
        f"sparse-softmax coverage {result.coverage:.4f} ({covered} of {result.num_tokens} tokens), "
        f"perplexity {result.of_possible:.4f} of those covered"
    )
