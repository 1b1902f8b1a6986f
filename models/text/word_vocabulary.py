"""Which words the bytes of a text are, and where the tokens of a subword vocabulary begin and end them.

A text is a sequence of bytes, whatever tokens spell it. Its characters are of three classes: separators (white space),
punctuation, and all others, here called letters. A *word* is a maximal run of letters, or of punctuation. The word of a
sequence of bytes that is not complete yet ends as soon as a character of another class follows; until then it may go
on. A vocabulary of bytes can cut a character in two: bytes that are a proper prefix of a separator or of a punctuation
mark are *undecided* until the next token. Bytes that are not UTF-8 are letters.

Shapes: `V` tokens.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from models.text.utf8 import byte_fallback_pieces, byte_level_pieces

__all__ = [
    "PUNCTUATION",
    "SEPARATORS",
    "Continuation",
    "Reading",
    "State",
    "WordBoundaries",
    "WordVocabulary",
]

SEPARATORS = frozenset(" \t\n\v\f\r\x85\xa0\u2028\u2029\u3000")
"""White space that separates words."""
PUNCTUATION = frozenset('.,;:!?()[]{}<>"*/\\|…“”„«»‹›¿¡。、，；：！？（）「」『』《》')
"""Marks for `WordBoundaries(punctuation=...)`. Apostrophes and hyphens are not among them: they stand within words."""


_ASCII = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PLAIN = re.compile(rb" ?[0-9A-Za-z]+")
"""Pieces whose reading depends on no more than whether they begin with a space, where no such letter is a mark."""


class State(Enum):
    """The word at a place, by the characters before it."""

    LEADING = "leading"
    """No character, or only separators: the next word has not begun."""
    LETTERS = "letters"
    """A word of letters that may go on."""
    MARKS = "marks"
    """A word of punctuation that may go on."""
    AFTER_LETTERS = "after letters"
    """The first character to come decides: a letter continues the previous word, all else begins a new one."""
    AFTER_MARKS = "after marks"
    """The same, where the previous word is one of punctuation."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A sequence of bytes, as it is read from a state on."""

    state: State | None
    """The state after the bytes, without those that are undecided; None where they continue the previous word."""
    over: bool
    """Whether the word ends within the bytes."""
    end: int
    """Bytes of the word with its leading separators, if `over`; else the bytes that are decided."""


class WordBoundaries:
    """The classes of characters. Two objects of the same sets divide texts in the same way."""

    def __init__(self, separators: Collection[str] = SEPARATORS, punctuation: Collection[str] = ()) -> None:
        """`separators` and `punctuation` are single characters; without punctuation, only separators end a word.

        Raises `ValueError` for a text of other than one character, and for a character that is in both.
        """
        if any(len(each) != 1 for each in (*separators, *punctuation)) or set(separators) & set(punctuation):
            raise ValueError("separators and punctuation must be single characters, none of them in both")
        self._separators = tuple(sorted(each.encode() for each in separators))
        self._marks = tuple(sorted(each.encode() for each in punctuation))
        both = self._separators + self._marks
        self._parts = frozenset(each[:size] for each in both for size in range(1, len(each)))
        self._parsers = {state: (self._parser(state, False), self._parser(state, True)) for state in State}

    def _parser(self, state: State, final: bool) -> re.Pattern[bytes]:
        """Return the expression of a word; `final` is for texts that are complete, where nothing is undecided."""
        separator, mark = _any_of(self._separators), _any_of(self._marks)
        part = rb"(?!)" if final else _any_of(self._parts) + rb"\Z"
        letter = b"(?:(?!%b|%b|%b).)" % (separator, mark, part)
        new = b"%b*(?:(?P<marks>%b+)|(?P<letters>%b+))?" % (separator, mark, letter)
        pattern = {
            State.LEADING: new,
            State.LETTERS: b"(?P<marks>(?!))?(?P<letters>%b*)" % letter,
            State.MARKS: b"(?P<marks>%b*)(?P<letters>(?!))?" % mark,
            State.AFTER_LETTERS: b"(?!%b)" % letter + new,
            State.AFTER_MARKS: b"(?!%b)" % mark + new,
        }[state]
        return re.compile(pattern + b"(?P<undecided>%b)?" % part, re.DOTALL)

    def read(self, state: State, text: bytes, final: bool = False) -> Reading:
        """Return what bytes are that follow a state; with `final` no others follow, so that nothing is undecided."""
        found = self._parsers[state][final].match(text)
        if found is None:
            return Reading(None, False, 0)
        undecided = found.start("undecided")
        end = undecided if undecided >= 0 else found.end()
        over = found.end() < len(text)
        if found["marks"] is not None:
            return Reading(State.MARKS, over, end)
        if found["letters"] is not None:
            return Reading(State.LETTERS, over, end)
        return Reading(state if not end else State.LEADING, over, end)

    def after(self, text: bytes, strict: bool = True) -> State:
        """Return the state after a text, of which the last word may be complete or not.

        Raises `ValueError` for a text that ends within a character that may be a separator or punctuation, if `strict`.
        """
        if strict and any(text.endswith(part) for part in self._parts):
            raise ValueError("the context ends within a character that may be a separator or punctuation")
        if not text or text.endswith(self._separators):
            return State.LEADING
        return State.AFTER_MARKS if self._marks and text.endswith(self._marks) else State.AFTER_LETTERS

    def words(self, text: bytes, state: State = State.LEADING) -> Iterator[tuple[int, int]]:
        """Yield the first byte of each word of a complete text, and the one after its last.

        Where the text continues the previous word (`state`), the first of them is the rest of that word.
        """
        begin = 0
        if self.read(state, text, final=True).state is None:
            inside = State.LETTERS if state is State.AFTER_LETTERS else State.MARKS
            begin = self.read(inside, text, final=True).end
            yield 0, begin
        parser = self._parsers[State.LEADING][True]
        while (found := parser.match(text, begin)) is not None and found.lastgroup is not None:
            yield found.span(found.lastgroup)
            begin = found.end()


