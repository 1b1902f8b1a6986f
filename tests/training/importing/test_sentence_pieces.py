"""Tests of the conversion of SentencePiece models."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.marian_directory import SENTENCES, sentence_piece_model
from training.importing.errors import ImportRefused
from training.importing.sentence_pieces import SentencePieceModel, is_language


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Callable[[Any], None]], Path]:
    """Return a function that writes a model after a change."""

    def save(change: Callable[[Any], None]) -> Path:
        model = sentence_piece_model(SENTENCES)
        change(model)
        (tmp_path / "source.spm").write_bytes(model.SerializeToString())
        return tmp_path / "source.spm"

    return save


def _fields(**values: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        for path, value in values.items():
            section, field = path.split("__")
            setattr(getattr(model, section), field, value)

    return change


def _piece_of_type(kind: int) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        model.pieces[10].type = kind

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_fields(trainer_spec__model_type=2), "a model that is not Unigram"),
        (_fields(trainer_spec__byte_fallback=True), "byte fallback"),
        (_fields(trainer_spec__treat_whitespace_as_suffix=True), "spaces at the ends of pieces"),
        (_fields(normalizer_spec__remove_extra_whitespaces=False), "normalization that keeps spaces"),
        (_fields(normalizer_spec__add_dummy_prefix=False), "normalization without a space before the text"),
        (_fields(normalizer_spec__escape_whitespaces=False), "normalization that does not escape spaces"),
        (_fields(denormalizer_spec__precompiled_charsmap=b"x"), "a denormalizer"),
        (_piece_of_type(4), "user-defined pieces"),
        (_piece_of_type(6), "byte fallback"),
    ],
)
def test_what_is_not_converted_exactly_is_refused(
    change: Callable[[Any], None], reason: str, saved: Callable[..., Path]
) -> None:
    with pytest.raises(ImportRefused, match=f"source.spm has {reason}, which cannot be converted"):
        SentencePieceModel.read(saved(change))


CIRCLE = struct.pack("<257I", 1024, *(place << 10 | place for place in range(256)))
"""A trie in which every step leads back to the root."""


@pytest.mark.parametrize("charsmap", [b"\1", b"\xff\xff\xff\xffabcd", CIRCLE + b"a\0"])
def test_damaged_replacements_are_refused(charsmap: bytes, saved: Callable[..., Path]) -> None:
    model = SentencePieceModel.read(saved(_fields(normalizer_spec__precompiled_charsmap=charsmap)))
    with pytest.raises(ImportRefused, match="the replacements of characters are damaged"):
        model.characters()


def test_replacements_are_found(saved: Callable[..., Path]) -> None:
    found = SentencePieceModel.read(saved(lambda model: None)).characters()
    assert {"ﬁ", "½", "Ａ", "\t"} <= set(found["alone"])
    assert "\u0301" in found["following"], "the second character of a sequence"
    assert "a" not in found["alone"]


@pytest.mark.parametrize(
    ("piece", "expected"), [(">>fra<<", True), (">>srp_Cyrl<<", True), ("fra", False), (">>", False)]
)
def test_tokens_of_languages(piece: str, expected: bool) -> None:
    assert is_language(piece) is expected
