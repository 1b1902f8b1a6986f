"""Tests of what sections and tables of entries have in common."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from training.data.corpus import Corpus
from training.settings import read_entries

ENTRY = """
letters:
  folder: letters
  description: Letters
  homepage: https://example.org
  licence: CC0
  release_allowed: true
  columns: [label, text]
  reader: tsv
  splits: {train: {name: train.tsv, checksums: ["sha256:00"]}}
"""


def test_entries_have_their_keys_as_names(tmp_path: Path) -> None:
    (tmp_path / "corpora.yaml").write_text(ENTRY)
    (corpus,) = read_entries(Corpus, tmp_path / "corpora.yaml").values()
    assert corpus.name == "letters"
    assert list(corpus.reader(iter(["a\tb"]))) == [("a", "b")]
    assert corpus.files("train")[0].name == "train.tsv"


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("licence: CC0", "license: CC0", "license"),
        ("  folder: letters\n", "", "folder"),
        ("reader: tsv", "reader: csv", "reader"),
        ('{name: train.tsv, checksums: ["sha256:00"]}', '{name: train.tsv, sha256: "00"}', "sha256"),
    ],
)
def test_wrong_fields_of_entries_are_refused(tmp_path: Path, old: str, new: str, named: str) -> None:
    (tmp_path / "corpora.yaml").write_text(ENTRY.replace(old, new))
    with pytest.raises(ValidationError, match=named):
        read_entries(Corpus, tmp_path / "corpora.yaml")
