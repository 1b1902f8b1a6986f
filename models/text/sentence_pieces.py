"""Tokenization of models that come with SentencePiece vocabularies (Kudo and Richardson 2018), without that library.

A bundle holds the Unigram model as a `tokenizers` file, whose ids are the network's, and SentencePiece's replacements
of characters as JSON. The replacements are not part of the `tokenizers` file because its operator for them works on
grapheme clusters and so loses accents and does not compose Hangul or kana, where SentencePiece takes the longest match.
"""

import base64
import itertools
import json
import re
import struct
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer

from models.native import native_errors
from models.text.tokenization import BundleTokenizer
from models.text.words import Span, moved, positions_in

__all__ = ["HIDDEN", "SPACE", "SPECIAL", "CharacterMap", "SentencePieceTokenizer"]

SPACE = "▁"
"""SentencePiece's spelling of a space (U+2581)."""
HIDDEN = " "
"""Prefix in the file of pieces that the network knows but the Unigram model does not: no text has spaces there."""
SPECIAL = "  "
"""Prefix in the file of tokens that no text has, such as `</s>`."""

_SPACES = re.compile(" {2,}")


class CharacterMap:
    """Replacements of characters and of sequences of characters; the longest match counts.

    They are a double-array trie of UTF-8 bytes and the texts that its leaves point to, as SentencePiece stores them
    ("precompiled"; the layout of a unit of the trie is that of Darts-clone).
    """

    def __init__(self, charsmap: bytes, alone: str, following: str) -> None:
        """`alone` are all characters that are replaced, `following` those that continue a sequence.

        They tell where a search of the trie is worthwhile. Raises `ValueError` for a `charsmap` that is cut off.
        """
        size = struct.unpack_from("<I", charsmap)[0] if len(charsmap) >= 4 else 0
        if charsmap and (size < 4 or size % 4 or 4 + size >= len(charsmap)):
            raise ValueError("the replacements of characters are cut off")
        self._units = array("I", charsmap[4 : 4 + size])
        if sys.byteorder == "big":
            self._units.byteswap()
        self._texts = charsmap[4 + size :]
        self._letters = frozenset(alone + following if charsmap else "")
        first, later = (_class(letters) for letters in (alone, following))
        patterns = [first, f".(?={later})" if following else "(?!)"]
        self._candidate = re.compile("|".join(patterns), re.DOTALL)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Raises `ValueError` where the file holds something else."""
        try:
            content = json.loads(path.read_bytes())
            return cls(base64.b64decode(content["charsmap"], validate=True), content["alone"], content["following"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path.name} holds no replacements of characters: {error!r}") from error

    def __call__(self, text: str) -> str:
        """Return the text with all replacements."""
        if self._letters.isdisjoint(text):
            return text
        found, done = self._candidate.search(text), 0
        pieces: list[str] = []
        while found is not None:
            start = found.start()
            end, replacement = self._match(text, start)
            pieces += [text[done:start], replacement]
            found, done = self._candidate.search(text, end), end
        return "".join([*pieces, text[done:]])

    def _match(self, text: str, start: int) -> tuple[int, str]:
        """Return the end of the longest sequence that is replaced, and what by; a character by itself without one."""
        units, end, value = self._units, start + 1, -1
        base = _offset(units[0])
        for position in range(start, len(text)):
            for byte in text[position].encode():
                place = base ^ byte
                if place >= len(units) or units[place] & 0x800000FF != byte:
                    return end, text[start] if value < 0 else self._text(value)
                base = place ^ _offset(units[place])
            if units[place] >> 8 & 1:
                end, value = position + 1, units[base] & 0x7FFFFFFF
        return end, text[start] if value < 0 else self._text(value)

    def _text(self, start: int) -> str:
        return self._texts[start : self._texts.index(b"\0", start)].decode()


def _class(letters: str) -> str:
    """Return a pattern for these letters and all above U+FFFF, of which a few would make a class slow."""
    low = "".join(letter for letter in letters if letter <= "\uffff")
    return f"(?:[{re.escape(low)}]|[\U00010000-\U0010ffff])" if low else "[\U00010000-\U0010ffff]"


def _offset(unit: int) -> int:
    """Return what leads from a unit of a trie to those of its children."""
    return unit >> 10 << (unit >> 6 & 8)


class SentencePieceTokenizer(BundleTokenizer):
    """A Unigram model over the pieces of a network's vocabulary.

    A text that spells `</s>`, or a token that names a language, is text like any other. What the Unigram model does not
    know is a token if the vocabulary has it, and `<unk>` otherwise, several characters in a row as one.
    """

    unknown_word, end_word = f"{SPECIAL}<unk>", f"{SPECIAL}</s>"

    def __init__(self, tokenizer: Tokenizer, characters: CharacterMap, vocab_size: int) -> None:
        """`vocab_size` is that of the network: pieces with higher ids are unknown to it.

        Raises `ValueError` where the file has fewer pieces, or lacks `<unk>` or `</s>`.
        """
        super().__init__(tokenizer)
        if tokenizer.get_vocab_size() < vocab_size:
            raise ValueError(f"the tokenizer has {tokenizer.get_vocab_size()} pieces, not {vocab_size}")
        self._characters, self._size = characters, vocab_size
        words = [tokenizer.id_to_token(token) or SPECIAL for token in range(vocab_size)]
        self._pieces = ["" if word.startswith(SPECIAL) else word.removeprefix(HIDDEN) for word in words]

    @classmethod
    @native_errors()
    def from_files(cls, path: Path, characters: Path, vocab_size: int) -> Self:
        """Raises `ValueError` where a file has other content."""
        try:
            return cls(Tokenizer.from_file(str(path)), CharacterMap.from_file(characters), vocab_size)
        except ValueError:
            raise
        except Exception as error:  # tokenizers raises bare Exception
            raise ValueError(f"{path.name} is not a tokenizer file: {error}") from error

    @property
    def vocab_size(self) -> int:
        return self._size

    @native_errors()
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without an end."""
        normalized = [self._normalized(text) for text in texts]
        encodings = self._tokenizer.encode_batch_fast(normalized)
        return [self._known(text, each.ids) for text, each in zip(normalized, encodings, strict=True)]

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of ids; special tokens are left out."""
        pieces = self._pieces
        return ["".join([pieces[token] for token in ids]).replace(SPACE, " ").strip(" ") for ids in sequences]

    @native_errors()
    def source_spans(self, text: str) -> list[Span]:
        """Return where each token of a text begins and ends in it."""
        normalized = self._normalized(text)
        shown = normalized.replace(SPACE, " ")
        return moved(self._tokenizer.encode(normalized).offsets, positions_in(text, shown))

    def target_spans(self, ids: Sequence[int], text: str) -> list[Span]:
        """Return where each token begins and ends in the text that the ids are decoded as."""
        pieces = [self._pieces[token] for token in ids]
        shift = len("".join(pieces)) - len("".join(pieces).lstrip(SPACE))
        ends = itertools.accumulate(map(len, pieces), initial=0)
        places = [min(max(0, end - shift), len(text)) for end in ends]
        return list(itertools.pairwise(places))

    def _normalized(self, text: str) -> str:
        """Return what SentencePiece's normalizer makes of a text: spaces are single, and written as `SPACE`."""
        text = _SPACES.sub(" ", self._characters(text)).lstrip(" ")
        return f"{SPACE}{text}".rstrip(f" {SPACE}").replace(" ", SPACE) if text else ""

    def _known(self, text: str, ids: list[int]) -> list[int]:
        """Return the ids of the network: its vocabulary may have pieces that the Unigram model does not know."""
        if self.unknown_id not in ids and max(ids, default=0) < self._size:
            return ids
        pieces = self._tokenizer.encode(text).tokens  # the first call does not spell unknown pieces
        return [self._token(token, piece) for token, piece in zip(ids, pieces, strict=True)]

    def _token(self, token: int, piece: str) -> int:
        found = self._tokenizer.token_to_id(f"{HIDDEN}{piece}") if token == self.unknown_id else token
        return int(found) if found is not None and found < self._size else self.unknown_id
