"""Detection of texts in another language than a model reads."""

import functools
import lzma
import struct
import threading
from array import array
from collections.abc import Container, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from py3langid.langid import MODEL_DIR, MODEL_FILE, LanguageIdentifier

from models.text.literals import without_literals

__all__ = ["UNDETERMINED", "Detection", "LanguageDetector", "chosen_language", "detected_languages", "load_identifier"]

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

    def __init__(self, values: Sequence[int] | NDArray[np.generic]) -> None:
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


_LOCAL_HEADER = struct.Struct("<4s4xH16xHH")
"""Start of each member of a zip archive: signature, compression method, lengths of the name and of the extra field."""


def _read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of an `.npz.xz` file, read in one pass. Raises `ValueError` for a compressed member.

    py3langid unpacks the archive to a temporary file of 68 MB, which processes that load at once have no room for.
    """
    arrays = {}
    with lzma.open(path) as stream:
        while (header := stream.read(_LOCAL_HEADER.size)).startswith(b"PK\3\4"):
            _, method, name_length, extra_length = _LOCAL_HEADER.unpack(header)
            name = stream.read(name_length).decode()
            stream.read(extra_length)
            if method:
                raise ValueError(f"{path}: {name} is compressed by method {method}")
            arrays[name.removesuffix(".npy")] = np.lib.format.read_array(stream)
    return arrays


_LOADING = threading.Lock()


def _identifier() -> LanguageIdentifier:
    """Return the identifier of all models: a naive Bayes classifier of byte n-grams that takes 45 MB."""
    with _LOADING:  # others wait for the thread that loads it
        return _read_identifier()


def load_identifier() -> None:
    """Load what detection needs, which takes a second."""
    _identifier()


@functools.cache
def _read_identifier() -> LanguageIdentifier:
    arrays = _read_arrays(MODEL_DIR / MODEL_FILE)
    return LanguageIdentifier(
        arrays["ptc"],
        arrays["pc"],
        arrays["classes"].tolist(),
        _SharedBlocks(arrays["nextmove"]),
        arrays["out_feat"].tolist(),
        norm_probs=True,
        tk_row=array("I", arrays["nextmove_row"].astype(np.uint32).tobytes()),
    )


def _read_part(text: str) -> str:
    """Return the part of a text by which its language is detected: its start, without literals; empty without letters.

    Literals are URLs, addresses, placeholders, markup and codes.
    """
    read = without_literals(text[: 2 * _CHARACTERS])[:_CHARACTERS]
    return read if any(map(str.isalpha, read)) else ""


def _ranked(read: str) -> list[tuple[str, float]]:
    return [(str(code), float(probability)) for code, probability in _identifier().rank(read)]


def _most_probable(read: str) -> tuple[str, float]:
    """Return the first language of `_ranked` and its probability, in half the time."""
    code, probability = _identifier().classify(read)
    return str(code), float(probability)


def detected_languages(text: str) -> list[tuple[str, float]]:
    """Return the languages that a text may be in, ISO 639 codes with their probability, most probable first.

    A text without letters has none; URLs, addresses, placeholders, markup and codes are not looked at.
    """
    read = _read_part(text)
    return _ranked(read) if read else []


class Detection(NamedTuple):
    """The language of a text of which some languages are expected."""

    expected: str | None
    """The most probable one of the expected languages; None where none of them is possible."""
    other: str | None
    """The language of a text that is in none of them, `und` where it is unclear which."""
    probability: float
    """Probability of `expected`; 1 where nothing is known, as of a text without letters."""


def chosen_language(text: str, known: Container[str]) -> Detection:
    """Return the most probable one of the known languages, and the language of the text where it is another one.

    `expected` is None where no known language is possible, `other` where the text may be in a known one.
    """
    read = _read_part(text)
    if not read:
        return Detection(None, None, 1.0)
    first, probability = _most_probable(read)
    if first in known:
        return Detection(first, None, probability)
    chosen, certainty = next(((code, value) for code, value in _ranked(read) if code in known), (None, 0.0))
    return Detection(chosen, first if probability >= _CERTAIN else None, certainty)


class LanguageDetector:
    """Says which texts are not in the language that a model reads. Safe to call from several threads."""

    def __init__(self, expected: str) -> None:
        """`expected` is an ISO 639 code; a language that the detector does not know is never ruled out."""
        self._expected = expected
        self._known = expected in _identifier().labels

    def detect(self, text: str) -> Detection:
        """Return the language of a text; a number or a single common word may be in the expected language."""
        read = _read_part(text)
        if not self._known or not read:
            return Detection(self._expected, None, 1.0)
        first, probability = _most_probable(read)
        if first == self._expected:
            return Detection(first, None, probability)
        expected = dict(_ranked(read))[self._expected]
        if expected >= _RULED_OUT:
            return Detection(self._expected, None, expected)
        return Detection(self._expected, first if probability >= _CERTAIN else UNDETERMINED, expected)
