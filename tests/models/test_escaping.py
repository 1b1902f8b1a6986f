"""Tests of the escaping of texts for terminals."""

import pytest

from models.escaping import escaped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("Grüße, 世界 🙂", "Grüße, 世界 🙂"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\rb\nc\td", "a\\rb\\nc\\td"),
        ("\x7f\x9b31m", "\\x7f\\x9b31m"),  # a single character begins an escape sequence, too
        ("abc\u202egpj.exe", "abc\\u202egpj.exe"),  # shown as "abcexe.jpg"
        ("\u2028\u2066", "\\u2028\\u2066"),
        ("\udcff", "\\udcff"),  # of a file name that is not UTF-8, which print would not encode
    ],
)
def test_control_characters_are_spelled(text, shown):
    assert escaped(text) == shown
    escaped(text).encode()


def test_lines_stay_where_that_is_asked_for():
    assert escaped("a\tb\n\x1bc\r\n", lines=True) == "a\tb\n\\x1bc\\r\n"
