"""What happens to every text around tokenization: checks, a cut into sentences, padding.

Shapes: `B` texts, `T` tokens.
"""

from collections.abc import Sequence

import numpy as np
import sentencex

from models.backend import Array
from models.errors import QueryError

__all__ = ["CHARACTERS_PER_TOKEN", "checked_text", "padded", "sentences_of", "several"]

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
    sentences, start = [], 0
    for piece in sentencex.segment(language, plain) if text else ():
        sentences.append(text[start : start + len(piece)])
        start += len(piece)
    assert start == len(text), "a segmentation lost text"
    return sentences


def padded(sequences: Sequence[Sequence[int]]) -> dict[str, Array]:
    """Right-padded tokens `[B, T]` and their lengths `[B]`; T is the longest length."""
    lengths = np.array([len(sequence) for sequence in sequences])
    tokens = np.zeros((len(sequences), int(lengths.max())), np.int64)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = sequence
    return {"tokens": tokens, "lengths": lengths}
