"""Tests of the formats of a user's own files: each gives the same records to every task."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from training.data.own_files import LABELLED, PAIRS, Columns, read_pairs, read_split
from training.data.own_texts import read_lines
from training.data.settings import SplitFiles

ROWS = [("Lob", "sehr gut"), ("Kritik", "zu spät; schade")]
TMX = """<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx version="1.4"><body>
<tu><tuv xml:lang="DE"><seg>ja</seg></tuv><tuv xml:lang="en"><seg>yes</seg></tuv></tu>
<tu><tuv xml:lang="DE"><seg>ein <bpt i="1">&lt;b&gt;</bpt><hi>Haus</hi></seg></tuv><tuv xml:lang="en"><seg>a house</seg>
</tuv></tu></body></tmx>"""


def _read(path: Path, content: str | bytes, kind: Columns = LABELLED, **fields: Any) -> list[tuple[str, str]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_pairs(path, kind, SplitFiles.model_validate({"train": path.name, **fields}))


@pytest.mark.parametrize(
    ("name", "content", "fields"),
    [
        ("a.tsv", "label\ttext\nLob\tsehr gut\nKritik\tzu spät; schade\n", {}),
        ("a.tsv", "id\tBody\tKind\n1\tsehr gut\tLob\n2\tzu spät; schade\tKritik\n",
         {"columns": {"text": "body", "label": "kind"}}),
        ("a.tsv", "sehr gut\tLob\nzu spät; schade\tKritik\n", {"header": False, "columns": {"text": 1, "label": 2}}),
        ("a.csv", '1;Lob;sehr gut\n2;Kritik;"zu spät; schade"\n',
         {"header": False, "columns": {"label": 2, "text": 3}}),
        ("a.csv", 'Lob;sehr gut\nKritik;"zu spät; schade"\n', {"header": False}),
        ("a.jsonl", '{"label": "Lob", "text": "sehr gut"}\n\n{"text": "zu spät;\\nschade", "label": "Kritik"}\n', {}),
        ("a.jsonl", '{"a": {"b": "sehr gut"}, "t": ["Lob"]}\n{"t": ["Kritik"], "a": {"b": "zu spät; schade"}}\n',
         {"columns": {"text": "a.b", "label": "t"}}),
    ],
    ids=["header", "named", "numbered", "numbered csv", "csv without header", "json", "nested json"],
)  # fmt: skip
@pytest.mark.parametrize("compressed", [False, True])
def test_records_of_text_formats(
    name: str, content: str, fields: dict[str, Any], compressed: bool, tmp_path: Path
) -> None:
    if compressed:
        assert _read(tmp_path / f"{name}.gz", gzip.compress(content.encode()), **fields) == ROWS
    else:
        assert _read(tmp_path / name, content, **fields) == ROWS


def test_several_labels_of_an_object_are_separated_by_commas(tmp_path: Path) -> None:
    assert _read(tmp_path / "a.jsonl", '{"label": ["a", "b"], "text": "x"}') == [("a, b", "x")]


def test_records_of_parquet(tmp_path: Path) -> None:
    features = {"features": {"label": {"names": ["Lob", "Kritik"], "_type": "ClassLabel"}}}
    table = pyarrow.table({"label": [0, 1], "text": [text for _, text in ROWS]})
    parquet.write_table(
        table.replace_schema_metadata({"huggingface": json.dumps({"info": features})}), tmp_path / "a.parquet"
    )
    assert read_pairs(tmp_path / "a.parquet", LABELLED) == ROWS


def test_records_of_a_directory_of_datasets(tmp_path: Path) -> None:
    directory = tmp_path / "saved" / "train"
    directory.mkdir(parents=True)
    table = pyarrow.table({"translation": [{"de": "ja", "en": "yes"}, {"de": "nein", "en": "no"}]})
    with pyarrow.OSFile(str(directory / "part.arrow"), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    (directory / "state.json").write_text(json.dumps({"_data_files": [{"filename": "part.arrow"}]}))
    (tmp_path / "saved" / "dataset_dict.json").write_text(json.dumps({"splits": ["train"]}))
    files = SplitFiles(train="x", columns={"source": "translation.de", "target": "translation.en"})
    assert read_pairs(directory, PAIRS, files) == [("ja", "yes"), ("nein", "no")]
    with pytest.raises(ValueError, match=r"has the splits train; name one of them"):
        read_pairs(tmp_path / "saved", PAIRS, files)


def test_records_of_a_folder_of_texts_by_class(tmp_path: Path) -> None:
    for label, text in ROWS:
        (tmp_path / "mails" / label).mkdir(parents=True)
        (tmp_path / "mails" / label / "1.txt").write_text(text.replace(" ", "\n"), encoding="utf-8")
    assert sorted(read_pairs(tmp_path / "mails", LABELLED)) == sorted(ROWS)
    with pytest.raises(ValueError, match="has no texts: a folder for each class"):
        read_pairs(tmp_path / "mails" / "Lob", LABELLED)


def test_records_of_translation_memories(tmp_path: Path) -> None:
    found = _read(tmp_path / "a.tmx", TMX, PAIRS, columns={"source": "de", "target": "en"})
    assert found == [("ja", "yes"), ("ein Haus", "a house")]
    unit = "<trans-unit><source>{}</source><target>{}</target></trans-unit>"
    xliff = (
        f'<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2">{unit.format("ja", "yes")}{unit.format("x", "")}</xliff>'
    )
    assert _read(tmp_path / "a.xlf", xliff, PAIRS) == [("ja", "yes")]


@pytest.mark.parametrize("content", ['<!DOCTYPE a [<!ENTITY b "c">]><tmx/>', "<tmx>"])
def test_unsafe_and_broken_documents_are_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.tmx (declares entities|is not XML)"):
        _read(tmp_path / "a.tmx", content, PAIRS)


def test_records_of_two_parallel_files(tmp_path: Path) -> None:
    numbers = range(20)
    (tmp_path / "a.de").write_text("".join(f"Satz {n}\n" for n in numbers), encoding="utf-8")
    (tmp_path / "a.en").write_text("".join(f"sentence {n}\n" if n != 3 else "\n" for n in numbers), encoding="utf-8")
    files = SplitFiles.model_validate({"train": {"source": "a.de", "target": "a.en"}})
    splits = [read_split(files, split, tmp_path) for split in ("train", "dev", "test")]
    assert sorted(pair for pairs in splits for pair in pairs) == sorted(
        (f"Satz {n}", f"sentence {n}") for n in numbers if n != 3
    )
    with pytest.raises(ValueError, match="are two parallel files; only pairs"):
        read_split(files, "train", tmp_path, LABELLED)
    (tmp_path / "a.en").write_text("one\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.de has 20 lines and .*a\.en 1: lines of the same number must be a pair"):
        read_split(files, "train", tmp_path)


def test_texts_of_language_models_have_a_format_too(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "one"}\n{"body": "two"}\n')
    files = SplitFiles(train="a.jsonl", dev="a.jsonl", test="a.jsonl", columns={"text": "body"})
    assert read_lines(files, "train", tmp_path) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "columns", "said"),
    [
        ("a.csv", "id,channel,body\n1,a,b\n", {"label": "chanel", "text": "body"},
         "has no column 'chanel', but id, channel, body; data.files.columns.label names it, perhaps channel"),
        ("a.csv", "id,channel,body\n1,a,b\n", {},
         "has no column 'label', but id, channel, body; data.files.columns says which of them is the label"),
        ("a.jsonl", '{"kind": "a", "body": "b"}', {"label": "kind"},
         "a.jsonl has no column 'text', but kind, body; data.files.columns says which of them is the text"),
        ("a.jsonl", '{"label": "a"}\n[1]\n', {}, "a.jsonl, line 2: it is not a JSON object"),
        ("a.jsonl", '{"label": "a"}\n{"text"\n', {}, "a.jsonl, line 2: it is not JSON"),
        ("a.jsonl", '{"label": "a", "text": "b"}\n\n{"label": "c"}\n', {}, "line 3: the text is empty"),
        ("a.tsv", "label\ttext\nb\n", {}, "line 2: 1 fields, but the header has 2"),
        ("a.csv.gz", "label,text", {}, "is not a complete gzip file"),
        ("a.parquet", "no", {}, "is not a Parquet file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(name: str, content: str, columns: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        _read(tmp_path / name, content, columns=columns)
