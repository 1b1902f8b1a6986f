"""Tests of labelled texts: which labels, which split, which rubbish."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from training.data.corpora import CORPORA
from training.data.corpus import Corpus
from training.tasks.text_classification.reading import (
    LabelledText,
    TrainingTexts,
    label_ids,
    out_of_scope_texts,
    read_labelled,
)
from training.tasks.text_classification.settings import LabelledSettings


def _own(path: Path, lines: list[str], **fields: Any) -> LabelledSettings:
    (path / "texts.tsv").write_text("\n".join(lines), encoding="utf-8")
    files = {"train": "texts.tsv", "dev": "texts.tsv", "test": "texts.tsv"}
    return LabelledSettings.model_validate({"files": files, **fields})


def test_a_text_has_one_label_commas_and_all(tmp_path: Path) -> None:
    data = _own(tmp_path, ["a,b\tthis text", " c \t that one "])
    assert read_labelled(data, "train", tmp_path) == [
        LabelledText(("a,b",), "this text"),
        LabelledText(("c",), "that one"),
    ]


def test_a_text_has_several_labels_each_once(tmp_path: Path) -> None:
    data = _own(tmp_path, ["b, a,b\tthis", "c\tthat"], multi_label=True)
    texts = read_labelled(data, "train", tmp_path)
    assert [each.labels for each in texts] == [("b", "a"), ("c",)]
    assert {label for each in texts for label in each.labels} == {"a", "b", "c"}
    assert label_ids(texts, ["a", "b", "c"]) == [(1, 0), (2,)]


def test_a_limit_takes_texts_from_everywhere(tmp_path: Path) -> None:
    data = _own(tmp_path, [f"{label}\ttext {index}" for label in "abcd" for index in range(10)], limit=8)
    assert [each.labels for each in read_labelled(data, "train", tmp_path)] == [(x,) for x in "aabbccdd"]


def test_classes_without_a_training_text_come_last(tmp_path: Path) -> None:
    data = _own(tmp_path, ["d\tfirst", "a\tsecond", "c\tthird"])
    texts = read_labelled(data, "train", tmp_path)
    assert label_ids(texts, ["a", "b"], unseen=True) == [(3,), (0,), (2,)]
    with pytest.raises(ValueError, match="classes that the model does not have: c, d;"):
        label_ids(texts, ["a", "b"])


@pytest.mark.parametrize("label", ["a,", ",a", "a,,b"])
def test_an_empty_label_is_named(label: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of text 'this': one of them is empty"):
        read_labelled(_own(tmp_path, [f"{label}\tthis"], multi_label=True), "train", tmp_path)


def test_lines_that_are_no_labelled_texts_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 2: 1 column, not label<TAB>text"):
        read_labelled(_own(tmp_path, ["a\tthis", "that"]), "train", tmp_path)


def test_texts_are_held_out_where_there_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "texts.tsv").write_text("".join(f"a\ttext {index}\n" for index in range(100)), encoding="utf-8")
    data = LabelledSettings.model_validate({"files": {"train": "texts.tsv"}})
    splits = {split: {each.text for each in read_labelled(data, split, tmp_path)} for split in ("train", "dev", "test")}
    assert {split: len(texts) for split, texts in splits.items()} == {"train": 90, "dev": 5, "test": 5}
    assert len(set().union(*splits.values())) == 100


def test_a_corpus_without_a_development_set_has_one_held_out(
    errands_corpus: Corpus, tiny_data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = {split: file for split, file in errands_corpus.splits.items() if split != "dev"}
    monkeypatch.setitem(CORPORA, "errands", dataclasses.replace(errands_corpus, splits=fewer))
    data = LabelledSettings(corpus="errands")
    train, dev, test = (read_labelled(data, split, tiny_data_dir) for split in ("train", "dev", "test"))
    assert len(train) + len(dev) == 800
    assert 30 <= len(dev) <= 45
    assert not {each.text for each in train} & {each.text for each in dev}
    assert len(test) == 60


def test_texts_of_no_class(errands_corpus: Corpus, tiny_data_dir: Path) -> None:
    plain = LabelledSettings(corpus=errands_corpus.name)
    assert len(out_of_scope_texts(plain, "test", tiny_data_dir)) == 20
    assert all("oos" not in each.labels for each in read_labelled(plain, "train", tiny_data_dir))
    data = LabelledSettings(corpus="errands", out_of_scope=True)
    trained = TrainingTexts(data, tiny_data_dir, 1).epoch(0)
    assert sum(each.labels == ("oos",) for each in trained) == 30


def test_own_files_label_texts_of_no_class(tmp_path: Path) -> None:
    lines = ["a\tthis", "oos\tgibberish", "b\tthat", "oos\tnonsense"]
    plain, data = _own(tmp_path, lines), _own(tmp_path, lines, out_of_scope=True)
    for split in ("train", "dev", "test"):
        assert out_of_scope_texts(data, split, tmp_path) == ["gibberish", "nonsense"]
        assert [each.text for each in read_labelled(data, split, tmp_path)] == ["this", "that"]
        assert out_of_scope_texts(plain, split, tmp_path) == []
        assert len(read_labelled(plain, split, tmp_path)) == 4
    texts = TrainingTexts(data, tmp_path, seed=1).epoch(1)
    assert [each.labels for each in texts] == [("a",), ("b",), ("oos",), ("oos",)]


def test_texts_of_no_class_are_needed_where_they_are_trained_on(tmp_path: Path) -> None:
    data = _own(tmp_path, ["a\tthis"], out_of_scope=True)
    for split in ("train", "dev"):
        with pytest.raises(ValueError, match=rf"has no texts of no class \(oos\) in {split}"):
            out_of_scope_texts(data, split, tmp_path)
    assert out_of_scope_texts(data, "test", tmp_path) == []


def test_a_corpus_without_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="corpus 'ptb' has no label for each text: its columns are text"):
        read_labelled(LabelledSettings(corpus="ptb"), "train", tmp_path)


def test_unknown_labels_are_named() -> None:
    with pytest.raises(ValueError, match="classes that the model does not have: b, c"):
        label_ids([LabelledText(("c",), ""), LabelledText(("a", "b"), "")], ["a"])
