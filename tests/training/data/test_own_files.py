"""Tests of a user's own sentence pairs: lines that are read, held-out splits, and errors."""

import re
from pathlib import Path

import pytest

from training.data.own_files import LABELLED, read_pairs, read_split
from training.data.settings import SplitFiles
from training.tasks.translation.settings import PairSettings

ONLY_TRAIN = SplitFiles(train="pairs.tsv")


def _pairs(count: int) -> list[tuple[str, str]]:
    return [(f"Satz {index}", f"sentence {index}") for index in range(count)]


def _write(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def _splits(files: SplitFiles, data_dir: Path) -> dict[str, list[tuple[str, str]]]:
    return {split: read_split(files, split, data_dir) for split in ("train", "dev", "test")}


def _notes(files: SplitFiles) -> list[str]:
    return PairSettings(files=files, source="de", target="en").held_out_notes()


# ---- reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "Grüße\tgreetings\nja nein\tyes no\n",
        "Grüße\tgreetings\nja nein\tyes no",
        "\ufeffGrüße\tgreetings\r\nja nein\tyes no\r\n\r\n",
        " Grüße \t greetings\nja nein\tyes no \n\n",
    ],
)
def test_pairs_are_read(content: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_bytes(content.encode())
    assert read_pairs(tmp_path / "pairs.tsv") == [("Grüße", "greetings"), ("ja nein", "yes no")]


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    _write(tmp_path / "pairs.tsv", [("a\u2028b\x0b", "c\x85d")])
    assert read_pairs(tmp_path / "pairs.tsv") == [("a\u2028b", "c\x85d")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"no tab", "1 column, not source<TAB>target"),
        (b"a\tb\tCC-BY 2.0", "3 columns, not source<TAB>target"),
        (b"", "it is empty"),
        (b"\tb", "the source is empty"),
        (b"a\t ", "the target is empty"),
        (b"caf\xe9\tb", "byte 4 is not UTF-8; data.files.encoding is for another encoding, such as cp1252"),
    ],
)
def test_a_wrong_line_is_named(line: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"a\tb\n" + line + b"\nc\td\n")
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 2: {said}") + "$"):
        read_pairs(path)


def test_several_wrong_lines_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\n" + "rubbish\n" * 7, encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 2: .*; line 6: [^;]*; and 2 more lines$") as caught:
        read_pairs(tmp_path / "pairs.tsv")
    assert "line 7" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_said_to_be(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_bytes(content)
    with pytest.raises(ValueError, match=r"pairs\.tsv is empty"):
        read_pairs(tmp_path / "pairs.tsv")


def test_a_missing_file_says_where_paths_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"pairs\.tsv is not a file; relative paths .* start at --data-dir"):
        read_split(ONLY_TRAIN, "train", tmp_path)


# ---- splits -----------------------------------------------------------------------------------------------


def test_each_split_has_its_file(tmp_path: Path) -> None:
    content = {"train": _pairs(3), "dev": _pairs(2), "test": _pairs(1)}
    for split, pairs in content.items():
        _write(tmp_path / f"{split}.tsv", pairs)
    files = SplitFiles(train="train.tsv", dev="dev.tsv", test=str(tmp_path / "test.tsv"))
    assert _splits(files, tmp_path) == content
    assert _notes(files) == []


def test_a_twentieth_is_held_out_for_each_split_without_a_file(tmp_path: Path) -> None:
    _write(tmp_path / "pairs.tsv", _pairs(200))
    splits = _splits(ONLY_TRAIN, tmp_path)
    assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 180, "dev": 10, "test": 10}
    assert sorted(pair for pairs in splits.values() for pair in pairs) == sorted(_pairs(200))
    assert [note.partition(":")[0] for note in _notes(ONLY_TRAIN)] == ["no dev file", "no test file"]


def test_what_is_held_out_depends_on_no_order(tmp_path: Path) -> None:
    _write(tmp_path / "pairs.tsv", _pairs(60))
    before = _splits(ONLY_TRAIN, tmp_path)
    _write(tmp_path / "pairs.tsv", _pairs(60)[::-1])
    assert {split: pairs[::-1] for split, pairs in _splits(ONLY_TRAIN, tmp_path).items()} == before


