"""Disentangled attention (He et al. 2021, section 3.1) with the log buckets of DeBERTa-v3.

To the product of query and key it adds two: of the query with a key that stands for the distance of the two tokens
(content to position), and of the key with a query that does (position to content).

Shapes: `B` texts, `T` tokens, `S` buckets of distances to one side, `P` positions, `R` distances, `d` hidden size,
`H` heads.
"""

import torch
from torch import Tensor, nn

__all__ = ["SCORE_TERMS", "Distances", "distance_buckets", "pairwise", "relative_scores"]

SCORE_TERMS = 3
"""Products in each score, by which its variance, and so its scaling, grows."""


def distance_buckets(positions: int, span: int, furthest: int | None) -> Tensor:
    """Return the bucket of each distance from `1 - P` to `P - 1`, from 0 to `2 S - 1`: `[2 P - 1]`.

    `span` is S. Distances up to S / 2 have a bucket each, and further ones share buckets whose width grows with them,
    up to the distance `furthest`; without it every distance below S has a bucket.
    """
    distances = torch.arange(1 - positions, positions)
    if furthest is not None:
        exact = span // 2
        far = torch.log(distances.abs().clamp(min=exact) / exact)
        # In float32, as in the reference implementation: the rounding decides where a bucket ends.
        steps = torch.ceil(far / torch.tensor((furthest - 1) / exact).log() * (exact - 1)) + exact
        distances = torch.where(distances.abs() <= exact, distances, steps.nan_to_num().long() * distances.sign())
    return (distances + span).clamp(0, 2 * span - 1)


def pairwise(buckets: Tensor, length: int) -> Tensor:
    """Return the bucket of each query and key of a text: those of distances `[2 P - 1]` -> `[T, T]`."""
    places = torch.arange(length, device=buckets.device)
    found: Tensor = buckets[places[:, None] - places + buckets.shape[0] // 2]
    return found


def relative_scores(
    query: Tensor, key: Tensor, position_keys: Tensor | None, position_queries: Tensor | None, buckets: Tensor
) -> Tensor:
    """Return what distances add to the scores of queries and keys, both `[B, H, T, d / H]`: `[B, H, T, T]`.

    `position_keys` and `position_queries`, `[1, H, d / H, R]`, stand for distances; without one of them its products
    are left out. `buckets` `[T, T]` are the indices in them for each query and key. All queries come scaled.
    """
    shape = (*query.shape[:2], -1, -1)
    terms = []
    if position_keys is not None:
        terms.append((query @ position_keys).gather(-1, buckets.expand(shape)))
    if position_queries is not None:
        terms.append((key @ position_queries).gather(-1, buckets.T.expand(shape)).transpose(-1, -2))
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


class Distances(nn.Module):
    """The vectors of distances between tokens, which all layers share."""

    buckets: Tensor

    def __init__(self, span: int, positions: int, hidden_size: int, norm_epsilon: float) -> None:
        """`span` is S, and `positions` the tokens of the longest text."""
        super().__init__()
        self.span = span
        self.vectors = nn.Parameter(torch.empty(2 * span, hidden_size))
        self.norm = nn.LayerNorm(hidden_size, eps=norm_epsilon)
        self.register_buffer("buckets", distance_buckets(positions, span, positions), persistent=False)

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        """Return the vectors of distances in a text of `length` tokens, `[1, R, d]`, and the index of each, `[T, T]`.

        R is twice the length where the text has no distance that shares its bucket, else 2 S.
        """
        reach = length if length <= self.span // 2 else self.span
        vectors: Tensor = self.norm(self.vectors[self.span - reach : self.span + reach])
        return vectors[None], pairwise(self.buckets, length) - (self.span - reach)
