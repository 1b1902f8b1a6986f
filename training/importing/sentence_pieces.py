"""SentencePiece models, converted to the files that a bundle has of them.

`source.spm` holds pieces with their scores and the replacements of characters; `vocab.json` holds the network's ids of
the pieces of both languages. The `tokenizers` file that is made of them lists the network's vocabulary in the order of
its ids, so that the Unigram model says the network's ids itself.
"""

import base64
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models
from tokenizers.models import Unigram

from models.text.sentence_pieces import HIDDEN, SPECIAL, SentencePieceTokenizer
from training.data.sentence_pieces import BPE, NORMAL, read_sentence_pieces
from training.importing.errors import SAVED_AGAIN, ImportRefused
from training.importing.importer import need
from training.importing.source import SourceDirectory

__all__ = ["CHARACTERS", "SentencePieceModel", "compare_pieces", "is_language", "read_vocabulary"]

CHARACTERS = "characters.json"
"""File of the bundle with the replacements of characters."""

_SPECIAL = ("<unk>", "</s>", "<s>", "<pad>")
_MOST_STEPS, _LONGEST = 1 << 20, 256
"""Steps through a trie of replacements, and bytes of a sequence; without bounds one with circles has no end."""


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """A Unigram model, or one of byte-pair encoding, and the normalization of texts before it."""

    scores: Mapping[str, float]
    """Log-probability of each piece; of byte-pair encoding the higher, the earlier pieces are merged to it."""
    charsmap: bytes
    """Replacements of characters before tokenization; see `models.text.sentence_pieces.CharacterMap`."""
    merges: bool = False
    """Whether it is byte-pair encoding."""

    @classmethod
    def read(cls, path: Path, *, merges: bool = False) -> "SentencePieceModel":
        """Read a file, with `merges` also one of byte-pair encoding.

        Raises `ImportRefused` for a file that is no SentencePiece model, or one that is not converted exactly.
        """
        need("sentencepiece")
        try:
            proto = read_sentence_pieces(path, plain=True, merges=merges)
        except ValueError as error:
            raise ImportRefused(str(error)) from error
        scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == NORMAL}
        return cls(scores, bytes(proto.normalizer_spec.precompiled_charsmap), proto.trainer_spec.model_type == BPE)

    def characters(self) -> dict[str, str]:
        """Return the content of the JSON file from which `CharacterMap` reads; raises `ImportRefused`."""
        try:
            keys = list(_replaced(self.charsmap))
        except (struct.error, ValueError) as error:
            raise ImportRefused(f"the replacements of characters are damaged: {error}; {SAVED_AGAIN}") from error
        return {
            "charsmap": base64.b64encode(self.charsmap).decode(),
            "alone": "".join(sorted(key for key in keys if len(key) == 1)),
            "following": "".join(sorted({letter for key in keys for letter in key[1:]})),
        }

    def tokenizer(self, vocabulary: Mapping[str, int], size: int) -> Tokenizer:
        """Return the `tokenizers` file's content for the ids of a vocabulary of a network with `size` tokens.

        Pieces that the network lacks get higher ids. See `models.text.sentence_pieces` for the spelling of tokens that
        no text has.
        """
        least = min(self.scores.values())
        entries = [(f"{SPECIAL}{token}", least) for token in range(size)]
        for piece, token in vocabulary.items():
            if piece in _SPECIAL or is_language(piece):
                entries[token] = (f"{SPECIAL}{piece}", least)
            elif piece in self.scores:
                entries[token] = (piece, self.scores[piece])
            else:
                entries[token] = (f"{HIDDEN}{piece}", least)
        entries += [(piece, score) for piece, score in self.scores.items() if piece not in vocabulary]
        if not self.merges:
            return Tokenizer(Unigram(entries, vocabulary["<unk>"], byte_fallback=False))
        ids = {piece: token for token, (piece, _) in enumerate(entries)}
        unknown = f"{SPECIAL}<unk>"
        return Tokenizer(models.BPE(ids, self._merges(), unk_token=unknown, fuse_unk=True, ignore_merges=False))

    def _merges(self) -> list[tuple[str, str]]:
        """Return the pairs of pieces that are merged, first ones first: those of the piece with the highest score."""
        ranked = sorted(self.scores.items(), key=lambda each: -each[1])
        ranks = {piece: rank for rank, (piece, _) in enumerate(ranked)}
        found: list[tuple[str, str]] = []
        for piece, _ in ranked:
            halves = [(piece[:end], piece[end:]) for end in range(1, len(piece))]
            known = [pair for pair in halves if pair[0] in ranks and pair[1] in ranks]
            found += sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        return found


def compare_pieces(reference: Any, model: Any, ours: SentencePieceTokenizer, texts: Sequence[str]) -> None:
    """Raise `ImportRefused` where a text has other ids than by SentencePiece and a tokenizer of transformers.

    `model` is SentencePiece's, in place of the tokenizer's own call, which reads a text that spells `</s>`, or the
    token of a language, as that token.
    """
    for text, ids in zip(texts, ours.encode_batch(texts), strict=True):
        expected = reference.convert_tokens_to_ids(model.encode(text, out_type=str))
        if ids != expected:
            raise ImportRefused(f"{text!r} gets the tokens {ids}, by transformers {expected}; {SAVED_AGAIN}")


def is_language(piece: str) -> bool:
    """Return whether a token names a target language, such as `>>fra<<`."""
    return piece.startswith(">>") and piece.endswith("<<")


def read_vocabulary(source: SourceDirectory, name: str, size: int) -> dict[str, int]:
    """Return the ids of the pieces; raises `ImportRefused` where they are not those of a network with `size` tokens."""
    content = source.json(name)
    if not all(type(token) is int for token in content.values()):
        raise ImportRefused(f"{name} does not map pieces to ids; {SAVED_AGAIN}")
    if missing := [piece for piece in ("<unk>", "</s>") if piece not in content]:
        raise ImportRefused(f"{name} lacks {' and '.join(missing)}; {SAVED_AGAIN}")
    ids = list(content.values())
    if len(set(ids)) != len(ids) or min(ids) < 0 or max(ids) >= size:
        raise ImportRefused(
            f"{name} has ids that are used twice or are not below vocab_size, which is {size}; {SAVED_AGAIN}"
        )
    return content


def _replaced(charsmap: bytes) -> Iterator[str]:
    """Yield the sequences of characters that a precompiled map replaces, from its trie."""
    if not charsmap:
        return
    (size,) = struct.unpack_from("<I", charsmap)
    units = np.frombuffer(charsmap, "<u4", count=size // 4, offset=4).astype(np.int64)
    offsets = units >> 10 << (units >> 6 & 8)
    pending, visited = [(int(offsets[0]), b"")], 0
    while pending:
        base, key = pending.pop()
        visited += 1
        if visited > _MOST_STEPS or len(key) > _LONGEST:
            raise ValueError("they have circles, or are far too many")
        places = base ^ np.arange(1, 256)
        places = places[places < len(units)]
        for place in places[(units[places] & 0x800000FF) == (places ^ base)].tolist():
            longer = key + bytes([place ^ base])
            if units[place] >> 8 & 1:
                yield longer.decode()
            pending.append((place ^ int(offsets[place]), longer))
