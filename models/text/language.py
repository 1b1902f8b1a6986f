"""Detection of texts in another language than a model reads."""

import functools
from array import array
from collections.abc import Sequence

import numpy as np
from py3langid.langid import MODEL_FILE, LanguageIdentifier

__all__ = ["UNDETERMINED", "LanguageDetector", "detected_languages"]

UNDETERMINED = "und"
"""Code of a language that was not determined (ISO 639-2)."""

_CHARACTERS = 1000
"""The start of a text that is looked at."""
_RULED_OUT = 0.003
"""Probability below which the expected language is ruled out; without any evidence each of 140 languages has 0.007.

Of 4,000 German training sentences of Tatoeba none is below it, of their English translations 90 %.
"""
_CERTAIN = 0.5
"""Probability from which another language is named."""


_BLOCK = 32
"""Entries of a block of `_SharedBlocks`."""
_HASH_MULTIPLIER = 0x9E3779B97F4A7C15
"""Powers of it are the weights of a block's entries in its hash."""


class _SharedBlocks:
    """Read-only integers of which equal blocks are stored once.

    The identifier's automaton has 39 MB of transitions, most of them to the same state; these are 8 MB.
    """

    __slots__ = ("_blocks", "_starts")

    def __init__(self, values: Sequence[int]) -> None:
        """Raises `ValueError` where different blocks have the same hash."""
        blocks = np.asarray(values).reshape(-1, _BLOCK)
        hashes = np.zeros(len(blocks), np.uint64)  # to sort the blocks themselves takes far longer
        for column in blocks.T:
            hashes = hashes * np.uint64(_HASH_MULTIPLIER) + column  # modulo 2^64
        _, first, number = np.unique(hashes, return_index=True, return_inverse=True)
        if not all(np.array_equal(column[first][number], column) for column in blocks.T):
            raise ValueError("different blocks have the same hash")
        self._starts = array("I", (_BLOCK * number).astype(np.uint32).tobytes())
        self._blocks = array(blocks.dtype.char, blocks[first].tobytes())

    def __getitem__(self, index: int) -> int:
        return self._blocks[self._starts[index // _BLOCK] + index % _BLOCK]


@functools.cache
def _identifier() -> LanguageIdentifier:
    """Return the identifier of all models: a naive Bayes classifier of byte n-grams that takes 45 MB."""
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.tk_nextmove = _SharedBlocks(identifier.tk_nextmove)
    return identifier


def detected_languages(text: str) -> list[tuple[str, float]]:
    """Return the languages that a text may be in, ISO 639 codes with their probability, most probable first."""
    return [(str(code), float(probability)) for code, probability in _identifier().rank(text[:_CHARACTERS])]


class LanguageDetector:
    """Says which texts are not in the language that a model reads. Safe to call from several threads."""

    def __init__(self, expected: str) -> None:
        """`expected` is an ISO 639 code; a language that the detector does not know is never ruled out."""
        self._expected = expected
        self._known = expected in _identifier().labels

    def other_language(self, text: str) -> str | None:
        """Return the language of a text that is not in the expected one, `und` where it is unclear which.

        None for a text that may be in the expected language, such as a number or a single common word.
        """
        if not self._known:
            return None
        probabilities = dict(detected_languages(text))
        if probabilities[self._expected] >= _RULED_OUT:
            return None
        best = max(probabilities, key=probabilities.__getitem__)
        return best if probabilities[best] >= _CERTAIN else UNDETERMINED
