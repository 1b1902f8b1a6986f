"""Tests of the tokenization of causal language models, with vocabularies of several kinds."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from models.bundle.contract import SpecialTokens
from models.tasks.causal_tokenizer import CausalTokenizer

PIECES = ["<unk>", "</s>", "▁", "▁the", "▁house", "s", "é", "<mask>"]


def unigram() -> Tokenizer:
    """Return a Unigram model with the decoder and pre-tokenizer of SentencePiece's conversions."""
    tokenizer = Tokenizer(models.Unigram([(piece, -float(rank)) for rank, piece in enumerate(PIECES)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


def byte_level() -> Tokenizer:
    """Return a vocabulary of single bytes and one word, whose post-processor cuts spaces off the places."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate([*alphabet, "Ġa"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("Ġ", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


def test_pieces_and_their_places() -> None:
    tokenizer = CausalTokenizer(unigram(), SpecialTokens(unknown=0, end=1))
    ids, spans = tokenizer.split("the houses é中")
    assert [tokenizer.text(each) for each in ids] == [" the", " house", "s", " ", "é", "<unk>"]
    assert spans == [(0, 3), (3, 9), (9, 10), (10, 11), (11, 12), (12, 13)]
    assert [tokenizer.is_unknown(each) for each in ids] == [False] * 5 + [True]


def test_a_space_that_is_not_in_the_text_has_no_place() -> None:
    tokenizer = CausalTokenizer(unigram(), SpecialTokens(unknown=0, end=1))
    assert tokenizer.split("s") == ([2, 5], [(0, 0), (0, 1)])
    assert tokenizer.split("") == ([], [])


def test_added_tokens_that_are_text() -> None:
    pieces = unigram()
    pieces.add_tokens(["▁▁"])
    tokenizer = CausalTokenizer(pieces, SpecialTokens(unknown=0, end=1))
    assert tokenizer.text(pieces.token_to_id("▁▁")) == "  "
    letters = byte_level()
    letters.add_tokens(["né "])
    tokenizer = CausalTokenizer(letters, SpecialTokens(unknown=0, end=0))
    ids, spans = tokenizer.split("né b")
    assert ([tokenizer.text(each) for each in ids], spans) == (["né ", "b"], [(0, 3), (3, 4)])


def test_special_tokens_in_a_text_are_text() -> None:
    tokenizer = CausalTokenizer(unigram(), SpecialTokens(unknown=0, end=1))
    assert 1 not in tokenizer.encode("the</s>")
    end = byte_level().token_to_id("<|end|>")
    tokenizer = CausalTokenizer(byte_level(), SpecialTokens(unknown=end, end=end))
    text = "a<|end|>"
    assert "".join(map(tokenizer.text, tokenizer.encode(text))) == text
    assert end not in tokenizer.encode(text)
    assert tokenizer.text(end) == "<|end|>"
    assert tokenizer.text(10_000) == ""


def test_places_of_bytes_include_the_space() -> None:
    end = byte_level().token_to_id("<|end|>")
    tokenizer = CausalTokenizer(byte_level(), SpecialTokens(unknown=end, end=end))
    ids, spans = tokenizer.split("b aé")
    assert [tokenizer.text(each) for each in ids] == [
        "b",
        " a",
        "\N{REPLACEMENT CHARACTER}",
        "\N{REPLACEMENT CHARACTER}",
    ]
    assert spans == [(0, 1), (1, 3), (3, 4), (3, 4)]
    assert not any(map(tokenizer.is_unknown, ids))


def test_other_vocabularies_are_refused(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1}, unk_token="<unk>"))
    words.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="neither of bytes, nor do they spell spaces"):
        CausalTokenizer.from_file(tmp_path / "tokenizer.json", SpecialTokens(unknown=0, end=1))
    with pytest.raises(ValueError, match="the tokenizer's vocabulary lacks"):
        CausalTokenizer(unigram(), SpecialTokens(unknown=0, end=99))
