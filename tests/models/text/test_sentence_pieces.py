"""Tests of SentencePiece vocabularies, against that library."""

import base64
import json
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from models.text.sentence_pieces import CharacterMap, SentencePieceTokenizer

TEXTS = (
    "Das ist ein Haus.",
    "  zu   viele    Leerzeichen\tund\nZeilen ",
    "ﬁne ＡＢＣ ½ ㍿ ① … ‘’ “” — x² ™",
    "e\u0301 a\u030a 가\u1112\u1161 か\u3099 nai\u0308ve",
    "Это предложение. 今日は。 🙂👍🏽",
    "</s> <unk> >>fra<< ▁ ▁▁x",
    "",
    " ",
    "\u00a0\u200b\u3000",
    "3.456,78 %",
    "\ue000\U0001f9ff\U0001f9ff",
)


@pytest.fixture(scope="module")
def ours(marian_bundle: Path) -> SentencePieceTokenizer:
    size = json.loads((marian_bundle / "manifest.json").read_text(encoding="utf-8"))["config"]["vocab_size"]
    return SentencePieceTokenizer.from_files(marian_bundle / "tokenizer.json", marian_bundle / "characters.json", size)


@pytest.fixture(scope="module")
def theirs(marian_directory: Path) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(marian_directory / "source.spm"))


@pytest.fixture(scope="module")
def vocabulary(marian_directory: Path) -> dict[str, int]:
    content: dict[str, int] = json.loads((marian_directory / "vocab.json").read_text(encoding="utf-8"))
    return content


def expected(
    theirs: sentencepiece.SentencePieceProcessor, vocabulary: dict[str, int], texts: list[str]
) -> list[list[int]]:
    special = {"</s>", "<unk>", "<pad>"}
    return [
        [vocabulary["<unk>"] if piece in special else vocabulary.get(piece, vocabulary["<unk>"]) for piece in pieces]
        for pieces in theirs.encode(texts, out_type=str)
    ]


def test_tokens_are_those_of_the_library(
    ours: SentencePieceTokenizer, theirs: sentencepiece.SentencePieceProcessor, vocabulary: dict[str, int]
) -> None:
    for text in TEXTS:
        assert ours.encode_batch([text]) == expected(theirs, vocabulary, [text]), repr(text)
    assert ours.encode_batch(list(TEXTS)) == [ours.encode_batch([text])[0] for text in TEXTS]


@settings(max_examples=200)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
def test_so_are_those_of_any_text(
    text: str, ours: SentencePieceTokenizer, theirs: sentencepiece.SentencePieceProcessor, vocabulary: dict[str, int]
) -> None:
    assert ours.encode_batch([text]) == expected(theirs, vocabulary, [text])


def test_ids_become_the_text_again(ours: SentencePieceTokenizer) -> None:
    text = "Das ist ein Haus, wo wir wohnen."
    assert ours.decode_batch(ours.encode_batch([text])) == [text]
    assert ours.decode_batch([[], [ours.end_id, ours.unknown_id]]) == ["", ""], "special tokens are left out"


def test_special_tokens_are_never_the_result_of_a_text(
    ours: SentencePieceTokenizer, vocabulary: dict[str, int]
) -> None:
    (found,) = ours.encode_batch(["</s> <pad> </s>"])
    assert {vocabulary["</s>"], vocabulary["<pad>"]}.isdisjoint(found)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"charsmap": "", "alone": ""}',
        b'{"charsmap": "!", "alone": "", "following": ""}',
        b'{"charsmap": 3, "alone": "", "following": ""}',
        json.dumps({"charsmap": base64.b64encode(b"\xff\0\0\0abc").decode(), "alone": "a", "following": ""}).encode(),
    ],
)
def test_damaged_replacements_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "characters.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"characters\.json holds no replacements"):
        CharacterMap.from_file(path)


def test_without_replacements_texts_stay() -> None:
    assert CharacterMap(b"", "", "")("ﬁne ½") == "ﬁne ½"


def test_a_vocabulary_that_is_too_small_is_refused(marian_bundle: Path) -> None:
    with pytest.raises(ValueError, match="pieces, not 100000"):
        SentencePieceTokenizer.from_files(marian_bundle / "tokenizer.json", marian_bundle / "characters.json", 100_000)
    with pytest.raises(ValueError, match=r"manifest\.json is not a tokenizer file"):
        SentencePieceTokenizer.from_files(marian_bundle / "manifest.json", marian_bundle / "characters.json", 10)
