"""Records of CSV: the header, the delimiter, quoted fields, and records that cannot be read."""

import pytest

from service.offline.csv_records import read_records
from service.offline.lines import Line
from service.offline.options import UsageError


def read(content, column=None):
    return list(read_records([Line(number, text) for number, text in enumerate(content.split("\n"), 1)], column, "x"))


@pytest.mark.parametrize(
    ("content", "column", "expected"),
    [
        ("text\none\ntwo", None, [(2, "one"), (3, "two")]),
        ("label,text\na,one\nb,two", None, [(2, "one"), (3, "two")]),
        ("Label; Text \na;one", None, [(2, "one")]),
        ("source\ttarget\neins\tone", None, [(2, "eins")]),
        ("source|text\neins|one", None, [(2, "one")]),
        ("label,utterance\na,one", "Utterance", [(2, "one")]),
        ("label,utterance\na,one", "1", [(2, "a")]),
        ("7,1\nseven,one", "1", [(2, "one")]),  # a name before a number
        ('text\n"a, ""b"""\n" c "', None, [(2, 'a, "b"'), (3, " c ")]),
        ('text,label\n"one\ntwo\n\nfour",a\nfive,b', None, [(2, "one\ntwo\n\nfour"), (6, "five")]),
        ('"a\nlabel",text\na,one', None, [(3, "one")]),
        ("\ntext,b\n\none,x\n", None, [(4, "one")]),
        ("text", None, []),
        ("", None, []),
    ],
)
def test_texts(content, column, expected):
    assert read(content, column) == [Line(number, text) for number, text in expected]


def test_a_record_that_is_wrong_is_an_error_and_the_rest_is_read():
    found = read('text,label\none,a\ntwo\n"three"3,c\nfour,d\n"five,e\nsix,f')
    assert [(line.number, line.text, line.error and line.error.split(":")[0]) for line in found] == [
        (2, "one", None),
        (3, "", "1 fields, but the header has 2"),
        (4, "", "the record that begins here is not CSV"),
        (5, "four", None),
        (6, "", "the record that begins here is not CSV"),
    ]


def test_a_line_that_is_not_in_the_encoding_spoils_its_record():
    lines = [Line(1, "text"), Line(2, "\ufffd", "byte 1"), Line(3, '"a'), Line(4, '\ufffd"', "byte 2"), Line(5, "b")]
    assert list(read_records(lines, None, "x")) == [
        Line(2, error="byte 1"),
        Line(3, error="line 4: byte 2"),
        Line(5, "b"),
    ]
    with pytest.raises(UsageError, match="x, line 1: byte 9"):
        list(read_records([Line(1, "te\ufffdt", "byte 9")], None, "x"))


def test_long_fields():
    text = "a" * 200_000  # more than the default limit of Python's module
    assert read(f"text\n{text}\nb") == [Line(2, text), Line(3, "b")]


@pytest.mark.parametrize(
    ("header", "column", "words"),
    [
        ("label,utterance", None, "x, line 1: the header has no column 'text', but label, utterance; --column names"),
        ("label,utterance", "body", "has no column 'body', but label, utterance"),
        ("a;b;c", "4", "has no column '4', but a, b, c"),
        ("a;b;c", "0", "has no column '0', but a, b, c"),
        ("Guten Tag", None, "--input-format text reads a text on each line"),
        ('"a"b', None, "has no column 'text', but none"),
    ],
)
def test_a_header_without_the_column_is_refused(header, column, words):
    with pytest.raises(UsageError, match=words):
        read(f"{header}\none", column)
