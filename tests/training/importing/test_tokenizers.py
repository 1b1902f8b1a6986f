"""Tests of tokenizers of imported encoders."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, processors

from tests.training.importing.conftest import Source
from training.importing.errors import ImportRefused
from training.importing.source import open_source
from training.importing.tokenizers import encoder_tokenizer, read_tokenizer, reference_tokenizer


def test_a_vocabulary_of_word_pieces_is_enough(source: Source) -> None:
    directory = source()
    vocabulary = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    expected = reference_tokenizer(open_source(str(directory)))("Where is it?")["input_ids"]
    (directory / "tokenizer.json").unlink()
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}', encoding="utf-8")
    (directory / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)), encoding="utf-8")
    opened = open_source(str(directory))
    tokenizer, special = encoder_tokenizer(reference_tokenizer(opened).backend_tokenizer)
    assert tokenizer.encode_batch(["Where is it?"]) == [expected]
    assert (special.start, special.end) == (vocabulary["[CLS]"], vocabulary["[SEP]"])
    assert "vocab.txt" in opened.checksums()


def test_a_directory_without_tokenizer(source: Source) -> None:
    directory = source()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (directory / name).unlink()
    with pytest.raises(ImportRefused, match=r"has no tokenizer.json, and no other vocabulary such as vocab.txt"):
        reference_tokenizer(open_source(str(directory)))


def test_code_of_a_directory_is_not_run(source: Source, tmp_path: Path) -> None:
    directory = source()
    code = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
    (directory / "own.py").write_text(code, encoding="utf-8")
    config = {"auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ImportRefused, match="names code of the directory for its tokenizer, which is not run"):
        reference_tokenizer(open_source(str(directory)))
    assert not (directory / "ran").exists()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"model": {"type": "WordPiece"}}'])
def test_files_that_are_no_tokenizer(content: str, source: Source) -> None:
    directory = source()
    (directory / "tokenizer.json").write_text(content, encoding="utf-8")
    opened = open_source(str(directory))
    with pytest.raises(ImportRefused, match="tokenizer"):
        read_tokenizer(opened)
    with pytest.raises(ImportRefused, match=r"cannot be read|cannot convert"):
        reference_tokenizer(opened)


@pytest.mark.parametrize("template", ["$A", "$A b", "b $A", "b b $A b"])
def test_one_token_stands_before_a_text_and_one_after(template: str) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("b", 1)])
    with pytest.raises(ImportRefused, match="must put one token before and one after a text"):
        encoder_tokenizer(tokenizer)


def test_a_vocabulary_without_an_unknown_token() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "c": 2}, []))
    tokenizer.post_processor = processors.TemplateProcessing(single="b $A c", special_tokens=[("b", 1), ("c", 2)])
    found, special = encoder_tokenizer(tokenizer)
    assert (special.start, special.end, special.unknown) == (1, 2, 2)
    assert found.encode_batch(["a", "zz"]) == [[1, 0, 2], [1, 2]]
