"""Bits per byte and perplexity of a causal language model on texts."""

import math
from dataclasses import dataclass

__all__ = ["TextBits", "bits_line"]


@dataclass(frozen=True, slots=True)
class TextBits:
    """How probable texts are, ends included."""

    log_probability: float
    """Summed over all tokens, base e."""
    num_tokens: int
    """Tokens and ends of texts."""
    num_bytes: int
    """Bytes of the texts in UTF-8, without ends."""

    @property
    def value(self) -> float:
        """Return the bits per byte, which models of other vocabularies can be compared by."""
        return -self.log_probability / math.log(2) / self.num_bytes

    @property
    def perplexity(self) -> float:
        """Return the perplexity per token."""
        try:
            return math.exp(-self.log_probability / self.num_tokens)
        except OverflowError:
            return math.inf


def bits_line(metric: str, result: TextBits) -> str:
    """Return a line about all texts."""
    return (
        f"{metric} {result.value:.4f}, perplexity {result.perplexity:.4f} per token, log-probability "
        f"{result.log_probability:.2f}, {result.num_tokens} tokens, {result.num_bytes} bytes"
    )
