"""Numbers as languages write them."""

import re

import pytest

from models.text.numbers import NUMBER, Convention, convention, localized
from models.text.protection import Protection

GERMAN, ENGLISH, FRENCH = Convention(",", "."), Convention(".", ","), Convention(",", "\u202f")


@pytest.mark.parametrize(
    ("number", "english"),
    [
        ("3,5", "3.5"),
        ("1.000", "1,000"),
        ("1.000,50", "1,000.50"),
        ("-12.345.678,9", "-12,345,678.9"),
        ("1'000,5", "1,000.5"),
        ("1\u202f000", "1,000"),
        ("1234,5", "1234.5"),
        ("1284", "1284"),
        # no German numbers: dates, times of day, versions
        ("24.12.2024", "24.12.2024"),
        ("14.30", "14.30"),
        ("1.2.3", "1.2.3"),
        ("1.000.50", "1.000.50"),
        ("1.000'000", "1.000'000"),
    ],
)
def test_german_numbers_in_english(number: str, english: str) -> None:
    assert localized(number, GERMAN, ENGLISH) == english


def test_english_numbers_in_other_languages() -> None:
    assert localized("1,234.5", ENGLISH, GERMAN) == "1.234,5"
    assert localized("1,234.5", ENGLISH, FRENCH) == "1\u202f234,5"
    assert localized("1.234", ENGLISH, GERMAN) == "1,234"


def test_conventions_are_known_by_either_code() -> None:
    assert convention("de") == convention("deu") == GERMAN
    assert convention("fr") == FRENCH
    assert convention("srp_Latn") == convention("sr") == GERMAN
    assert convention("zh-Hans") == ENGLISH
    assert convention("tlh") is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Es kostet 3,50.", ["3,50"]),
        ("Von 1.000 bis 2.000,5 Euro, am 24.12.2024", ["1.000", "2.000,5"]),
        ("1\u00a0000 und 10\u00a0Uhr", ["1\u00a0000"]),
        ("-3,5 % (4,5)", ["-3,5", "4,5"]),
        ("3 Hunde um 14:30, A1.5, 2,5-fach, 1/2,5, v1.2", []),
        ("1,2,", ["1,2"]),
        ("um 14.30 Uhr, 12.03.24, 14:32; 3.141, 3.1", ["3.141", "3.1"]),
    ],
)
def test_numbers_with_separators_are_found(text: str, numbers: list[str]) -> None:
    assert re.findall(NUMBER, text) == numbers


def test_only_numbers_are_written_in_another_way() -> None:
    protected = Protection(("measure", "number", "filename")).of("1.000,5 km, 2,5 und a/1.000.pdf")
    assert protected is not None
    assert list(protected.parts.values()) == ["1.000,5 km", "2,5", "a/1.000.pdf"]
    assert list(protected.target_parts((GERMAN, ENGLISH)).values()) == ["1,000.5 km", "2.5", "a/1.000.pdf"]
    assert protected.target_parts(None) == protected.parts
