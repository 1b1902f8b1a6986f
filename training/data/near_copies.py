"""Texts that are nearly copies of others: a word or a number is another one.

Shapes: `N` texts, `G` hashes of n-grams.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NearCopy", "near_copies"]

_SIMILARITY = 0.9
"""Cosine of TF-IDF vectors from which a text is nearly a copy. See `docs/how-to/own-data.md` for what it finds."""
_GRAM, _HASHES = 4, 1 << 18
"""Characters of an n-gram, and different hashes of n-grams."""
_CHARACTERS = 2000
"""The start of a text that is compared."""
_BLOCK = 500
"""Texts that are compared with all others at once."""
_CANDIDATES = 50
"""Texts with which a text is compared at most."""


@dataclass(frozen=True, slots=True)
class NearCopy:
    """A text and the most similar other one."""

    place: int
    """Place of the text."""
    other: int
    """Place of the one that it resembles."""


def near_copies(
    texts: Sequence[str],
    others: Sequence[str],
    groups: Sequence[object] | None = None,
    other_groups: Sequence[object] | None = None,
) -> list[NearCopy]:
    """Return the texts that are nearly copies of one of `others`, but not the same, in their order.

    With groups, one for each text, only texts of different groups are compared. Vectors are binary TF-IDF of character
    n-grams within words. Two of length 1 whose cosine is at least `s` share one of the rarest n-grams of each, those
    without which the vector is shorter than `s` (prefix filtering, Bayardo et al. 2007): only such pairs are compared,
    of each text at most 50.
    """
    if not texts or not others:
        return []
    vectors, counts = _vectors([*texts, *others])
    rare = _rarest(vectors, counts)
    left, right, transposed = vectors[: len(texts)], vectors[len(texts) :], rare[len(texts) :].T.tocsr()
    number: dict[object, int] = {}
    own, their = (
        np.array([number.setdefault(each, len(number)) for each in some or ()]) for some in (groups, other_groups)
    )
    found: list[NearCopy] = []
    for start in range(0, len(texts), _BLOCK):
        shared = (rare[start : start + _BLOCK][: len(texts) - start] @ transposed).tocoo()
        rows, columns, common = shared.row + start, shared.col, shared.data
        if groups is not None:
            apart = own[rows] != their[columns]
            rows, columns, common = rows[apart], columns[apart], common[apart]
        order = np.lexsort((columns, -common, rows))
        rows, columns = rows[order], columns[order]
        few = np.arange(len(rows)) - np.searchsorted(rows, rows) < _CANDIDATES
        rows, columns = rows[few], columns[few]
        similar = np.asarray(left[rows].multiply(right[columns]).sum(axis=1)).ravel()
        best: dict[int, tuple[float, int]] = {}
        for row, column, value in zip(rows.tolist(), columns.tolist(), similar.tolist(), strict=True):
            if value >= max(_SIMILARITY, best.get(row, (0.0, 0))[0]) and texts[row] != others[column]:
                best[row] = value, column
        found += [NearCopy(row, column) for row, (_, column) in sorted(best.items())]
    return found


def _vectors(texts: Sequence[str]) -> tuple[Any, NDArray[np.int64]]:
    """Return vectors of length 1, sparse `[N, G]`, and in how many texts each n-gram is, `[G]`."""
    from sklearn.feature_extraction.text import HashingVectorizer  # here and below, for it takes seconds
    from sklearn.preprocessing import normalize

    hashing = HashingVectorizer(
        analyzer="char_wb",
        ngram_range=(_GRAM, _GRAM),
        n_features=_HASHES,
        alternate_sign=False,
        norm=None,
        binary=True,
        lowercase=False,
        dtype=np.float32,
    )
    vectors = hashing.transform(text[:_CHARACTERS] for text in texts)
    counts = np.bincount(vectors.indices, minlength=_HASHES)
    vectors.data = (1 + np.log((1 + len(texts)) / (1 + counts[vectors.indices]))).astype(np.float32)
    return normalize(vectors, copy=False), counts


def _rarest(vectors: Any, counts: NDArray[np.int64]) -> Any:
    """Return 1 for the rarest n-grams of each vector, without which it is too short to be similar, sparse `[N, G]`."""
    from scipy.sparse import csr_matrix

    rows = np.repeat(np.arange(vectors.shape[0]), np.diff(vectors.indptr))
    order = np.lexsort((vectors.indices, counts[vectors.indices], rows))
    squares = vectors.data[order].astype(np.float64) ** 2
    sums = np.concatenate([[0.0], np.cumsum(squares)])
    before = sums[:-1] - sums[vectors.indptr[rows]]  # of the rarer n-grams of the same text
    kept = order[before <= 1 - _SIMILARITY**2 + 1e-6]
    ones = np.ones(len(kept), np.float32)
    return csr_matrix((ones, (rows[kept], vectors.indices[kept])), shape=vectors.shape)
