"""Tests of the measures of careless, short and numerical texts."""

import re
from pathlib import Path

import pytest

from benchmarks.translation_robustness import (
    _TEMPLATES,
    careless_pairs,
    digits_copied,
    matches,
    numerical_sentences,
    read_phrases,
)
from training.data.corpora import get_corpus


def test_sentences_have_digits_and_are_always_the_same() -> None:
    sentences = numerical_sentences()
    assert len(set(sentences)) == 200
    assert all(re.search(r"\d", sentence) and "{" not in sentence for sentence in sentences)
    assert sentences == numerical_sentences()


def test_no_template_is_trained_on(tmp_path: Path) -> None:
    known = {re.sub(r"{\w+}", "", source) for source, _ in get_corpus("everyday-de-en").records("train", tmp_path)}
    assert not known & {re.sub(r"{\w+}", "", template) for template in _TEMPLATES}


@pytest.mark.parametrize(
    ("source", "translation", "copied"),
    [
        ("Um 14:35 Uhr", "At 14:35", True),
        ("Um 14:35 Uhr", "At 2:35 p.m.", False),
        ("12,50 €, Nr. 4711", "No. 4711, €12.50", True),
        ("Nr. 4711", "No. 4711 4711", False),
        ("keine", "none", True),
    ],
)
def test_every_digit_string_must_be_copied_once(source: str, translation: str, copied: bool) -> None:
    assert digits_copied(source, translation) == copied


def test_phrases_are_a_hundred_with_patterns() -> None:
    phrases = read_phrases()
    assert len(phrases) == 100
    assert matches("Hello!", phrases["Hallo"])
    assert matches("What\u2019s your name?", phrases["Wie heißt du?"])
    assert not matches("Helloi.", phrases["Hallo"])
    assert not matches("", phrases["Ja"])


def test_careless_pairs_by_hand() -> None:
    pairs = [("Ja, Öl!", "Yes, oil!"), ("Wo?", "Where?"), ("Da.", "There.")]
    found = careless_pairs(pairs)
    assert found["as it is"] == pairs
    assert found["no final punctuation"] == [("Ja, Öl", "Yes, oil"), ("Wo", "Where"), ("Da", "There")]
    assert found["lower case"] == [("ja, öl!", "Yes, oil!"), ("wo?", "Where?"), ("da.", "There.")]
    assert found["joined two by two"] == [("Ja, Öl! Wo?", "Yes, oil! Where?")]
