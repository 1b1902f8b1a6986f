"""Links between the tokens of sentence pairs, made of links between their words.

Shapes: `B` pairs, `S` source tokens, `T` target tokens, `M` source words, `N` target words.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.text.tokenization import SubwordTokenizer
from models.text.words import Span, words_of
from training.data.entities import TextPair
from training.data.statistical_alignment import StatisticalAligner

__all__ = ["TokenLinks", "linked_tokens", "words_of_tokens"]


def words_of_tokens(tokens: Sequence[Span], words: Sequence[Span]) -> NDArray[np.int64]:
    """Return the word of each token by their characters, the last one of several; -1 for a token without a word."""
    owners = np.full(max((end for _, end in [*tokens, *words]), default=0), -1)
    for word, (start, end) in enumerate(words):
        owners[start:end] = word
    return np.array([owners[start:end].max(initial=-1) for start, end in tokens], np.int64)


def linked_tokens(
    links: NDArray[np.bool_], source: NDArray[np.int64], target: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return for each target token a distribution over source tokens, uniform over those of linked words: `[T, S]`.

    `links` `[N, M]` are those of words, `source` `[S]` and `target` `[T]` the words of tokens. Rows of tokens without a
    link are zeros.
    """
    padded = np.pad(links, ((0, 1), (0, 1)))  # the last row and column are those of tokens without a word
    linked = padded[np.ix_(target, source)].astype(np.float32)
    distributions: NDArray[np.float32] = linked / np.maximum(linked.sum(axis=1, keepdims=True), 1)
    return distributions


class TokenLinks:
    """The links of the tokens of sentence pairs, found when they are asked for."""

    def __init__(self, pairs: Sequence[TextPair], aligner: StatisticalAligner, tokenizer: SubwordTokenizer) -> None:
        self._pairs, self._aligner, self._tokenizer = pairs, aligner, tokenizer

    def batch(self, indices: Sequence[int], source: int, target: int) -> Tensor:
        """Return distributions over source positions for each target position of pairs: `[B, target, source]`.

        Rows of the end, of padding, and of tokens without links are zeros.
        """
        pairs = [self._pairs[index] for index in indices]
        found = torch.zeros(len(pairs), target, source)
        for row, (pair, links) in enumerate(zip(pairs, self._aligner.links(pairs), strict=True)):
            ours, theirs = (words_of_tokens(self._tokenizer.source_spans(text), words_of(text)) for text in pair)
            found[row, : len(theirs), : len(ours)] = torch.from_numpy(linked_tokens(links, ours, theirs))
        return found
