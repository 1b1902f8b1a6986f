"""Tests of the scripts of languages."""

import pytest

from models.text.scripts import Script


@pytest.mark.parametrize(
    ("language", "text", "readable"),
    [
        ("de", "Ja", True),
        ("de", "ß", True),
        ("deu", "12 Ä", True),
        ("de", "ﬁ", True),
        ("de", "Ｈ", True),
        ("de", "𝐇", True),
        ("de", "Привет", False),
        ("de", "αβγ", False),
        ("de", "12 €, 5 %", False),
        ("de", "漢字", False),
        ("ru", "Привет", True),
        ("ru", "Hello", False),
        ("sr", "zdravo", True),
        ("sr", "здраво", True),
        ("ja", "ひらがな", True),
        ("ja", "漢字", True),
        ("ja", "々", True),
        ("ja", "ｶﾅ", True),
        ("zh", "漢字", True),
        ("ko", "한국어", True),
        ("ar", "مرحبا", True),
        ("ar", "Hello", False),
        ("el", "ναι", True),
        ("mul", "Привет", True),
        ("mul", "***", False),
    ],
)
def test_letters_of_the_script_are_found(language: str, text: str, readable: bool) -> None:
    assert Script(language).has_letters(text) == readable


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("x", True),
        (" x. ", True),
        ("É!", True),
        ("e\u0301", True),
        ("ab", False),
        ("", False),
        ("山", False),
        ("네", False),
    ],
)
def test_one_letter_of_an_alphabet_is_no_word(text: str, one: bool) -> None:
    assert Script("de").is_one_letter(text) == one
