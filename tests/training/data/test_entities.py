"""Tests of names, numbers and codes that are the same in a source and its translation."""

import itertools
import random
import re

import pytest

from training.data.entities import Entities
from training.data.names import Names

NAMES = [("Maria sieht Boston.", "Maria sees Boston.")] * 3 + [("Die Kobolde", "Die Kobolde")] * 2


@pytest.fixture(scope="module")
def entities():
    return Entities(("de", "en"), NAMES)


def each(count=200):
    return (random.Random(seed) for seed in range(count))


@pytest.mark.parametrize(
    ("slot", "source", "target"),
    [
        ("time", r"([01]?\d|2[0-3])[.:][0-5]\d", r"([01]?\d|2[0-3]):[0-5]\d"),
        ("small", r"\d\d?", r"\d\d?"),
        ("number", r"[1-9]\d{0,5}", r"[1-9]\d{0,5}"),
        ("thousands", r"\d{1,3}(\.\d{3})+", r"\d{1,3}(,\d{3})+"),
        ("price", r"\d+,\d\d", r"\d+\.\d\d"),
        ("decimal", r"\d+,\d", r"\d+\.\d"),
        ("score", r"\d:\d", r"\d:\d"),
        ("date", r"\d{1,4}[.-]\d{1,2}[.-]\d{1,4}", r"\d{1,4}[.-]\d{1,2}[.-]\d{1,4}"),
        ("year", r"(1[5-9]|20)\d\d", r"(1[5-9]|20)\d\d"),
        ("code", r"[A-Z\d/-]+", r"[A-Z\d/-]+"),
        ("version", r"\d+(\.\d+){1,2}", r"\d+(\.\d+){1,2}"),
        ("phone", r"[+\d][\d /]+", r"[+\d][\d /]+"),
        ("email", r"[a-z]+@[a-z]+\.[a-z]+", r"[a-z]+@[a-z]+\.[a-z]+"),
        ("url", r"[a-z:/.]+\.[a-z]+(/[a-z\d/]+)?", r"[a-z:/.]+\.[a-z]+(/[a-z\d/]+)?"),
        ("emoji", r"\W{1,2}", r"\W{1,2}"),
        ("postcode", r"[1-9]\d{4}", r"[1-9]\d{4}"),
    ],
)
def test_a_slot_is_written_as_each_language_writes_it(slot, source, target, entities):
    for generator in each():
        ours, theirs = entities.filled((f"Hier {{{slot}}}.", f"Here {{{slot}}}!"), generator)
        assert re.fullmatch(rf"Hier {source}\.", ours), ours
        assert re.fullmatch(rf"Here {target}!", theirs), theirs
        assert re.findall(r"\d+", ours) == re.findall(r"\d+", theirs)


def test_slots_of_a_kind_are_matched_in_order(entities):
    ours, theirs = entities.filled(("{small} von {small}", "{small} of {small}"), random.Random(4))
    assert ours.replace("von", "of") == theirs
    assert len(set(ours.split())) == 3


def test_an_unknown_slot_is_an_error(entities):
    with pytest.raises(ValueError, match=r"unknown slot {day} in 'Am {day}'; there are time, "):
        entities.filled(("Am {day}", "On {day}"), random.Random(0))


def test_numbers_keep_their_separators(entities):
    for generator in each():
        ours, theirs = entities.exchanged(("Um 2.30 Uhr, Zimmer 417.", "At 2:30, room 417."), generator)
        time, room = re.fullmatch(r"Um (\d+\.\d+) Uhr, Zimmer (\d+)\.", ours).groups()
        assert theirs == f"At {time.replace('.', ':')}, room {room}."
        assert ours != "Um 2.30 Uhr, Zimmer 417."


@pytest.mark.parametrize(
    "pair",
    [("Um 14 Uhr.", "At 2:00 p.m."), ("1 und 1", "1 and 1"), ("Zwei 5", "Two five"), ("drei vier", "four three")],
)
def test_what_differs_or_is_ambiguous_stays(pair, entities):
    assert all(entities.exchanged(pair, generator) == pair for generator in each(20))


def test_a_number_word_becomes_the_same_digits(entities):
    for generator in each():
        ours, theirs = entities.exchanged(("Ich habe drei Kinder.", "I have three children."), generator)
        digits = re.fullmatch(r"Ich habe (\d+) Kinder\.", ours)
        assert digits
        assert theirs == f"I have {digits[1]} children."


def test_names_are_exchanged_where_both_sides_have_them(entities):
    found = [entities.exchanged(("Maria fragt die Kobolde.", "Maria's asking Die Kobolde."), each_) for each_ in each()]
    names = [re.fullmatch(r"(.+) fragt die Kobolde\.", ours)[1] for ours, _ in found]
    english = dict(Names(("de", "en")).all("city"))
    assert [theirs for _, theirs in found] == [f"{english.get(name, name)}'s asking Die Kobolde." for name in names]
    assert {"Maria", "Boston"} < set(names), "names of the corpus"
    assert any(re.search(r"\d", name) for name in names), "codes"
    assert len(set(names)) > 50, "random names"


def test_a_name_may_stand_for_a_pronoun(entities):
    found = {entities.exchanged(("Er ist krank.", "He is sick."), generator) for generator in each()}
    assert ("Er ist krank.", "He is sick.") in found
    assert len(found) > 20
    assert all(
        ours.replace(" ist krank.", "") == theirs.replace(" is sick.", "") for ours, theirs in found if "Er" not in ours
    )


def test_both_sides_are_extended_alike(entities):
    found = {entities.extended(("Ja", "Yes"), generator) for generator in each()}
    assert len(found) > 50
    assert all("Ja" in ours and "Yes" in theirs != "Yes" for ours, theirs in found)
    same = [(ours, theirs) for ours, theirs in found if ours.replace("Ja", "Yes") == theirs]
    spelled = [pair for pair in found if pair not in same]
    assert len(same) > len(spelled) > 0, "prices and times"
    for ours, theirs in spelled:
        assert re.findall(r"\d+", ours) == re.findall(r"\d+", theirs)


def test_digits_repeat_and_codes_may_begin_with_0(entities):
    codes = [entities.filled(("{code}", "{code}"), generator)[0] for generator in each(2000)]
    pairs = [pair for code in codes for pair in itertools.pairwise(code) if "".join(pair).isdigit()]
    assert 0.28 < sum(one == two for one, two in pairs) / len(pairs) < 0.38, "a quarter, and a tenth of the others"
    numbers = [code for code in codes if code[0].isdigit()]
    assert 0.07 < sum(code[0] == "0" for code in numbers) / len(numbers) < 0.13
