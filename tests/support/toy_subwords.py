"""Causal models over a few subwords whose continuations can be enumerated, and the words of texts by another way."""

import math
from collections import defaultdict

import numpy as np


class ToyModel:
    """Random distributions that depend on the whole prefix; after `max_tokens` tokens the text ends.

    `context` tokens in front of a continuation do not count. Without `max_tokens` texts end as it happens.
    """

    def __init__(self, vocab_size, end, seed=0, max_tokens=None, context=(), sharpness=1.0):
        self.vocab_size, self.end, self.seed = vocab_size, end, seed
        self.max_tokens, self.context, self.sharpness = max_tokens, tuple(context), sharpness
        self.batches = []

    def row(self, prefix):
        assert prefix[: len(self.context)] == self.context
        if self.max_tokens is not None and len(prefix) - len(self.context) >= self.max_tokens:
            return np.where(np.arange(self.vocab_size) == self.end, 0.0, -np.inf)
        values = np.random.default_rng([self.seed, *prefix]).normal(scale=self.sharpness, size=self.vocab_size)
        return values - np.log(np.exp(values).sum())

    def log_probabilities(self, prefixes):
        self.batches.append(len(prefixes))
        return np.array([self.row(prefix) for prefix in prefixes])


def continuations(model, pieces, context):
    """Yields the bytes of each text that may follow, and its probability."""

    def go_on(prefix, text, mass):
        for token, value in enumerate(np.exp(model.row(prefix))):
            if value > 0 and not pieces[token]:
                yield text, mass * value
            elif value > 0:
                yield from go_on((*prefix, token), text + pieces[token], mass * value)

    return go_on(tuple(context), b"", 1.0)


def first_word(before, text, separators, punctuation=""):
    """Returns the next word of a text after another: None where the last word goes on, no bytes where there is none."""

    def kind(letter):
        return "separator" if letter in separators else "mark" if letter in punctuation else "letter"

    last = [kind(letter) for letter in before.decode(errors="surrogateescape")][-1:]
    letters = list(text.decode(errors="surrogateescape"))
    kinds = [kind(letter) for letter in letters]
    if last and last != ["separator"] and kinds[:1] == last:
        return None
    start = next((place for place, each in enumerate(kinds) if each != "separator"), None)
    if start is None:
        return b""
    stop = next((place for place in range(start, len(kinds)) if kinds[place] != kinds[start]), len(kinds))
    return "".join(letters[:stop]).encode(errors="surrogateescape")


def word_distribution(model, pieces, context, separators, punctuation=""):
    """Returns the probability of each next word, given that the last word is over, by enumeration."""
    before = b"".join(pieces[token] for token in context)
    masses = defaultdict(list)
    for text, mass in continuations(model, pieces, context):
        masses[first_word(before, text, separators, punctuation)].append(mass)
    begins = 1 - math.fsum(masses.pop(None, [0.0]))
    return {word: math.fsum(each) / begins for word, each in masses.items()}
