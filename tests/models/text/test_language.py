"""Tests of the detection of texts in another language."""

import pytest

from models.text.language import UNDETERMINED, LanguageDetector


@pytest.fixture(scope="module")
def german() -> LanguageDetector:
    return LanguageDetector("de")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How are you today, my friend?", "en"),
        ("¿Dónde está la estación?", "es"),
        ("Dziękuję bardzo", "pl"),
        ("こんにちは", "ja"),
        ("안녕하세요", "ko"),
        ("Привет", UNDETERMINED),
        ("谢谢", UNDETERMINED),
    ],
)
def test_other_languages_and_scripts_are_named(text: str, language: str, german: LanguageDetector) -> None:
    assert german.other_language(text) == language


@pytest.mark.parametrize(
    "text", ["Guten Morgen!", "hallo", "Ja", "ok", "ICH HEISSE ANNA", "14:35", "😀", "", " \n", "\ud7ff\x00", "Tom"]
)
def test_the_expected_language_and_texts_of_none_are_not_reported(text: str, german: LanguageDetector) -> None:
    assert german.other_language(text) is None


def test_a_long_text_is_judged_by_its_start(german: LanguageDetector) -> None:
    assert german.other_language("How are you today, my friend? " * 40 + "Guten Morgen! " * 100_000) == "en"


def test_an_unknown_language_is_never_ruled_out() -> None:
    assert LanguageDetector("xx").other_language("How are you today, my friend?") is None
