"""Lines of bytes: encodings, byte order marks, and lines that cannot be decoded."""

import codecs
import io

import pytest

from service.offline.lines import Line, check_encoding, has_plain_lines, read_lines
from service.offline.options import UsageError

OTHER = "--encoding is for another encoding, such as cp1252"


def read(content, encoding="utf-8"):
    return list(read_lines(io.BufferedReader(io.BytesIO(content)), encoding))


@pytest.mark.parametrize(
    ("content", "encoding", "texts"),
    [
        (b"", "utf-8", []),
        (b"one\ntwo\r\n\nfour", "utf-8", ["one", "two", "", "four"]),
        (b"\n", "utf-8", [""]),
        ("one\u2028same line\x0b\x85\n".encode(), "utf-8", ["one\u2028same line\x0b\x85"]),
        (b"gr\xfc\n", "cp1252", ["grü"]),
        ("日本\n語".encode("cp932"), "cp932", ["日本", "語"]),
        ("grü\nb".encode("utf-16-le"), "utf-16-le", ["grü", "b"]),
        ("\u0a0a\n\u010a".encode("utf-16-be"), "utf-16-be", ["\u0a0a", "\u010a"]),  # have the byte of a line feed
        ("grü\r\n".encode("utf-16"), "utf-16", ["grü"]),
    ],
)
def test_texts(content, encoding, texts):
    assert read(content, encoding) == [Line(number, text) for number, text in enumerate(texts, 1)]


@pytest.mark.parametrize("form", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be", "utf-16-le"])
def test_a_byte_order_mark_is_no_text_and_tells_the_encoding(form):
    content = "see you\nagain".encode(form)
    if form in ("utf-16-be", "utf-16-le"):
        content = "\ufeff".encode(form) + content
    for encoding in ("utf-8", form):
        assert [line.text for line in read(content, encoding)] == ["see you", "again"]


def test_only_the_first_mark_of_a_file_is_taken():
    assert [line.text for line in read(codecs.BOM_UTF8 * 2 + b"a\n" + codecs.BOM_UTF8 + b"b")] == ["\ufeffa", "\ufeffb"]


def test_a_line_that_is_not_in_the_encoding_is_an_error_and_the_rest_is_read():
    assert read(b"a\nsch\xf6n\xff\n\nb\n") == [
        Line(1, "a"),
        Line(2, "sch\ufffdn\ufffd", f"byte 4 is not UTF-8; {OTHER}"),
        Line(3, ""),
        Line(4, "b"),
    ]
    assert read(b"a\nb\x81\n", "cp1252")[1].error == f"byte 2 is not CP1252; {OTHER}"


def test_a_line_of_a_wide_encoding():
    half = "a\nb".encode("utf-16-le") + b"\x00\xd8" + "c\nd".encode("utf-16-le")
    assert read(half, "utf-16-le") == [
        Line(1, "a"),
        Line(2, "b\ufffdc", f"character 2 is not UTF-16-LE; {OTHER}"),
        Line(3, "d"),
    ]
    assert read(half[:-1], "utf-16-le")[-1] == Line(3, "\ufffd", f"character 1 is not UTF-16-LE; {OTHER}")


def test_lines_are_read_as_they_arrive():
    class Pipe(io.RawIOBase):
        """Has one line, and no second one so far."""

        def __init__(self):
            self.blocks = [b"one\n"]

        def readable(self):
            return True

        def readinto(self, buffer):
            block = self.blocks.pop()
            buffer[: len(block)] = block
            return len(block)

    assert next(read_lines(io.BufferedReader(Pipe()), "utf-8")) == Line(1, "one")


@pytest.mark.parametrize("encoding", ["nope", "base64", "rot13", "a\0b"])
def test_an_encoding_that_is_none_is_refused(encoding):
    with pytest.raises(UsageError, match="is no encoding of text, such as utf-8, cp1252 or utf-16"):
        check_encoding(encoding)


def test_encodings_whose_lines_end_with_one_byte():
    assert [name for name in ("utf-8", "cp1252", "cp932", "utf-16", "utf-32-be") if has_plain_lines(name)] == [
        "utf-8",
        "cp1252",
        "cp932",
    ]
