"""Tests of building vocabularies: words, which of them are kept, in which order; byte-pair encoding."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import NativeError
from models.text.tokenization import END, UNKNOWN, SubwordTokenizer, WordTokenizer
from training.data.tokenization import (
    WordStyle,
    build_encoder_tokenizer,
    build_subword_tokenizer,
    build_word_tokenizer,
    read_encoder_tokenizer,
)


def _words(text: str, style: WordStyle = "words", *, lowercase: bool = True) -> list[str]:
    """The words of a text, as a vocabulary built from it spells them."""
    tokenizer = build_word_tokenizer([text], style=style, lowercase=lowercase)
    return [tokenizer.word(token) for token in tokenizer.encode(text)]


def _vocabulary(tokenizer: WordTokenizer | SubwordTokenizer) -> list[str]:
    return [tokenizer.word(token) for token in range(tokenizer.vocab_size)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello World", ["hello", "world"]),
        ("I don't know.", ["i", "don't", "know", "."]),
        ("It’s Tom’s", ["it's", "tom's"]),
        ("Wait, what?!", ["wait", ",", "what", "?", "!"]),
        ("'quoted' \"words\"", ["'", "quoted", "'", '"', "words", '"']),
        ("3.14 is 1,000", ["3.14", "is", "1", ",", "000"]),
        ("well-known", ["well", "-", "known"]),
        ("à la Škoda", ["à", "la", "škoda"]),
        ("cafe\N{COMBINING ACUTE ACCENT}", ["café"]),
        ("a\tb\n c\N{NO-BREAK SPACE}d", ["a", "b", "c", "d"]),
        ("", []),
        (" \t", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert _words(text) == expected


def test_whitespace_style_splits_at_white_space_only() -> None:
    assert _words("the N million <unk> , don't U.S.", "whitespace") == [
        *("the", "n", "million", UNKNOWN, ",", "don't", "u.s.")
    ]


def test_case_is_kept_where_asked_for() -> None:
    assert _words("The the", lowercase=False) == ["The", "the"]


def test_vocabulary_is_ordered_by_count_then_alphabet() -> None:
    """Counts: b 3, c 2, a 1, d 1."""
    tokenizer = build_word_tokenizer(["d b c", "b c", "a b"])
    assert _vocabulary(tokenizer) == [UNKNOWN, END, "b", "c", "a", "d"]
    assert (tokenizer.unknown_id, tokenizer.end_id, tokenizer.vocab_size) == (0, 1, 6)


def test_min_count_keeps_words_seen_as_often() -> None:
    tokenizer = build_word_tokenizer(["a A b", "a b c"], min_count=2)
    assert _vocabulary(tokenizer) == [UNKNOWN, END, "a", "b"]
    assert tokenizer.encode("a c b") == [2, 0, 3]


@given(st.lists(st.text("ab'. ’", max_size=9), max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_texts_does_not_matter(texts: list[str], random: object) -> None:
    shuffled = sorted(texts, key=lambda text: random.random())  # type: ignore[attr-defined]
    assert _vocabulary(build_word_tokenizer(texts)) == _vocabulary(build_word_tokenizer(shuffled))


def test_a_spelt_out_sentence_end_is_an_unknown_word() -> None:
    tokenizer = build_word_tokenizer(["a </s> b </s>"], style="whitespace")
    assert _vocabulary(tokenizer) == [UNKNOWN, END, "a", "b"]
    assert tokenizer.encode("a </s> b") == [2, tokenizer.unknown_id, 3]
    assert tokenizer.encode_batch(["a </s> b"]) == [[2, tokenizer.unknown_id, 3]]
    assert tokenizer.split("a </s> b") == ([2, tokenizer.unknown_id, 3], ["a", "</s>", "b"])


def test_unknown_in_the_text_is_the_unknown_word() -> None:
    tokenizer = build_word_tokenizer(["a <unk> b <UNK>"], style="whitespace")
    assert _vocabulary(tokenizer) == [UNKNOWN, END, "a", "b"]
    assert tokenizer.encode("<unk> a never-seen") == [0, 2, 0]


def test_special_spellings_fall_apart_in_plain_text() -> None:
    tokenizer = build_word_tokenizer(["</s> <unk>"])
    assert tokenizer.end_id not in tokenizer.encode("</s>")
    assert [tokenizer.word(token) for token in tokenizer.encode("</s>")] == ["<", "/", "s", ">"]


@pytest.mark.parametrize("style", ["words", "whitespace"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_a_file_keeps_everything(style: WordStyle, lowercase: bool, tmp_path: Path) -> None:
    text = "The cat’s  tail isn't LONG, is it? cafe\N{COMBINING ACUTE ACCENT} </s> <unk>"
    tokenizer = build_word_tokenizer([text, "the end"], style=style, lowercase=lowercase)
    tokenizer.save(tmp_path / "tokenizer.json")
    read = WordTokenizer.from_file(tmp_path / "tokenizer.json")
    assert _vocabulary(read) == _vocabulary(tokenizer)
    for other in (text, "The cat never SEEN"):
        assert read.split(other) == tokenizer.split(other)


def test_the_same_text_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("one", "other"):
        build_word_tokenizer(["some words, some more", "more yet"]).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@given(st.text(max_size=40))
def test_no_text_gives_a_sentence_end(text: str) -> None:
    tokenizer = build_word_tokenizer([text, "</s> a"], style="whitespace")
    ids = tokenizer.encode(text)
    assert tokenizer.end_id not in ids
    assert ids == tokenizer.encode_batch([text])[0] == tokenizer.split(text)[0]


# ---- byte-pair encoding -----------------------------------------------------------------------------------

SUBWORDS = build_subword_tokenizer(["low lower lowest", "new newer newest"] * 9, vocab_size=290)


def test_subwords_are_bytes_specials_and_merges() -> None:
    vocabulary = _vocabulary(SUBWORDS)
    assert vocabulary[:2] == [UNKNOWN, END]
    assert all(len(word) == 1 for word in vocabulary[2:258])
    assert len(set(vocabulary)) == SUBWORDS.vocab_size <= 290
    assert {"Ġlow", "Ġnew", "er", "est"} & set(vocabulary[258:])


def test_frequent_words_are_one_token_and_others_are_pieces() -> None:
    low, lowly = SUBWORDS.encode_batch(["low", "lowly"])
    assert [SUBWORDS.word(token) for token in low] == ["Ġlow"]
    assert [SUBWORDS.word(token) for token in lowly] == ["Ġlow", "l", "y"]


def test_the_first_word_is_a_word_like_any_other() -> None:
    first, second = SUBWORDS.encode_batch(["new low", "low new"])
    assert sorted(first) == sorted(second)


@given(st.text(max_size=30))
def test_any_text_comes_back(text: str) -> None:
    """NFC, and without spaces at its ends."""
    (ids,) = SUBWORDS.encode_batch([text])
    assert SUBWORDS.unknown_id not in ids
    assert SUBWORDS.end_id not in ids
    assert SUBWORDS.decode_batch([ids]) == [unicodedata.normalize("NFC", text).strip(" ")]


@pytest.mark.parametrize(
    "text",
    [
        "Grüße aus Łódź",
        "👩‍👩‍👧‍👦 🇩🇪 👍🏽",
        "a\x00b\x07\x1b[31m\x7f",
        "two  spaces\tand\na line",
        "語言 язык שפה",
        "</s>",
        "<unk> and </s> are text",
        "Ġ is no space",
        "\N{REPLACEMENT CHARACTER} \U0010ffff",
        "",
    ],
)
def test_strange_texts_come_back(text: str) -> None:
    (ids,) = SUBWORDS.encode_batch([text])
    assert not {SUBWORDS.unknown_id, SUBWORDS.end_id} & set(ids)
    assert SUBWORDS.decode_batch([ids]) == [text]


def test_special_spellings_in_the_training_text_are_text() -> None:
    tokenizer = build_subword_tokenizer(["</s> <unk>"] * 20, vocab_size=280)
    (ids,) = tokenizer.encode_batch(["a</s>b <unk>"])
    assert not {tokenizer.unknown_id, tokenizer.end_id} & set(ids)
    assert tokenizer.decode_batch([ids]) == ["a</s>b <unk>"]


def test_ends_are_not_decoded_and_half_a_character_is_replaced() -> None:
    (ids,) = SUBWORDS.encode_batch(["low é"])
    assert SUBWORDS.decode_batch([[*ids, SUBWORDS.end_id], ids[:-1]]) == ["low é", "low \N{REPLACEMENT CHARACTER}"]


def test_a_subword_file_keeps_everything(tmp_path: Path) -> None:
    SUBWORDS.save(tmp_path / "tokenizer.json")
    read = SubwordTokenizer.from_file(tmp_path / "tokenizer.json")
    assert _vocabulary(read) == _vocabulary(SUBWORDS)
    texts = ["the lowest", "</s> <unk>", "cafe\N{COMBINING ACUTE ACCENT}"]
    assert read.encode_batch(texts) == SUBWORDS.encode_batch(texts)


def test_the_same_text_gives_the_same_subwords(tmp_path: Path) -> None:
    texts = ["some words, some more", "more yet, wörds"] * 5
    for name in ("one", "other"):
        build_subword_tokenizer(texts, vocab_size=300).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.parametrize("vocab_size", [0, 257])
def test_a_vocabulary_without_room_for_the_bytes_is_refused(vocab_size: int) -> None:
    with pytest.raises(ValueError, match=f"vocab_size must be at least 258, not {vocab_size}"):
        build_subword_tokenizer(["a"], vocab_size=vocab_size)


def test_the_smallest_vocabulary_is_the_bytes() -> None:
    tokenizer = build_subword_tokenizer(["low low low"], vocab_size=258)
    assert tokenizer.vocab_size == 258
    assert tokenizer.decode_batch(tokenizer.encode_batch(["löw"])) == ["löw"]


@pytest.mark.parametrize("mask", [False, True])
def test_an_encoder_has_a_mask_token_where_asked_for(mask: bool) -> None:
    tokenizer = build_encoder_tokenizer(["a b"], vocab_size=99, mask=mask)
    assert tokenizer.mask_id == (4 if mask else None)
    assert [tokenizer.word(token) for token in range(4)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def test_a_tokenizer_that_panics_is_an_error(tmp_path: Path) -> None:
    tokenizer = build_encoder_tokenizer(["a text"], vocab_size=40)
    tokenizer.save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    start: dict[str, Any] = {"SpecialToken": {"id": "missing", "type_id": 0}}
    parts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    content["model"]["unk_token"] = content["added_tokens"][1]["content"] = "<unk>"
    content["model"]["vocab"]["<unk>"] = content["model"]["vocab"].pop("[UNK]")
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [start, parts[0]],
        "pair": parts,
        "special_tokens": {},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(NativeError, match="the tokenizer failed: PanicException"):
        read_encoder_tokenizer(tmp_path / "tokenizer.json")
