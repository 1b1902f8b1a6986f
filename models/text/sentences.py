"""Cutting texts into sentences."""

import itertools

import sentencex

from models.native import native_errors

__all__ = ["sentences_of"]

_BLOCK = 4000
"""Characters that are segmented at a time: sentencex takes quadratic time for quotation marks, without releasing the
interpreter lock, and loses line breaks from 10,000 on. A block without a boundary goes on in the next."""


@native_errors("the segmentation into sentences")
def sentences_of(text: str, language: str) -> list[str]:
    """Return the sentences of a text in a language (ISO 639-1); joined they are the text, white space included."""
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
