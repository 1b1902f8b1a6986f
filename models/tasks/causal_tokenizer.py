"""Tokenization of causal language models: texts in, ids and places in the text out, without special tokens."""

import re
from pathlib import Path

from tokenizers import Tokenizer, decoders

from models.bundle.contract import SpecialTokens
from models.errors import BundleError
from models.native import native_errors
from models.text.config import TextConfig, check_tokenizer
from models.text.tokenization import BundleTokenizer
from models.text.utf8 import byte_fallback_pieces, byte_level_pieces
from models.text.words import Span

__all__ = ["CausalTokenizer", "load_causal_tokenizer"]

_SPACE = "▁"
"""Spelling of a space in vocabularies that are not of bytes (U+2581)."""
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
"""Spelling of a byte in such vocabularies."""


class CausalTokenizer(BundleTokenizer):
    """A vocabulary of byte-level BPE, or of BPE or Unigram pieces in which a space is spelled U+2581.

    A text that spells a special token is text like any other. Where a vocabulary's pieces of text include such a
    spelling, it is an unknown token.
    """

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens) -> None:
        """Raise `ValueError` for a vocabulary of another kind, or without the special tokens."""
        super().__init__(tokenizer, special)
        self.start_id = special.start
        """The token before every text; None for models without one."""
        tokenizer.no_truncation()  # a file keeps the settings of its last use
        tokenizer.no_padding()
        described = b"" if tokenizer.decoder is None else tokenizer.decoder.__getstate__()
        self._bytes = decoders.ByteLevel() if b'"ByteLevel"' in described else None
        if self._bytes is None and _SPACE.encode() not in described:
            raise ValueError("the tokenizer's pieces are neither of bytes, nor do they spell spaces as U+2581")
        added = tokenizer.get_added_tokens_decoder().items()
        special_ids = {token for token, each in added if each.special}
        self._special_ids = special_ids | {
            self.end_id,
            self.unknown_id,
            *(() if special.start is None else (special.start,)),
        }
        self._literal = {token: each.content for token, each in added if each.special or self._bytes is not None}
        """The text of tokens that are not spelled as the others are."""
        self._texts: dict[int, str] = {}
        """The texts of tokens that were asked for."""
        self._never_text = frozenset() if self.unknown_id == self.end_id else frozenset(special_ids - {self.unknown_id})
        framed = [tokenizer.encode("a", add_special_tokens=added).ids for added in (True, False)]
        self.puts_start = special.start is not None and framed[0] == [special.start, *framed[1]]
        """Whether the tokenizer puts the start token before every text."""
        self._reader = Tokenizer.from_str(tokenizer.to_str())
        self._reader.encode_special_tokens = True
        self._reader.post_processor = None  # some cut the spaces off the places of tokens

    @native_errors()
    def split(self, text: str) -> tuple[list[int], list[Span]]:
        """Return the ids of a text, and of each token its first character and the one after its last.

        Tokens that are parts of one character have the same place.
        """
        encoding = self._reader.encode(text, add_special_tokens=False)
        ids = [self.unknown_id if token in self._never_text else token for token in encoding.ids]
        spans = list(encoding.offsets)
        if encoding.tokens[:1] == [_SPACE] and not text.startswith((" ", _SPACE)):
            spans[0] = (0, 0)  # the space is not in the text: the tokenizer puts it before every text
        return ids, spans

    @native_errors()
    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return self.split(text)[0]

    @native_errors()
    def with_special(self, text: str, *, added: bool) -> list[int]:
        """Return the ids of a text in which special tokens are read where they are spelled, or also `added` to it."""
        return list(self._tokenizer.encode(text, add_special_tokens=added).ids)

    def pieces(self, count: int) -> list[bytes]:
        """Return the bytes of the first `count` ids; none for special tokens and ids without a token."""
        content = {token: text.encode() for token, text in self._literal.items() if token not in self._special_ids}
        spellings = [
            None if token in self._special_ids or token in content else self._tokenizer.id_to_token(token)
            for token in range(count)
        ]
        if self._bytes is not None:
            found = byte_level_pieces(spellings)
        else:
            found = byte_fallback_pieces([None if each is None else each.replace(_SPACE, " ") for each in spellings])
        return [content.get(token, piece) for token, piece in enumerate(found)]

    def is_unknown(self, token: int) -> bool:
        """Return whether a token of a text stands for what is outside the vocabulary."""
        return token == self.unknown_id != self.end_id

    def text(self, token: int) -> str:
        """Return the text of one token, with the space before a word and U+FFFD for parts of a character.

        Special tokens are spelled, and an id without a token has no text.
        """
        found = self._texts.get(token)
        if found is None:
            found = self._texts[token] = self._text(token)
        return found

    @native_errors()
    def _text(self, token: int) -> str:
        if (content := self._literal.get(token)) is not None:
            return content
        piece = self._tokenizer.id_to_token(token)
        if piece is None:
            return ""
        if self._bytes is not None:
            return str(self._bytes.decode([piece]))
        if found := _BYTE.fullmatch(piece):
            return bytes.fromhex(found[1]).decode(errors="replace")
        return str(piece).replace(_SPACE, " ")


def load_causal_tokenizer(bundle: Path, config: TextConfig) -> CausalTokenizer:
    """Return the tokenizer of a bundle; raises `BundleError` where it is not the one that the manifest describes."""
    try:
        tokenizer = CausalTokenizer.from_file(bundle / config.tokenizer, config.special_tokens)
    except ValueError as error:
        raise BundleError(str(bundle), [str(error)]) from error
    check_tokenizer(bundle, config.tokenizer, tokenizer, config.vocab_size, config.special_tokens)
    return tokenizer
