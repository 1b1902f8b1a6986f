"""Links between the words of a source and of its translation, from cross-attention.

Shapes: `T` steps of the decoder, `C` source tokens of each step, `S` source tokens, `N` words.

The heads of some layers attend to the source of the word that they write, those of others to that of the word that they
read (Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation", section 3.2).
"""

from collections.abc import Sequence

import numpy as np

from models.backend import Array
from models.decoding.attention import Attention
from models.text.words import Span

__all__ = ["WordLink", "aligned_words", "word_weights"]

WordLink = tuple[int, int]
"""A word of the source and one of the translation, from 0 on."""

_SHARE = 0.9
"""A word is also linked with source words whose weight is this fraction of the largest."""
_LEAST = 0.2
"""Least weight of a link."""


def aligned_words(
    attention: Attention,
    source_tokens: Sequence[Span],
    source_words: Sequence[Span],
    target_tokens: Sequence[Span],
    target_words: Sequence[Span],
    offset: int,
) -> list[WordLink]:
    """Return the links, in the order of the translation, then of the source.

    `source_tokens` are the spans of the tokens that the encoder read, the end not included, and `target_tokens` those
    of the hypothesis. `offset` is 1 where a token's attention is that of the step that reads it, 0 where it is that of
    the step that writes it.
    """
    weights = word_weights(attention, source_tokens, source_words, target_tokens, target_words, offset)
    if not weights.size:
        return []
    largest = weights.max(axis=1, keepdims=True)
    linked = (weights >= _SHARE * largest) & (weights >= _LEAST)
    return [(int(source), int(target)) for target, source in np.argwhere(linked)]


def word_weights(
    attention: Attention,
    source_tokens: Sequence[Span],
    source_words: Sequence[Span],
    target_tokens: Sequence[Span],
    target_words: Sequence[Span],
    offset: int,
) -> Array:
    """Return the mean attention of each target word's tokens to each source word: `[target words, source words]`."""
    tokens = np.zeros((len(target_tokens), len(source_tokens) + 1))
    known = min(len(target_tokens), len(attention.positions) - offset)
    rows = np.arange(known)[:, None]
    positions = attention.positions[offset : offset + known]
    np.add.at(tokens, (rows, np.minimum(positions, len(source_tokens))), attention.weights[offset : offset + known])
    source, target = _shares(source_tokens, source_words), _shares(target_tokens, target_words)
    counts = np.maximum(target.sum(axis=1, keepdims=True), 1e-9)
    weights: Array = target @ tokens[:, :-1] @ source.T / counts
    return weights


def _shares(tokens: Sequence[Span], words: Sequence[Span]) -> Array:
    """Return the fraction of each token's characters that are in each word: `[words, tokens]`."""
    shares = np.zeros((len(words), len(tokens)))
    first = 0
    for token, (start, end) in enumerate(tokens):
        while first < len(words) and words[first][1] <= start:
            first += 1
        word = first
        while word < len(words) and words[word][0] < end:
            shares[word, token] = min(end, words[word][1]) - max(start, words[word][0])
            word += 1
    result: Array = shares / np.maximum(shares.sum(axis=0, keepdims=True), 1)
    return result
