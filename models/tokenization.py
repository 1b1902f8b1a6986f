"""Tokenization shared by training and serving: text in, ids out, and back."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer

__all__ = ["END", "UNKNOWN", "SubwordTokenizer", "WordTokenizer"]

UNKNOWN = "<unk>"
"""Spelling of the unknown word in the vocabulary."""
END = "</s>"
"""Spelling of the sentence end, which is also what a sentence starts after."""


class _Tokenizer:
    """A `tokenizers` file whose vocabulary holds `<unk>` and `</s>`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        unknown, end = tokenizer.token_to_id(UNKNOWN), tokenizer.token_to_id(END)
        if unknown is None or end is None:
            raise ValueError(f"the tokenizer's vocabulary lacks {UNKNOWN!r} or {END!r}")
        self._tokenizer = tokenizer
        self.unknown_id: int = unknown
        self.end_id: int = end

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Raises `ValueError` where the file is no tokenizer."""
        try:
            return cls(Tokenizer.from_file(str(path)))
        except Exception as error:  # tokenizers raises bare Exception
            raise ValueError(f"{path.name} is not a tokenizer file: {error}") from error

    def save(self, path: Path) -> None:
        self._tokenizer.save(str(path))

    @property
    def vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def word(self, token: int) -> str:
        """The spelling of one id in the vocabulary."""
        word = self._tokenizer.id_to_token(token)
        if word is None:
            raise ValueError(f"token id {token} is outside the vocabulary of {self.vocab_size}")
        return str(word)


class WordTokenizer(_Tokenizer):
    """A word-level vocabulary.

    The sentence end is never the result of encoding text: a text that spells `</s>` holds an unknown word.
    """

    def encode(self, text: str) -> list[int]:
        """Ids of the words of `text`, without a sentence end."""
        return self._as_text(self._tokenizer.encode(text).ids)

    def split(self, text: str) -> tuple[list[int], list[str]]:
        """Ids as of `encode`, and the piece of `text` each stands for, so that an unknown word keeps its spelling."""
        # Composed first: the tokenizer's offsets would cut combining marks off.
        text = unicodedata.normalize("NFC", text)
        encoding = self._tokenizer.encode(text)
        return self._as_text(encoding.ids), [text[start:end] for start, end in encoding.offsets]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._as_text(encoding.ids) for encoding in self._tokenizer.encode_batch_fast(texts)]

    def _as_text(self, ids: list[int]) -> list[int]:
        return [self.unknown_id if token == self.end_id else token for token in ids]


class SubwordTokenizer(_Tokenizer):
    """Byte-pair encoding of bytes (Sennrich et al. 2016; Radford et al. 2019): every text has ids, none is unknown.

    A text that spells `</s>` or `<unk>` is text like any other.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        tokenizer.encode_special_tokens = True

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without an end."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """The texts that ids stand for; special tokens are left out, bytes that are no UTF-8 become U+FFFD."""
        return [text.strip(" ") for text in self._tokenizer.decode_batch(sequences, skip_special_tokens=True)]
