"""Lines of results, and files that are gone on with."""

import io
import json
import sys

import pytest

from service.offline.options import FileOptions, UsageError
from service.offline.outputs import Shown, line_of, opened_output, standard_output

SHOWN = Shown(("a\tb\nc\\", 0.123456, ""), lambda: {"text": "ü", "value": 0.5})


def test_a_result_is_one_line():
    assert line_of(SHOWN, "tsv") == "a\\tb\\nc\\\\\t0.1235\t"
    assert json.loads(line_of(SHOWN, "jsonl")) == {"text": "ü", "value": 0.5}
    assert "\n" not in line_of(SHOWN, "table")


def test_half_of_a_surrogate_pair_is_escaped_in_json():
    line = line_of(Shown((), lambda: {"text": "ü\ud800"}), "jsonl")
    assert line.encode() == b'{"text": "\\u00fc\\ud800"}'
    assert json.loads(line) == {"text": "ü\ud800"}


def test_standard_output_is_utf_8(monkeypatch):
    content = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(content, encoding="ascii"))
    output, form = standard_output("auto")
    output.write("ü\n")
    output.flush()
    assert (content.getvalue(), form) == ("ü\n".encode(), "tsv")
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(UsageError, match="standard output is closed"):
        standard_output("auto")


def test_an_output_goes_on_after_its_complete_lines(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"one\ntwo\nthr")
    with opened_output(FileOptions(output=path, resume=True)) as (file, done, form):
        file.write("three\n")
    assert (done, form, path.read_text()) == (2, "jsonl", "one\ntwo\nthree\n")


def test_a_new_output_is_empty_and_an_old_one_kept(tmp_path):
    path = tmp_path / "out.txt"
    with opened_output(FileOptions(output=path, resume=True)) as (file, done, form):
        file.write("one\n")
    assert (done, form) == (0, "tsv")
    with pytest.raises(UsageError, match="--resume goes on with it"), opened_output(FileOptions(output=path)):
        pass
    assert path.read_text() == "one\n"
    with pytest.raises(UsageError, match="--resume needs --output"), opened_output(FileOptions(resume=True)):
        pass


def test_a_table_does_not_control_the_terminal():
    shown = Shown(("a\x1b[2J\tb", "\x9b"), dict)
    assert line_of(shown, "table") == "a\\x1b[2J\\tb  \\x9b"
    assert line_of(shown, "tsv") == "a\x1b[2J\\tb\t\x9b"
