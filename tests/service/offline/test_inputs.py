"""Texts of lines, columns and JSON fields."""

import io
import sys

import pytest

from service.offline.inputs import line_count, read_texts
from service.offline.options import UsageError


def read(path, form="auto", column=1, field="text"):
    return list(read_texts(path, form, column=column, field=field))


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("a.txt", "one\ntwo\r\n\nfour", {}, ["one", "two", "", "four"]),
        ("a.txt", "one\u2028same line\n", {}, ["one\u2028same line"]),
        ("a.tsv", "1\tone\n2\ttwo\n", {"column": 2}, ["one", "two"]),
        ("a.jsonl", '{"text": "one"}\n"two"\n', {}, ["one", "two"]),
        ("a.txt", '{"body": "one"}\n', {"form": "jsonl", "field": "body"}, ["one"]),
        ("a.txt", "", {}, []),
    ],
)
def test_formats(tmp_path, name, content, options, expected):
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert read(path, **options) == expected
    assert line_count(path) == len(expected)


@pytest.mark.parametrize(
    ("name", "content", "options", "words"),
    [
        ("a.tsv", "1\tone\n2\n", {"column": 2}, "line 2: there are 1 columns, not 2"),
        ("a.jsonl", '"one"\n{"body": 1}\n', {}, "line 2: there is no text in the field 'text'"),
        ("a.jsonl", "{\n", {}, "line 1: this is not JSON"),
    ],
)
def test_a_line_without_a_text_is_named(tmp_path, name, content, options, words):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        read(path, **options)


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("eins\nzwei ü\n".encode())))
    assert read(None) == ["eins", "zwei ü"]
    assert line_count(None) is None