def test_all_translations_of_a_source_are_in_one_split(tmp_path: Path) -> None:
    pairs = [(source, f"{target}, {way}") for way in range(3) for source, target in _pairs(40)]
    _write(tmp_path / "pairs.tsv", pairs)
    splits = _splits(ONLY_TRAIN, tmp_path)
    assert {split: len(found) for split, found in splits.items()} == {"train": 108, "dev": 6, "test": 6}
    sources = [{source for source, _ in found} for found in splits.values()]
    assert len(set().union(*sources)) == sum(map(len, sources)) == 40


@pytest.mark.parametrize("missing", ["dev", "test"])
def test_only_what_is_missing_is_held_out(missing: str, tmp_path: Path) -> None:
    other = {"dev": "test", "test": "dev"}[missing]
    _write(tmp_path / "pairs.tsv", _pairs(40))
    _write(tmp_path / "other.tsv", [("ja", "yes")])
    files = SplitFiles.model_validate({"train": "pairs.tsv", other: "other.tsv"})
    splits = _splits(files, tmp_path)
    assert (len(splits["train"]), len(splits[missing]), splits[other]) == (38, 2, [("ja", "yes")])
    assert [note.partition(":")[0] for note in _notes(files)] == [f"no {missing} file"]


def test_the_smallest_file_to_hold_out_of(tmp_path: Path) -> None:
    _write(tmp_path / "pairs.tsv", _pairs(10))
    assert {split: len(pairs) for split, pairs in _splits(ONLY_TRAIN, tmp_path).items()} == {
        "train": 8,
        "dev": 1,
        "test": 1,
    }
    _write(tmp_path / "pairs.tsv", _pairs(9) * 5)
    with pytest.raises(ValueError, match=r"files\.train: 9 different sources are too few to hold out dev and test"):
        read_split(ONLY_TRAIN, "train", tmp_path)


def test_each_class_keeps_a_training_text(tmp_path: Path) -> None:
    """The texts that were held out before are held out still, unless they are the last of a class."""
    texts = [f"text {index}" for index in range(60)]
    rows = [("common", text) for text in texts]
    _write(tmp_path / "pairs.tsv", rows)
    before = {split: read_split(ONLY_TRAIN, split, tmp_path, LABELLED) for split in ("train", "dev", "test")}
    first, second = before["dev"][0][1], before["test"][0][1]
    rare = [("rare" if text == first else "common,twin" if text == second else "common", text) for text in texts]
    _write(tmp_path / "pairs.tsv", rare)
    after = {split: read_split(ONLY_TRAIN, split, tmp_path, LABELLED) for split in before}
    assert {split: len(found) for split, found in after.items()} == {
        split: len(found) for split, found in before.items()
    }
    assert {("rare", first), ("common,twin", second)} <= set(after["train"])
    held_out = {split: {text for _, text in before[split]} for split in ("dev", "test")}
    assert len({text for _, text in after["dev"]} & held_out["dev"]) == len(held_out["dev"]) - 1
    _write(tmp_path / "pairs.tsv", [(text, text) for text in texts])
    with pytest.raises(ValueError, match="leave none to hold out"):
        read_split(ONLY_TRAIN, "train", tmp_path, LABELLED)


def test_an_unknown_split_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no split 'eval'; there are train, dev, test"):
        read_split(ONLY_TRAIN, "eval", tmp_path)


def test_numbers_say_what_they_were_measured_on() -> None:
    files = SplitFiles(train="own/pairs.tsv", test="own/news.tsv")
    data = PairSettings(files=files, source="de", target="en")
    assert {split: data.dataset(split) for split in ("train", "dev", "test")} == {
        "train": "pairs.tsv",
        "dev": "pairs.tsv, held out",
        "test": "news.tsv",
    }
    assert PairSettings(corpus="multi30k", source="de", target="en").dataset("dev") == "multi30k"
