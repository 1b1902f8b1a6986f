"""Typing errors in texts."""

import random
import string

__all__ = ["misspelled", "with_typing_errors"]

_RATE = 0.2
"""Fraction of the words that get an error."""
_SHORTEST_WORD = 3
"""Letters of a word that may get an error."""


def with_typing_errors(text: str, generator: random.Random, rate: float = _RATE) -> str:
    """Return a text in which a fraction of the words has one error each."""
    words = text.split(" ")
    return " ".join(misspelled(word, generator) if generator.random() < rate else word for word in words)


def misspelled(word: str, generator: random.Random) -> str:
    """Return a word with a letter left out, doubled, replaced or exchanged for its neighbour; numbers as they are."""
    if len(word) < _SHORTEST_WORD or not word.isalpha():
        return word
    place = generator.randrange(len(word) - 1)
    before, letter, after = word[:place], word[place], word[place + 1 :]
    kind = generator.randrange(4)
    if kind == 0:
        return before + after
    if kind == 1:
        return before + letter + letter + after
    if kind == 2:
        return before + generator.choice(string.ascii_lowercase) + after
    return before + after[0] + letter + after[1:]
