"""Tests of tagged sentences as files hold them."""

import json
from pathlib import Path

import pytest

from training.data.settings import SplitFiles
from training.data.tokenization import build_encoder_tokenizer
from training.tasks.token_classification.reading import (
    TaggedSentence,
    encoded_sentences,
    read_sentences,
    read_tagged,
)
from training.tasks.token_classification.settings import Scheme, TaggedSettings


def _read(path: Path, content: str, scheme: Scheme = "iob2", **columns: str) -> list[TaggedSentence]:
    path.write_text(content, encoding="utf-8")
    return read_sentences(path, SplitFiles(train=str(path), columns=columns), scheme)


def test_columns_of_tokens_and_tags(tmp_path: Path) -> None:
    found = _read(
        tmp_path / "tags.tsv",
        "-DOCSTART-\tO\n\n# sentence 1\nAda\tB-PER\nLovelace\tI-PER\nwrote\tO\n\n\n#\tO\nBonn\tB-LOC\n",
    )
    assert found == [
        TaggedSentence(("Ada", "Lovelace", "wrote"), ("B-PER", "I-PER", "O")),
        TaggedSentence(("#", "Bonn"), ("O", "B-LOC")),
    ]
    assert (found[0].text, found[0].types) == ("Ada Lovelace wrote", ("PER",))


def test_of_several_columns_the_first_and_the_last_are_read_or_those_that_are_named(tmp_path: Path) -> None:
    content = "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n"
    assert _read(tmp_path / "tags.conll", content) == [TaggedSentence(("EU", "rejects"), ("B-ORG", "O"))]
    assert _read(tmp_path / "tags.conll", content, "any", tags="2")[0].tags == ("NNP", "VBZ")
    with pytest.raises(ValueError, match=r"columns\.tags: 'ner' is not the number of a column"):
        _read(tmp_path / "tags.conll", content, tags="ner")
    with pytest.raises(ValueError, match="line 1: 4 columns, not a token and its tag"):
        _read(tmp_path / "tags.conll", content, tags="5")


def test_json_lines(tmp_path: Path) -> None:
    lines = [{"tokens": ["in", "New York"], "tags": ["O", "B-LOC"]}, {"tokens": [], "tags": []}]
    path = tmp_path / "tags.jsonl"
    expected = [TaggedSentence(("in", "New York"), ("O", "B-LOC"))]
    assert _read(path, "\n".join(map(json.dumps, lines))) == expected
    other = json.dumps({"words": ["in", "New York"], "ner": ["O", "B-LOC"]})
    assert _read(path, other, tokens="words", tags="ner") == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "a\tO\nb\tI-PER\n", r"a\.tsv, line 2: the tag 'I-PER' is after 'O': in IOB2"),
        ("a.tsv", "a\tB-LOC\n\nb\tI-LOC\n", r"a\.tsv, line 3: the tag 'I-LOC' is after 'O'"),
        ("a.tsv", "a\tB-LOC\nb\tI-PER\n", r"a\.tsv, line 2: the tag 'I-PER' is after 'B-LOC'"),
        ("a.tsv", "a\tO\nb\tNN\n", r"a\.tsv, line 2: the tag 'NN' is neither O nor B-TYPE"),
        ("a.tsv", "a\tO\nb\n", r"a\.tsv, line 2: 1 column, not a token and its tag"),
        ("a.tsv", "a\tO\nb\t\n", r"a\.tsv, line 2: the tag is empty"),
        ("a.tsv", "# nothing\n", r"a\.tsv has no sentences"),
        ("a.jsonl", '{"tokens": ["a"], "tags": []}', r"a\.jsonl, line 1: 1 tokens, but 0 tags"),
        ("a.jsonl", '{"tokens": ["a"], "tags": [3]}', r"line 1: 'tags' is not a list of strings"),
        ("a.jsonl", '{"text": "a"}', r"line 1: it is no object with a list 'tokens'"),
        ("a.jsonl", '{"tokens": ["a", " "], "tags": ["O", "O"]}', r"line 1: the token at place 1 is empty"),
        ("a.jsonl", "tokens", r"line 1: it is not JSON"),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["I-X"]}', r"line 1: the tag 'I-X' is after 'O'"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _read(tmp_path / name, content)


def test_other_schemes_are_read_where_the_recipe_says_so(tmp_path: Path) -> None:
    assert _read(tmp_path / "a.tsv", "a\tNN\nb\tI-PER\n", "any")[0].tags == ("NN", "I-PER")


def test_splits_without_a_file_are_held_out_and_keep_the_last_sentence_of_a_type(tmp_path: Path) -> None:
    sentences = [f"word{number}\t{'B-RARE' if number == 7 else 'B-USUAL'}\n" for number in range(60)]
    (tmp_path / "tags.tsv").write_text("\n".join(sentences), encoding="utf-8")
    data = TaggedSettings.model_validate({"files": {"train": "tags.tsv"}})
    splits = {split: read_tagged(data, split, tmp_path) for split in ("train", "dev", "test")}
    assert {split: len(found) for split, found in splits.items()} == {"train": 54, "dev": 3, "test": 3}
    assert len({each.text for found in splits.values() for each in found}) == 60
    assert any("RARE" in each.types for each in splits["train"])


def test_the_first_token_of_each_word() -> None:
    tokenizer = build_encoder_tokenizer(["abc abd xyz ."] * 3, vocab_size=20)
    words = ("abc", "xyxyz.", "\u200b", ".")
    (found,) = encoded_sentences([TaggedSentence(words, ("O",) * 4)], tokenizer, 64)
    ids, spans = tokenizer.encode_with_spans([" ".join(words)])[0]
    assert found.tokens == tokenizer.framed(ids)
    starts = [None if place is None else spans[place - 1][0] for place in found.firsts]
    assert starts[:2] == [0, 4]
    assert starts[3] == len("abc xyxyz. \u200b ")
    assert spans[found.firsts[3] - 1] == (13, 14)  # type: ignore[operator]


def test_words_after_the_longest_text_have_no_token() -> None:
    tokenizer = build_encoder_tokenizer(["aa bb cc"] * 3, vocab_size=20)
    words = ("aa", "bb", "cc") * 5
    (found,) = encoded_sentences([TaggedSentence(words, ("O",) * 15)], tokenizer, 8)
    assert len(found.tokens) == 8
    known = [place for place in found.firsts if place is not None]
    assert known == sorted(set(known))
    assert found.firsts[-1] is None
