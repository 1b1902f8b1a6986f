"""Tests of tokenizers of SentencePiece models, compared with that library."""

import unicodedata
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from models.text.tokenization import EncoderTokenizer
from tests.fixtures.deberta import write_sentence_pieces
from training.data.sentence_pieces import read_sentence_pieces, unigram_tokenizer

TEXTS = [
    "Where is my parcel?",
    "",
    "\ta\n",
    "  two  spaces \t and\na tab ",
    "naïve Straße 🙂 漢字",
    unicodedata.normalize("NFD", "ﬁve Äpfel für Ầ: ½ 각 が"),
    "[MASK]qq q qq",
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"byte_fallback": True, "pieces": 420},
        {"user_defined_symbols": ["[MASK]", "qq"]},
        {"normalization_rule_name": "identity"},
        {"remove_extra_whitespaces": False},
    ],
)
def test_texts_have_the_ids_of_sentencepiece(options: dict[str, Any], tmp_path: Path) -> None:
    path = write_sentence_pieces(tmp_path / "spm.model", **options)
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenizer = EncoderTokenizer(unigram_tokenizer(path))
    assert tokenizer.vocab_size == reference.vocab_size()
    for text, ids in zip(TEXTS, tokenizer.encode_batch(TEXTS), strict=True):
        assert ids == [1, *reference.encode(text), 2], text
    assert tokenizer.decode_batch([tokenizer.encode(TEXTS[0])]) == [TEXTS[0]]


def test_special_tokens_are_no_text(tmp_path: Path) -> None:
    tokenizer = EncoderTokenizer(unigram_tokenizer(write_sentence_pieces(tmp_path / "spm.model")))
    assert {0, 1, 2}.isdisjoint(tokenizer.encode("[CLS] a [SEP] [PAD]"))


def test_the_tokenizer_stays_the_same_in_a_file(tmp_path: Path) -> None:
    tokenizer = EncoderTokenizer(
        unigram_tokenizer(write_sentence_pieces(tmp_path / "spm.model", byte_fallback=True, pieces=420))
    )
    tokenizer.save(tmp_path / "tokenizer.json")
    again = EncoderTokenizer.from_file(tmp_path / "tokenizer.json")
    assert again.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"model_type": "bpe"}, "a model that is not Unigram"),
        ({"treat_whitespace_as_suffix": True}, "spaces at the ends of pieces"),
        ({"split_by_whitespace": False}, "pieces across words"),
        ({"add_dummy_prefix": False}, "normalization without a space before the text"),
    ],
)
def test_what_is_not_converted_is_refused(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"spm.model has {reason}"):
        read_sentence_pieces(write_sentence_pieces(tmp_path / "spm.model", **options))


def test_plain_models_have_less(tmp_path: Path) -> None:
    path = write_sentence_pieces(tmp_path / "spm.model", byte_fallback=True, pieces=420)
    with pytest.raises(ValueError, match="byte fallback"):
        read_sentence_pieces(path, plain=True)
    with pytest.raises(FileNotFoundError):
        read_sentence_pieces(tmp_path / "missing.model")
    path.write_bytes(b"rubbish")
    with pytest.raises(ValueError, match=r"spm.model is no SentencePiece model"):
        read_sentence_pieces(path)
