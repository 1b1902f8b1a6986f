"""Which tokens may follow each other where tokens are bytes, so that outputs are text.

A byte-pair encoding of bytes can spell half of a character, which a decoder would replace by U+FFFD. The automaton of
UTF-8 (RFC 3629, section 4) tells after each token which tokens can follow; U+FFFD itself is not among what it accepts.

Shapes: `V` tokens, `S` states.
"""

import re
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["START", "Utf8Tokens", "byte_fallback_pieces", "byte_level_pieces"]

START = 0
"""State between characters."""
_ONE, _TWO, _THREE, _E0, _ED, _EF, _EF_BF, _F0, _F4, _NOWHERE = range(1, 11)
"""States within a character: continuation bytes that are missing, or the first bytes that restrict the next one."""
_NUMBER = 11


def _transitions() -> NDArray[np.int8]:
    """Return the state after each byte in each state, `[S, 256]`."""
    table = np.full((_NUMBER, 256), _NOWHERE, np.int8)
    table[START, :0x80], table[START, 0xC2:0xE0] = START, _ONE
    table[START, 0xE0:0xF0], table[START, 0xF0:0xF5] = _TWO, _THREE
    table[START, [0xE0, 0xED, 0xEF, 0xF0, 0xF4]] = _E0, _ED, _EF, _F0, _F4
    for state, following in ((_ONE, START), (_TWO, _ONE), (_THREE, _TWO)):
        table[state, 0x80:0xC0] = following
    table[_E0, 0xA0:0xC0], table[_ED, 0x80:0xA0] = _ONE, _ONE
    table[_EF, 0x80:0xC0], table[_EF, 0xBF] = _ONE, _EF_BF
    table[_EF_BF, 0x80:0xBD] = START  # U+FFFD is EF BF BD; what follows it are no characters
    table[_F0, 0x90:0xC0], table[_F4, 0x80:0x90] = _TWO, _TWO
    return table


def _byte_alphabet() -> dict[str, int]:
    """Return the bytes of the characters that a byte-level vocabulary spells them with (Radford et al. 2019)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


def byte_level_pieces(spellings: Sequence[str | None]) -> list[bytes]:
    """Return the bytes of the spellings of a byte-level vocabulary; none for None, which stands for special tokens."""
    alphabet = _byte_alphabet()
    return [bytes(alphabet.get(letter, 0xFF) for letter in spelling or "") for spelling in spellings]


def byte_fallback_pieces(spellings: Sequence[str | None]) -> list[bytes]:
    """Return the bytes of a vocabulary of text that spells single bytes as `<0xE2>`; none for None."""
    return [_fallback_bytes(spelling or "") for spelling in spellings]


class Utf8Tokens:
    """The states of UTF-8 after each token of a vocabulary."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        """`tokens` are the bytes of each token, none for special tokens, which may stand between characters."""
        table, lengths = _transitions(), np.array([len(token) for token in tokens])
        padded = np.zeros((len(tokens), int(lengths.max(initial=0))), np.uint8)
        for row, token in enumerate(tokens):
            padded[row, : len(token)] = np.frombuffer(token, np.uint8)
        states = np.repeat(np.arange(_NUMBER, dtype=np.int8)[:, None], len(tokens), axis=1)
        for position in range(padded.shape[1]):
            longer = lengths > position
            states[:, longer] = table[states[:, longer], padded[longer, position]]
        special = lengths == 0
        states[1:, special] = _NOWHERE
        self._states = states
        """The state after a token in a state, `[S, V]`."""

    @classmethod
    def of_byte_level(cls, spellings: Sequence[str | None]) -> Self:
        """Return those of the spellings of a byte-level vocabulary; None for special tokens."""
        return cls(byte_level_pieces(spellings))

    @classmethod
    def of_byte_fallback(cls, spellings: Sequence[str | None]) -> Self:
        """Return those of a vocabulary of text that spells single bytes as `<0xE2>`; None for special tokens."""
        return cls(byte_fallback_pieces(spellings))

    def after(self, states: NDArray[np.int8], tokens: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return the state after each token; shapes are broadcast."""
        following: NDArray[np.int8] = self._states[states, tokens]
        return following

    @staticmethod
    def possible(states: NDArray[np.int8]) -> NDArray[np.bool_]:
        """Return whether a text can go on in each state."""
        going_on: NDArray[np.bool_] = states != _NOWHERE
        return going_on

    def whole(self, tokens: Sequence[int]) -> int:
        """Return how many of the first tokens spell whole characters."""
        state, whole = START, 0
        for count, token in enumerate(tokens, 1):
            state = int(self._states[state, token])
            if state == START:
                whole = count
        return whole


def _fallback_bytes(spelling: str) -> bytes:
    found = re.fullmatch("<0x([0-9A-Fa-f]{2})>", spelling)
    return bytes.fromhex(found[1]) if found else spelling.encode()
