"""Tests of source-target pairs."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from training.data.corpora import CORPORA
from training.data.corpus import Corpus, CorpusFile, read_jsonl
from training.data.settings import SplitFiles
from training.tasks.text_generation.reading import SourceTargets, read_source_targets
from training.tasks.text_generation.settings import GenerationSettings


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    entries = [
        {"id": 1, "body": ["One.", "Two."], "subject": ["a", "b"]},
        {"id": 2, "body": "Tab\there", "subject": "c"},
        {"id": 3, "body": "One. Two.", "subject": "d"},
    ]
    content = ("\n".join(map(json.dumps, entries)) + "\n").encode()
    (tmp_path / "mails").mkdir()
    (tmp_path / "mails" / "all.jsonl.gz").write_bytes(gzip.compress(content))
    file = CorpusFile(name="all.jsonl", checksums=(f"sha256:{hashlib.sha256(content).hexdigest()}",))
    corpus = Corpus(
        name="mails",
        folder="mails",
        description="",
        homepage="https://example.org",
        licence="CC0",
        release_allowed=True,
        columns=("source", "target"),
        splits={"train": file, "dev": file, "test": file},
        reader=read_jsonl("body", "subject"),
    )
    monkeypatch.setitem(CORPORA, "mails", corpus)
    return corpus


def test_equal_sources_are_one_text(corpus: Corpus, tmp_path: Path) -> None:
    found = read_source_targets(GenerationSettings(corpus=corpus.name), "dev", tmp_path)
    assert found == [SourceTargets("One. Two.", ("a", "b", "d")), SourceTargets("Tab\there", ("c",))]


def test_a_limit_counts_texts(corpus: Corpus, tmp_path: Path) -> None:
    assert len(read_source_targets(GenerationSettings(corpus=corpus.name, limit=1), "train", tmp_path)) == 1


def test_what_has_no_file_is_held_out_by_source(tmp_path: Path) -> None:
    lines = [f"source {index % 100}\ttarget {index}" for index in range(300)]
    (tmp_path / "own.tsv").write_text("\n".join(lines), encoding="utf-8")
    data = GenerationSettings(files=SplitFiles(train="own.tsv"))
    splits = {split: read_source_targets(data, split, tmp_path) for split in ("train", "dev", "test")}
    assert {split: len(texts) for split, texts in splits.items()} == {"train": 90, "dev": 5, "test": 5}
    assert all(len(text.targets) == 3 for texts in splits.values() for text in texts)


def test_a_corpus_of_other_columns_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'clinc150' has no source for each text: its columns are label, text"):
        read_source_targets(GenerationSettings(corpus="clinc150"), "train", tmp_path)
