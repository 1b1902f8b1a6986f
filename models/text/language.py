"""Detection of texts in another language than a model reads."""

import functools
import lzma
import struct
import threading
from array import array
from collections.abc import Container, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from py3langid.langid import MODEL_DIR, MODEL_FILE, LanguageIdentifier

from models.text.literals import without_literals

__all__ = ["UNDETERMINED", "LanguageDetector", "chosen_language", "detected_languages", "load_identifier"]

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
    return [(str(code), float(probability)) for code, probability in _identifier().rank(read)] if read else []


def _most_probable(read: str) -> str | None:
    """Return the first language of `_ranked`, in half the time."""
    return str(_identifier().classify(read)[0]) if read else None


def detected_languages(text: str) -> list[tuple[str, float]]:
    """Return the languages that a text may be in, ISO 639 codes with their probability, most probable first.

    A text without letters has none; URLs, addresses, placeholders, markup and codes are not looked at.
    """
    return _ranked(_read_part(text))


def chosen_language(text: str, known: Container[str]) -> tuple[str | None, str | None]:
    """Return the most probable one of the known languages, and the language of the text where it is another one.

    The first is None where no known language is possible, the second where the text may be in a known one.
    """
    read = _read_part(text)
    if (first := _most_probable(read)) is not None and first in known:
        return first, None
    found = _ranked(read)
    chosen = next((code for code, _ in found if code in known), None)
    best, probability = found[0] if found else (None, 0.0)
    return chosen, best if best != chosen and probability >= _CERTAIN else None


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
        read = _read_part(text)
        if _most_probable(read) in (self._expected, None):
            return None
        found = dict(_ranked(read))
        if found[self._expected] >= _RULED_OUT:
            return None
        best = max(found, key=found.__getitem__)
        return best if found[best] >= _CERTAIN else UNDETERMINED
