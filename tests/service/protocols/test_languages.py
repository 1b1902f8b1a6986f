"""Tests of codes and names of languages."""

import pytest

from service.protocols.languages import language_name, same_language, two_letters


@pytest.mark.parametrize(
    ("code", "expected"),
    [("EN-GB", "en"), ("eng", "en"), ("srp_Cyrl", "sr"), ("de", "de"), ("zh-Hans", "zh"), ("xyz", "xyz"), ("", "")],
)
def test_codes_without_region_or_script(code, expected):
    assert two_letters(code) == expected


def test_the_same_language_has_several_codes():
    assert same_language("EN-GB", "eng")
    assert not same_language("de", "en")


def test_names():
    assert [language_name(code) for code in ("de", "deu", "EN-US", "xyz")] == ["German", "German", "English", "xyz"]