def _any_of(texts: Collection[bytes]) -> bytes:
    return b"(?:%b)" % b"|".join(re.escape(each) for each in sorted(texts)) if texts else b"(?!)"


@dataclass(frozen=True, slots=True)
class Continuation:
    """What each token does to the word of a state, perhaps after undecided bytes.

    Tokens that end the text are in none of these.
    """

    over: NDArray[np.bool_]
    """The word has ended, and the token has none of its bytes, `[V]`; in the state `LEADING` no token is."""
    going_on: NDArray[np.bool_]
    """The word goes on, or has not begun yet, `[V]`."""
    excluded: NDArray[np.bool_]
    """The token continues the previous word, `[V]`."""
    undecided: tuple[int, ...]
    """Tokens whose last bytes are undecided."""
    straddling: NDArray[np.bool_]
    """The token holds bytes of the word and its end, `[V]`."""
    ends: tuple[tuple[bytes, NDArray[np.int64]], ...]
    """Bytes of the word, undecided ones included, with which straddling tokens end it, and the tokens that do."""


@dataclass(eq=False)
class WordVocabulary:
    """The tokens of a subword vocabulary as bytes, by what they do to words."""

    pieces: Sequence[bytes]
    """The bytes of each token, with the space of a word in front of it where the vocabulary has it. Tokens without
    bytes are special tokens: each of them ends the text, and so its last word."""
    boundaries: WordBoundaries = field(default_factory=WordBoundaries)

    @classmethod
    def of_byte_level(cls, spellings: Sequence[str | None], boundaries: WordBoundaries | None = None) -> Self:
        """Return the vocabulary of a byte-level BPE, as GPT-2's: `Ġthe`; None for special tokens."""
        return cls(byte_level_pieces(spellings), boundaries or WordBoundaries())

    @classmethod
    def of_sentence_pieces(cls, spellings: Sequence[str | None], boundaries: WordBoundaries | None = None) -> Self:
        """Return the vocabulary of a SentencePiece model: `▁the`, and bytes as `<0xE2>`; None for special tokens."""
        spaced = [None if each is None else each.replace("▁", " ") for each in spellings]
        return cls(byte_fallback_pieces(spaced), boundaries or WordBoundaries())

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def ends_text(self) -> NDArray[np.bool_]:
        """Tokens that end the text, `[V]`."""
        return np.array([not piece for piece in self.pieces], bool)

    @cached_property
    def _ids(self) -> dict[bytes, tuple[int, ...]]:
        ids: dict[bytes, list[int]] = {}
        for token, piece in enumerate(self.pieces):
            if piece:
                ids.setdefault(piece, []).append(token)
        return {piece: tuple(tokens) for piece, tokens in ids.items()}

    @cached_property
    def _longest_piece(self) -> int:
        return max(map(len, self.pieces), default=0)

    @cached_property
    def _mixed(self) -> list[tuple[bytes, int]]:
        """Pieces that may hold more than a beginning of a word, in order: those with a boundary after a first byte."""
        return sorted((piece, token) for token, piece in enumerate(self.pieces) if self._is_mixed(piece))

    def _is_mixed(self, piece: bytes) -> bool:
        if len(piece) > 1 and 0x80 <= piece[0] < 0xC0:  # the rest of a character, which may be a mark
            return True
        reading = self.boundaries.read(State.LEADING, piece)
        return reading.over or reading.end < len(piece)

    @cached_property
    def longest_chain(self) -> int:
        """The most tokens of which each begins with the one before, tokens of the same bytes included."""
        longest: dict[bytes, int] = {}
        for piece in sorted(self._ids, key=len):
            before = max((longest.get(piece[:size], 0) for size in range(1, len(piece))), default=0)
            longest[piece] = before + len(self._ids[piece])
        return max(longest.values(), default=0)

    def text(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes of tokens, from the last special token on."""
        special = (place for place in range(len(tokens) - 1, -1, -1) if not self.pieces[tokens[place]])
        return b"".join(self.pieces[token] for token in tokens[next(special, -1) + 1 :])

    def state(self, context: Sequence[int]) -> State:
        """Return the state after a context; a special token begins a new text.

        Raises `ValueError` for a context that ends within a character that may be a separator or punctuation.
        """
        return self.boundaries.after(self.text(context))

    def beginnings(self, rest: bytes) -> Iterator[tuple[int, int]]:
        """Yield the tokens whose bytes are a beginning of `rest`, or all of it, and how many bytes they have."""
        for size in range(1, min(len(rest), self._longest_piece) + 1):
            for token in self._ids.get(rest[:size], ()):
                yield token, size

    def extensions(self, rest: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield tokens whose bytes begin with `rest` and go on, and the bytes that follow; `rest` is not empty.

        Of tokens within which no word ends, and whose last bytes are decided, some or none are left out.
        """
        for place in range(bisect_left(self._mixed, (rest, -1)), len(self._mixed)):
            piece, token = self._mixed[place]
            if not piece.startswith(rest):
                return
            if len(piece) > len(rest):
                yield token, piece[len(rest) :]

    @cached_property
    def _continuations(self) -> dict[tuple[State, bytes], Continuation]:
        return {}

    def continuation(self, state: State, undecided: bytes = b"") -> Continuation:
        """Return what each token does after a state and undecided bytes."""
        known = self._continuations.get((state, undecided))
        if known is None:
            known = self._continuations[state, undecided] = self._continued(state, undecided)
        return known

    @cached_property
    def _alike(self) -> tuple[list[bytes], NDArray[np.int64]]:
        """Distinct pieces, of which one stands for all that are read alike, `[U]`, and that of each token, `[V]`."""
        ascii_letters = all(
            self.boundaries.read(State.LEADING, bytes([each])).state is State.LETTERS for each in _ASCII
        )
        indices: dict[bytes, int] = {}
        rows = []
        for piece in self.pieces:
            if ascii_letters and _PLAIN.fullmatch(piece):
                piece = b" a" if piece.startswith(b" ") else b"a"
            rows.append(indices.setdefault(piece, len(indices)))
        return list(indices), np.array(rows, np.int64)

    def _continued(self, state: State, undecided: bytes) -> Continuation:
        distinct, rows = self._alike
        over, going_on, excluded, not_yet = np.zeros((4, len(distinct)), bool)
        straddling = np.zeros(len(distinct), np.int64)
        for row, piece in enumerate(distinct):
            if not piece:
                continue
            reading = self.boundaries.read(state, undecided + piece)
            if reading.state is None:
                excluded[row] = True
            elif not reading.over:
                going_on[row] = True
                not_yet[row] = reading.end < len(undecided) + len(piece)
            elif reading.end:
                straddling[row] = reading.end
            else:
                over[row] = True
        sizes = straddling[rows]
        ends: dict[bytes, list[int]] = {}
        for token in np.flatnonzero(sizes).tolist():
            ends.setdefault((undecided + self.pieces[token])[: sizes[token]], []).append(token)
        return Continuation(
            over[rows],
            going_on[rows],
            excluded[rows],
            tuple(np.flatnonzero(not_yet[rows]).tolist()),
            sizes > 0,
            tuple((end, np.array(tokens)) for end, tokens in ends.items()),
        )
