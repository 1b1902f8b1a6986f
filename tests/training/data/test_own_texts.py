"""Tests of a user's own text files: lines that are read, and the splits that are held out of them."""

import re
from pathlib import Path

import pytest

from training.data.own_texts import iterate_lines, read_lines
from training.data.settings import SplitFiles
from training.tasks.language_model.settings import DataSettings

FILES = SplitFiles(train="text.txt")
LINES = [f"line {index}" for index in range(60)]
SPLITS = ("train", "dev", "test")


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_blank_lines_marks_and_spaces_around_lines_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes("\ufeffone  day\r\n\r\n \t\n  two\u2028days\nthree".encode())
    files = SplitFiles(train="text.txt", dev="text.txt", test="text.txt")
    assert read_lines(files, "train", tmp_path) == ["one  day", "two\u2028days", "three"]
    assert list(iterate_lines(files, "train", tmp_path)) == ["one  day", "two\u2028days", "three"]


def test_a_twentieth_of_different_lines_is_held_out_for_each_split(tmp_path: Path) -> None:
    _write(tmp_path / "text.txt", LINES + LINES[::-1])
    splits = {split: read_lines(FILES, split, tmp_path) for split in SPLITS}
    assert {split: len(lines) for split, lines in splits.items()} == {"train": 108, "dev": 6, "test": 6}
    assert [len(set(lines)) for lines in splits.values()] == [54, 3, 3]
    assert set().union(*splits.values()) == set(LINES)
    _write(tmp_path / "text.txt", LINES[::-1])
    assert set(read_lines(FILES, "dev", tmp_path)) == set(splits["dev"])


def test_the_end_of_a_running_text_is_held_out(tmp_path: Path) -> None:
    _write(tmp_path / "text.txt", [part for line in LINES for part in (line, "")])
    splits = [read_lines(FILES, split, tmp_path, "stream") for split in SPLITS]
    assert splits == [LINES[:54], LINES[54:57], LINES[57:]]


@pytest.mark.parametrize("missing", ["dev", "test"])
def test_only_the_missing_split_is_held_out_of_a_running_text(missing: str, tmp_path: Path) -> None:
    other = {"dev": "test", "test": "dev"}[missing]
    _write(tmp_path / "text.txt", LINES)
    _write(tmp_path / "other.txt", ["something else"])
    files = SplitFiles.model_validate({"train": "text.txt", other: "other.txt"})
    assert read_lines(files, "train", tmp_path, "stream") == LINES[:57]
    assert read_lines(files, missing, tmp_path, "stream") == LINES[57:]
    assert read_lines(files, other, tmp_path, "stream") == ["something else"]


@pytest.mark.parametrize("context", ["sentence", "stream"])
def test_too_few_lines_to_hold_some_out(context: str, tmp_path: Path) -> None:
    _write(tmp_path / "text.txt", LINES[:9])
    data = DataSettings.model_validate({"files": FILES, "context": context})
    with pytest.raises(ValueError, match="9 different lines are too few to hold out dev and test; 10 are needed"):
        read_lines(FILES, "train", tmp_path, data.context)


def test_wrong_files_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    with pytest.raises(FileNotFoundError, match=r"text\.txt is not a file; relative paths .* start at --data-dir"):
        read_lines(FILES, "train", tmp_path)
    path.write_bytes(b"good\n\ncaf\xe9\n")
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 3: byte 4 is not UTF-8")):
        read_lines(FILES, "train", tmp_path)
    path.write_bytes(b"\n  \n \n")
    with pytest.raises(ValueError, match=r"text\.txt has no text"):
        read_lines(FILES, "train", tmp_path)
    with pytest.raises(ValueError, match="there is no split 'eval'"):
        read_lines(FILES, "eval", tmp_path)


def test_wrong_files_that_are_iterated_are_explained(tmp_path: Path) -> None:
    path, files = tmp_path / "text.txt", SplitFiles(train="text.txt", dev="text.txt", test="text.txt")
    with pytest.raises(FileNotFoundError, match=r"text\.txt is not a file"):
        iterate_lines(files, "train", tmp_path)
    path.write_bytes(b"good\n\ncaf\xe9\nmore\n")
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 3: byte 4 is not UTF-8")):
        list(iterate_lines(files, "dev", tmp_path))
    for content in (b"", b"\n  \n \n"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"text\.txt has no text"):
            list(iterate_lines(files, "train", tmp_path))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
@pytest.mark.parametrize("files", [FILES, SplitFiles(train="text.txt", dev="text.txt", test="text.txt")])
def test_lines_of_any_file_can_be_iterated(encoding: str, files: SplitFiles, tmp_path: Path) -> None:
    lines = [f"{line} café" for line in LINES]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding=encoding)
    named = files.model_copy(update={"encoding": encoding})
    for split in SPLITS:
        assert list(iterate_lines(named, split, tmp_path)) == read_lines(named, split, tmp_path)


def test_notes_say_which_lines_are_held_out() -> None:
    assert DataSettings(files=FILES).held_out_notes() == [
        f"no {split} file: 1/20 of the lines in text.txt, at most 2000, are held out for it, always the same"
        for split in ("dev", "test")
    ]
    assert DataSettings(files=FILES, context="stream").held_out_notes() == [
        "no dev file: the last 1/20 of the lines in text.txt before those of the test split, at most 2000, "
        "are held out for it, in one piece",
        "no test file: the last 1/20 of the lines in text.txt, at most 2000, are held out for it, in one piece",
    ]
    assert DataSettings(corpus="ptb").held_out_notes() == []
