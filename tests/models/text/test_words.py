"""Words, and the places of normalized characters in the original text."""

import pytest

from models.text.words import moved, positions_in, words_of


def test_words_keep_marks_within_them() -> None:
    text = "Geht's um 14:30, Frau Müller-Lüdenscheidt?"
    words = ["Geht's", "um", "14:30", ",", "Frau", "Müller-Lüdenscheidt", "?"]
    assert [text[slice(*span)] for span in words_of(text)] == words


def test_an_accent_that_is_a_character_of_its_own_belongs_to_its_word() -> None:
    text = "a\u0308hnlich gut"
    assert [text[slice(*span)] for span in words_of(text)] == ["a\u0308hnlich", "gut"]


@pytest.mark.parametrize(
    ("original", "changed", "word", "expected"),
    [
        ("so gut", "so gut", (3, 6), "gut"),
        ("so   gut", "so gut", (3, 6), "gut"),
        ("die \ufb01nale Größe", "die finale Größe", (4, 10), "\ufb01nale"),
        ("die \ufb01nale Größe", "die finale Größe", (11, 16), "Größe"),
        ("Guten Mor\u00adgen Anna", "Guten Morgen Anna", (6, 12), "Mor\u00adgen"),
        ("Mor-\ngen, Anna", "Morgen,\n Anna", (9, 13), "Anna"),
        ("Mor-\ngen, Anna", "Morgen,\n Anna", (0, 6), "Mor-\ngen"),
        ("a\u0308hnlich gut", "ähnlich gut", (8, 11), "gut"),
    ],
)
def test_words_of_a_normalized_text_are_found_in_the_original(original, changed, word, expected) -> None:
    ((start, end),) = moved([word], positions_in(original, changed))
    assert original[start:end] == expected
