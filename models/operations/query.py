"""Queries: checked inputs, and the parts of them that are computed."""

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Part", "Query"]


class Part(Protocol):
    """One entry of a batch, or one sequence of a decoding."""

    @property
    def length(self) -> int:
        """Number of tokens that the model reads."""
        ...

    @property
    def result_items(self) -> int:
        """Largest number of words, labels or tokens of its result."""
        ...


class Query(Protocol):
    """A checked input: a tokenized text, or a decoded image."""

    @property
    def result_items(self) -> int:
        """Largest number of words, labels or tokens of the result, all parts together."""
        ...

    def parts(self) -> Sequence[Part]:
        """Return the parts to compute; none where the result is known already."""
        ...
