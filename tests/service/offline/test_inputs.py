"""Texts of lines, columns and JSON fields."""

import io
import os
import sys
import threading

import pytest

from service.offline.inputs import line_count, read_texts
from service.offline.lines import Line
from service.offline.options import FileOptions, UsageError


def read(path, **options):
    return list(read_texts(path, FileOptions(**options)))


def texts(path, **options):
    return [line.text for line in read(path, **options)]


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("a.txt", "one\ntwo\r\n\nfour", {}, ["one", "two", "", "four"]),
        ("a.txt", "one\u2028same line\n", {}, ["one\u2028same line"]),
        ("a.tsv", "1\tone\n2\ttwo\n", {"column": "2"}, ["one", "two"]),
        ("a.tsv", '"one"\t1\n', {}, ['"one"']),
        ("a.jsonl", '{"text": "one"}\n"two"\n', {}, ["one", "two"]),
        ("a.json", '{"text": "one"}\n', {}, ["one"]),
        ("a.txt", '{"body": "one"}\n', {"input_format": "jsonl", "field": "body"}, ["one"]),
        ("a.txt", "", {}, []),
        ("a.tsv", "\ufeffone\tx\n", {}, ["one"]),
        ("a.jsonl", '\ufeff"one"\n', {}, ["one"]),
    ],
)
def test_formats(tmp_path, name, content, options, expected):
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert texts(path, **options) == expected
    assert line_count(path, FileOptions(**options)) == len(expected)


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("a.csv", '\ufefflabel,text\na,"one, two"\n', {}, ["one, two"]),
        ("a.txt", "label,text\na,one\n", {"input_format": "csv"}, ["one"]),
        ("a.tsv", "label\tutterance\na\tone\n", {"column": "utterance"}, ["one"]),
        ("a.tsv", 'label\ttext\na\t"one\ttwo"\n', {"input_format": "csv"}, ["one\ttwo"]),
        ("a.txt", "eins\nzwei\n", {"encoding": "utf-16-le"}, ["eins", "zwei"]),
        ("a.csv", "text\ngrü\n", {"encoding": "utf-16"}, ["grü"]),
    ],
)
def test_formats_whose_texts_are_not_counted_before(tmp_path, name, content, options, expected):
    path = tmp_path / name
    path.write_bytes(content.encode(options.get("encoding", "utf-8")))
    assert texts(path, **options) == expected
    assert line_count(path, FileOptions(**options)) is None


@pytest.mark.parametrize(
    ("name", "content", "options", "number", "words"),
    [
        ("a.txt", b"a\ngr\xfc\nb\n", {}, 2, "byte 3 is not UTF-8; --encoding is for another encoding, such as cp1252"),
        ("a.tsv", b"1\ta\n2\n3\tb\n", {"column": "2"}, 2, "there are 1 columns, and none is 2"),
        ("a.tsv", b"1\ta\n\xff\tx\n3\tb\n", {"column": "2"}, 2, "byte 1 is not UTF-8"),
        ("a.jsonl", b'"a"\n{"body": 1}\n"b"\n', {}, 2, "there is no text in the field 'text'"),
        ("a.jsonl", b'"a"\n{"text": 1}\n"b"\n', {}, 2, "there is no text in the field 'text'"),
        ("a.jsonl", b'"a"\n["x"]\n"b"\n', {}, 2, "there is no text in the field 'text'"),
        ("a.jsonl", b'"a"\n{\n"b"\n', {}, 2, "this is not JSON: Expecting property name"),
        ("a.jsonl", b'"a"\n\n"b"\n', {}, 2, "this is not JSON: Expecting value"),
        ("a.jsonl", b'"a"\n' + b"[" * 100_000 + b'\n"b"\n', {}, 2, "this is not JSON: maximum recursion depth"),
        ("a.jsonl", b'"a"\n' + b"9" * 5000 + b'\n"b"\n', {}, 2, "this is not JSON: Exceeds the limit"),
        ("a.jsonl", b'"a"\n"\xff"\n"b"\n', {}, 2, "byte 2 is not UTF-8"),
        ("a.csv", b'text,n\na,1\n"x\n\xff",2\nb,1\n', {}, 3, "line 4: byte 1 is not UTF-8"),
    ],
)
def test_a_line_without_a_text_is_an_error_and_the_rest_is_read(tmp_path, name, content, options, number, words):
    path = tmp_path / name
    path.write_bytes(content)
    first, wrong, last = read(path, **options)
    assert (first.text, last.text) == ("a", "b")
    assert first.error is last.error is None
    assert wrong.number == number
    assert wrong.error.startswith(words)


@pytest.mark.parametrize(
    ("name", "content", "options", "words"),
    [
        ("a.txt", "a", {"encoding": "nope"}, "--encoding: 'nope' is no encoding of text"),
        ("a.csv", "a,b\n1,2\n", {}, "a.csv, line 1: the header has no column 'text', but a, b"),
        ("a.tsv", "a\tb\n1\t2\n", {"column": "text"}, "a.tsv, line 1: the header has no column 'text', but a, b"),
        ("a.tsv", "a\tb\n", {"column": "0"}, "--column: columns are numbered from 1 on, not 0"),
    ],
)
def test_what_cannot_be_read_at_all_is_refused(tmp_path, name, content, options, words):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        read(path, **options)


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("eins\nzwei ü\n".encode())))
    assert texts(None) == ["eins", "zwei ü"]
    assert line_count(None, FileOptions()) is None
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"gr\xfc\nb\n")))
    wrong, right = read(None)
    assert (wrong.number, wrong.error[:19], right) == (1, "byte 3 is not UTF-8", Line(2, "b"))
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="standard input is closed"):
        read(None)


def test_a_pipe_that_has_a_name(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(b"one\ntwo\n"))
    assert line_count(path, FileOptions()) is None
    writer.start()
    assert texts(path) == ["one", "two"]
    writer.join()
