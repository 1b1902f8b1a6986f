"""Beam search as plainly as it can be said: lists of hypotheses, one sentence, no early end of an exact search."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from models.decoding.beam_search import SearchOptions

Tokens = tuple[int, ...]
Distribution = Callable[[Tokens], Sequence[float]]
"""Log-probabilities of all tokens after those."""


def best(distribution: Distribution, beam_size: int, end: int, max_tokens: int, options: SearchOptions):
    """Tokens, log-probability and score of the n best hypotheses."""
    opened: list[tuple[Tokens, float]] = [((), 0.0)]
    finished: list[tuple[Tokens, float, float]] = []

    def finish(tokens: Tokens, log_probability: float, length: int) -> None:
        finished.append((tokens, log_probability, log_probability / length**options.length_penalty))

    for length in range(max_tokens):
        if length < len(options.prefix):
            opened = [(tokens + options.prefix[length : length + 1], value) for tokens, value in opened]
            continue
        continued = [
            each
            for tokens, value in opened
            for each in _continued(distribution, tokens, value, options.sparse and beam_size)
        ]
        continued.sort(key=lambda each: -each[1])
        for tokens, value in continued[:beam_size]:
            if tokens[-1] == end:
                finish(tokens[:-1], value, length + 1)
        opened = [each for each in continued[: 2 * beam_size] if each[0][-1] != end][:beam_size]
        if (options.stop == "full" or beam_size == 1) and len(finished) >= beam_size and length + 1 < max_tokens:
            opened = []
    ended = sorted(finished, key=lambda each: -each[2])
    finished.clear()
    for tokens, value in opened:
        finish(tokens, value, max_tokens)
    return [*ended, *sorted(finished, key=lambda each: -each[2])][: options.n_best]


def _continued(distribution: Distribution, tokens: Tokens, value: float, kept: int) -> list[tuple[Tokens, float]]:
    """Every possible continuation, most likely first; only `kept` of them, renormalized, where that is not 0."""
    following = sorted(enumerate(distribution(tokens)), key=lambda each: -each[1])
    if kept:
        following = following[:kept]
        total = math.log(math.fsum(math.exp(each) for _, each in following))
        following = [(token, each - total) for token, each in following]
    return [((*tokens, token), value + each) for token, each in following if each > -math.inf]


def made_up(seed: int, vocab_size: int, *, scale: float = 2.0, zeros: float = 0.0) -> Distribution:
    """A random distribution for every prefix, always the same one; a share of the tokens has probability 0."""
    known: dict[Tokens, list[float]] = {}

    def distribution(prefix: Tokens) -> list[float]:
        if prefix not in known:
            generator = np.random.default_rng([seed, len(prefix), *prefix])
            scores = generator.normal(size=vocab_size) * scale
            scores[generator.random(vocab_size) < zeros] = -np.inf
            scores[generator.integers(vocab_size)] = scale
            known[prefix] = (scores - np.logaddexp.reduce(scores)).tolist()
        return known[prefix]

    return distribution
