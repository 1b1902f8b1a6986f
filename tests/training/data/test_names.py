"""Tests of the names for training."""

import random
import re

import pytest

from training.data.names import NAME_KINDS, Names, made_up_name


def each(count=200):
    return (random.Random(seed) for seed in range(count))


@pytest.fixture(scope="module")
def names():
    return Names(("de", "en"))


def test_names_are_spelled_as_each_language_spells_them(names):
    assert ("München", "Munich") in names.all("city")
    assert ("Berlin", "Berlin") in names.all("city")
    assert all(len(set(names.all(kind))) == len(names.all(kind)) > 100 for kind in NAME_KINDS)


def test_other_languages_have_the_names_that_are_the_same_in_all():
    cities = Names(("fr", "es")).all("city")
    assert ("Berlin", "Berlin") in cities
    assert all(ours == theirs for ours, theirs in cities)


def test_a_person_has_a_first_name_a_surname_or_both(names):
    first = {ours for kind in ("female", "male") for ours, _ in names.all(kind)}
    last = {ours for ours, _ in names.all("surname")}
    drawn = [names.person(generator)[0] for generator in each(1000)]
    both = [name.split() for name in drawn if " " in name]
    assert all(one in first and two in last for one, two in both)
    assert 0.15 < len(both) / 1000 < 0.25
    assert 0.4 < sum(name in first and name not in last for name in drawn) / 1000 < 0.5


@pytest.mark.parametrize(
    ("pair", "kind", "pattern"),
    [
        (("Er ist krank.", "He's sick."), "male", (r"([\w-]+) ist krank\.", r"([\w-]+)'s sick\.")),
        (("Sie sah ihn.", "She saw him."), "female", (r"([\w-]+) sah ihn\.", r"([\w-]+) saw him\.")),
    ],
)
def test_a_name_stands_for_the_pronoun_that_a_pair_begins_with(pair, kind, pattern, names):
    listed = dict(names.all(kind))
    for generator in each(50):
        ours, theirs = names.for_pronoun(pair, generator)
        source, target = re.fullmatch(pattern[0], ours), re.fullmatch(pattern[1], theirs)
        assert source
        assert target
        assert listed[source[1]] == target[1]


@pytest.mark.parametrize(
    "pair",
    [
        ("Sie sind hier.", "They are here."),
        ("Sie sind hier.", "You are here."),
        ("Erde", "Helium"),
        ("Ist er da?", "Is he there?"),
    ],
)
def test_other_pairs_stay(pair, names):
    assert all(names.for_pronoun(pair, generator) == pair for generator in each(20))


def test_a_made_up_name_follows_the_letters_of_listed_ones_or_joins_two():
    listed = [("abcabd", "x"), ("cab", "y")]
    found = {made_up_name(listed, generator) for generator in each()}
    joined = {"abcabdabcabd", "abcabdcab", "cababcabd"}
    assert joined <= found
    found -= joined
    # "ab" goes on with c, d or ends; "ca" with b; "bc" with a. It begins with "ab" or "ca", and has 3 to 12 letters.
    assert {"abd", "cabd", "abcab", "cabcab"} <= found
    assert all(re.fullmatch(r"(ab|cab)(cab)*d?", name) and 3 <= len(name) <= 12 for name in found)
    assert not found & {"abcabd", "cab"}


def test_a_fraction_of_the_names_is_made_up_and_spelled_alike():
    names = Names(("de", "en"), 0.5)
    drawn = [names.draw("city", generator) for generator in each(1000)]
    made_up = [name for name in drawn if name not in names.all("city")]
    assert 400 < len(made_up) < 600
    assert all(ours == theirs for ours, theirs in made_up)
    assert [Names(("de", "en")).draw("city", generator) for generator in each(20)] == [
        generator.choice(names.all("city")) for generator in each(20)
    ], "without a fraction the same names are drawn as before"
