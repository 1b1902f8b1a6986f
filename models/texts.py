"""What happens to every text around tokenization: checks, a cut into sentences, padding.

Shapes: `B` texts, `T` tokens.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import sentencex

from models.backend import Array
from models.errors import QueryError

__all__ = ["CHARACTERS_PER_TOKEN", "checked_text", "padded", "sentences_of", "several"]

_BLOCK = 4000
"""Characters that are cut into sentences at once: sentencex takes quadratic time for quotation marks, without releasing
the interpreter lock, and loses line breaks from 10,000 on. A block without a boundary goes on in the next."""
CHARACTERS_PER_TOKEN = 64
"""Texts of more characters than this times the token limit are refused before they are tokenized."""


def checked_text(text: str) -> str:
    """The text itself; raises `QueryError` where it cannot be encoded, `TypeError` where it is no text."""
    try:
        str.encode(text)
    except UnicodeEncodeError:
        raise QueryError("the text holds half of a surrogate pair, which is no character") from None
    return text


def several(texts: Sequence[str]) -> Sequence[str]:
    """The texts themselves; raises `TypeError` for one string, whose letters would be taken for texts."""
    if isinstance(texts, str):
        raise TypeError("a list of texts is needed, not one string")
    return texts


def sentences_of(text: str, language: str) -> list[str]:
    """The sentences of a text (ISO 639-1 code of its language); joined they are the text, white space included."""
    # sentencex panics where white space beyond ASCII follows an initial ("A.\u00a0Merkel"), so it sees spaces instead.
    plain = "".join(" " if letter > "\x7f" and letter.isspace() else letter for letter in text)
    ends, start, goes_on = [0], 0, False
    while start < len(text):
        block = plain[start : start + _BLOCK]
        lengths = [len(piece) for piece in sentencex.segment(language, block)]
        assert sum(lengths) == len(block), "a segmentation lost text"
        if goes_on:
            ends.pop()
        goes_on = len(lengths) == 1
        if not goes_on and start + len(block) < len(text):
            lengths.pop()  # the next block begins with what this one may have cut off
        for length in lengths:
            start += length
            ends.append(start)
    return [text[start:end] for start, end in itertools.pairwise(ends)]


def padded(sequences: Sequence[Sequence[int]]) -> dict[str, Array]:
    """Right-padded tokens `[B, T]` and their lengths `[B]`; T is the longest length."""
    lengths = np.array([len(sequence) for sequence in sequences])
    tokens = np.zeros((len(sequences), int(lengths.max())), np.int64)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = sequence
    return {"tokens": tokens, "lengths": lengths}
