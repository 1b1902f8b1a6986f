"""Drawing the next token of a text from a language model. All log-probabilities are base e.

Shapes: `K` most probable tokens of a distribution, in descending order.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from models.backend import Array
from models.tasks.model import SinglePart

__all__ = ["DrawQuery", "Drawn", "drawn_place"]

_DEPTHS = 6.0, 12.0, math.inf
"""Differences of log-probability to the most probable token, down to which tokens are looked at."""


@dataclass(frozen=True, slots=True)
class DrawQuery(SinglePart):
    """A text that goes on by one token."""

    tokens: tuple[int, ...]
    """The tokens that the network reads; never empty."""
    after: object = None
    """The `prefix` of the result before, for the text that the network has read then; None at the beginning."""
    temperature: float = 0.0
    """0 for the most probable token."""
    top_p: float = 1.0
    """The token is drawn from the fewest most probable ones whose probabilities sum to this."""
    uniform: float = 0.0
    """The random number in [0, 1) that the token follows from."""
    alternatives: int = 0
    """So many most probable tokens are told, too."""
    goes_on: bool = True
    """Whether another token may be asked for after this one."""
    salt: str = ""
    """Which part of the cache may be used; see `Model.with_cache_salt`."""
    adjustments: Mapping[int, float] = field(default_factory=dict)
    """Biases and penalties by token id, which are added to log-probabilities before a token is drawn."""

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def result_items(self) -> int:
        """Number of tokens of the result."""
        return 1 + self.alternatives

    @property
    def whole(self) -> bool:
        """Return whether more than the most probable tokens are needed to draw one."""
        return self.temperature > 0 or bool(self.adjustments)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The token that was drawn: never the unknown word, perhaps the end of a sentence or text."""

    token: int
    """Its id."""
    log_probability: float
    """The token's log-probability in the model's distribution, at temperature 1 and without adjustments."""
    alternatives: tuple[tuple[int, float], ...]
    """The most probable tokens and their log-probabilities; fewer where others have probability 0."""
    prefix: object
    """To continue from without reading the text again. The token itself is still to be read."""


def drawn_place(log_probabilities: Array, query: DrawQuery, tokens: Array | None = None) -> int:
    """Return the place in `log_probabilities` (`[K]`) of the token that a query draws.

    Excluded tokens have minus infinity, which adjustments do not change. `temperature` and `top_p`, which follow the
    adjustments, are those of Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.

    tokens `[K]` are the ids at each place where these are not the places themselves; all ids then, if there are
    adjustments.
    """
    if query.adjustments:
        added = np.zeros(len(log_probabilities))
        added[list(query.adjustments)] = list(query.adjustments.values())
        log_probabilities = log_probabilities + (added if tokens is None else added[tokens])
    if query.temperature == 0:
        return int(np.argmax(log_probabilities))
    scaled = log_probabilities.astype(np.float64)
    scaled = (scaled - scaled.max()) / query.temperature
    weights = np.exp(scaled)
    total = weights.sum()
    reached = total * (query.top_p if query.top_p < 1 else query.uniform)
    for depth in _DEPTHS:  # the most probable tokens alone are sorted, as many as decide
        places = np.flatnonzero(scaled > -depth)
        order = places[np.argsort(-scaled[places], kind="stable")]
        sums = np.cumsum(weights[order])
        if sums[-1] > reached:
            break
    if query.top_p < 1:
        sums = sums[: 1 + int(np.searchsorted(sums[:-1], reached))]
        total = sums[-1]
    place = int(np.searchsorted(sums, query.uniform * total, side="right"))
    return int(order[min(place, len(sums) - 1)])
