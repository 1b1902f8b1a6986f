"""SentencePiece models (Kudo and Richardson 2018): their files, and tokenizers of encoders that are made of them."""

from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import Unigram
from tokenizers.normalizers import NFC, Precompiled, Prepend, Replace, Sequence
from tokenizers.pre_tokenizers import Metaspace

__all__ = ["BPE", "NORMAL", "read_sentence_pieces", "unigram_tokenizer"]

NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
"""Types of pieces."""
_UNIGRAM, BPE = 1, 2
"""Types of models."""


def read_sentence_pieces(path: Path, *, plain: bool = False, merges: bool = False) -> Any:
    """Return the protocol buffer of a Unigram model, with `merges` also of byte-pair encoding.

    Raises `OSError` where it cannot be read, and `ValueError` for other files and for features that are not converted;
    `plain` models have no user-defined pieces and no byte fallback, and their texts one space between words. Needs the
    package sentencepiece.
    """
    from sentencepiece import sentencepiece_model_pb2

    content, proto = path.read_bytes(), vars(sentencepiece_model_pb2)["ModelProto"]()
    try:
        proto.ParseFromString(content)
    except Exception as error:  # protobuf's class of it depends on its implementation
        raise ValueError(f"{path.name} is no SentencePiece model: {error}") from error
    normalizer, trainer = proto.normalizer_spec, proto.trainer_spec
    types = {piece.type for piece in proto.pieces}
    reasons = {
        "no pieces": NORMAL not in types,
        "a model that is not Unigram": trainer.model_type not in ((_UNIGRAM, BPE) if merges else (_UNIGRAM,)),
        "user-defined pieces": plain and _USER_DEFINED in types,
        "byte fallback": plain and (_BYTE in types or trainer.byte_fallback),
        "spaces at the ends of pieces": trainer.treat_whitespace_as_suffix,
        "pieces across words": not trainer.split_by_whitespace,
        "normalization that keeps spaces": plain and not normalizer.remove_extra_whitespaces,
        "normalization without a space before the text": not normalizer.add_dummy_prefix,
        "normalization that does not escape spaces": not normalizer.escape_whitespaces,
        "a denormalizer": bool(proto.denormalizer_spec.precompiled_charsmap),
    }
    if found := [reason for reason, holds in reasons.items() if holds]:
        raise ValueError(f"{path.name} has {', '.join(found)}, which cannot be converted")
    return proto


def unigram_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer of an encoder whose ids are those of the pieces; raises as `read_sentence_pieces`.

    Control pieces, such as `[CLS]`, are special tokens. Texts are composed before the replacements of characters, which
    are those of grapheme clusters here (see `models.text.sentence_pieces`).
    """
    proto = read_sentence_pieces(path)
    pieces, trainer = [(piece.piece, piece.score) for piece in proto.pieces], proto.trainer_spec
    tokenizer = Tokenizer(Unigram(pieces, trainer.unk_id, byte_fallback=trainer.byte_fallback))
    steps: list[Any] = []
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        steps += [NFC(), Precompiled(charsmap)]
    if proto.normalizer_spec.remove_extra_whitespaces:
        steps += [Replace(Regex("^ +| +$"), ""), Replace(Regex(" {2,}"), " ")]
    tokenizer.normalizer = Sequence([*steps, Prepend(" ")])
    tokenizer.pre_tokenizer, tokenizer.decoder = Metaspace(prepend_scheme="never"), MetaspaceDecoder()
    tokenizer.add_special_tokens([piece.piece for piece in proto.pieces if piece.type in (_UNKNOWN, _CONTROL)])
    return tokenizer
