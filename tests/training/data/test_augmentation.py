"""Tests of changed copies of sentence pairs."""

import random
import re

import pytest

from training.data.augmentation import Augmentation, augmented
from training.data.entities import Entities

PAIRS = [
    (f"Tom kauft für Anna größere Hüte, Nummer {number}!", f"Tom buys Anna larger hats, number {number}!")
    for number in range(40)
]


def changed(pairs=PAIRS, seed=1, **settings):
    """Return the copies alone."""
    found = augmented(pairs, Augmentation(**settings), Entities(("de", "en"), pairs), random.Random(seed))
    assert found[: len(pairs)] == pairs
    return found[len(pairs) :]


def test_each_pair_has_copies():
    assert len(changed(copies=2, lower_case=0.9)) > 1.5 * len(PAIRS)


def test_the_seed_determines_the_copies():
    settings = {"exchange": 0.5, "typing_errors": 0.5, "join": 0.5}
    assert changed(**settings) == changed(**settings)
    assert changed(**settings) != changed(**settings, seed=2)


def test_copies_without_a_change_are_left_out():
    assert changed() == []


@pytest.mark.parametrize(
    ("field", "source"),
    [
        ("lower_case", "tom kauft für anna größere hüte, nummer 0!"),
        ("upper_case", "TOM KAUFT FÜR ANNA GRÖSSERE HÜTE, NUMMER 0!"),
        ("umlauts", "Tom kauft fuer Anna groessere Huete, Nummer 0!"),
    ],
)
def test_only_the_source_is_spelled_otherwise(field, source):
    found = changed(**{field: 0.99})
    assert source in [each for each, _ in found]
    assert {target for _, target in found} <= {target for _, target in PAIRS}


def test_final_punctuation_goes_on_both_sides():
    assert ("Tom kauft für Anna größere Hüte, Nummer 3", "Tom buys Anna larger hats, number 3") in changed(
        final_punctuation=0.99
    )
    assert changed([("Ja!", "Yes")] * 20, final_punctuation=0.99) == []
    assert changed([("...", "...")] * 20, final_punctuation=0.99) == []


def test_typing_errors_change_one_word_in_five_and_no_number():
    found = changed(PAIRS * 20, typing_errors=0.99, copies=1)
    words = [(a, b) for source, _ in found for a, b in zip(source.split(), PAIRS[0][0].split(), strict=True)]
    share = sum(a != b and not a[0].isdigit() for a, b in words) / len(words)
    assert 0.1 < share < 0.25
    assert {target for _, target in found} <= {target for _, target in PAIRS}
    assert all(re.search(r"\d+!$", source) for source, _ in found)


def test_joined_pairs_are_whole_and_not_too_long():
    found = changed(join=0.99, join_characters=100)
    assert found
    for source, target in found:
        numbers = re.findall(r"\d+", source)
        assert 2 <= len(numbers) <= 3
        assert numbers == re.findall(r"\d+", target)
        assert len(source) <= 100 + 1


def test_short_sources_have_more_copies():
    pairs = [("Hallo Anna!", "Hello, Anna!"), ("Ich bin Anna, hallo!", "I'm Anna, hello!")] * 30
    found = [source for source, _ in changed(pairs, lower_case=0.99, short_copies=3)]
    assert found.count("hallo anna!") > 3 * found.count("ich bin anna, hallo!") > 0


def test_braces_of_own_texts_are_left_alone():
    pairs = [("{Name} um {time} {", "{Name} at {time} {")] * 10
    assert set(changed(pairs, lower_case=0.99)) == {("{name} um {time} {", "{Name} at {time} {")}
