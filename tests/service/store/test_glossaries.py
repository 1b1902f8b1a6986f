"""Glossaries in the database: dictionaries, changes, owners, limits, and the entries that translations use."""

import pytest

from models import QueryError
from service.store.glossaries import Glossaries, Languages, TooManyGlossaries, UnknownGlossary

DE_EN, EN_DE = Languages("de", "en"), Languages("en", "de")
TERMS = {"Vertrag": "agreement", "Haus": "residence"}


@pytest.fixture
def opened(open_database, tmp_path):
    """Return a function that opens the glossaries of a database, each time as another process does."""
    return lambda: Glossaries(open_database(tmp_path / "store.db"), per_owner=2, entries_per_owner=5)


@pytest.fixture
def glossaries(opened):
    return opened()


def test_a_glossary_is_found_by_its_owner_in_every_process(opened):
    one, other = opened(), opened()
    made = one.create("a", " Terms ", {DE_EN: {" Vertrag ": "agreement ", "Haus": "residence"}})
    assert (made.name, made.dictionaries) == ("Terms", {DE_EN: 2})
    assert other.find("a", made.id) == made
    assert other.list("a") == [made]
    assert other.entries("a", made.id) == TERMS
    assert other.list("b") == []
    for ask in (
        lambda: other.find("b", made.id),
        lambda: other.entries("b", made.id),
        lambda: other.load("b", [made.id], DE_EN),
        lambda: other.delete("b", made.id),
        lambda: other.change("b", made.id, name="x", dictionaries={}),
        lambda: other.replace("b", made.id, DE_EN, TERMS),
        lambda: other.find("a", made.id + "0"),
        lambda: other.find("a", "\x00" * 36),
        lambda: other.find("a", "\ud800" * 36),
    ):
        with pytest.raises(UnknownGlossary):
            ask()


def test_dictionaries_are_extended_replaced_and_deleted(glossaries):
    made = glossaries.create("", "Terms", {DE_EN: TERMS})
    changed = glossaries.change(
        "", made.id, name="New", dictionaries={DE_EN: {"haus": "house", "Kind": "child"}, EN_DE: {"tree": "Baum"}}
    )
    assert (changed.name, changed.dictionaries) == ("New", {DE_EN: 3, EN_DE: 1})
    assert glossaries.entries("", made.id, DE_EN) == {"Vertrag": "agreement", "haus": "house", "Kind": "child"}
    with pytest.raises(QueryError, match="2 dictionaries"):
        glossaries.entries("", made.id)
    assert glossaries.replace("", made.id, EN_DE, {"a": "b"}).dictionaries == {DE_EN: 3, EN_DE: 1}
    assert glossaries.entries("", made.id, EN_DE) == {"a": "b"}
    glossaries.delete("", made.id, DE_EN)
    assert glossaries.find("", made.id).dictionaries == {EN_DE: 1}
    with pytest.raises(UnknownGlossary):
        glossaries.delete("", made.id, DE_EN)
    glossaries.delete("", made.id)
    assert glossaries.list("") == []


def test_a_change_is_used_by_every_process_at_once(opened):
    one, other = opened(), opened()
    made = one.create("", "Terms", {DE_EN: TERMS})
    assert other.load("", [made.id], DE_EN) is other.load("", [made.id], DE_EN)
    one.replace("", made.id, DE_EN, {"Haus": "home"})
    assert other.load("", [made.id], DE_EN).entries == {"Haus": "home"}
    one.delete("", made.id)
    with pytest.raises(UnknownGlossary):
        other.load("", [made.id], DE_EN)


def test_the_first_of_several_glossaries_goes_first(glossaries):
    one = glossaries.create("", "one", {DE_EN: {"Haus": "house"}})
    two = glossaries.create("", "two", {DE_EN: {"haus": "home", "Kind": "child"}})
    assert glossaries.load("", [one.id, two.id], DE_EN).entries == {"Haus": "house", "Kind": "child"}
    assert glossaries.load("", [two.id, one.id], DE_EN).entries == {"haus": "home", "Kind": "child"}
    assert [term.target for term in glossaries.load("", [two.id], DE_EN).terms.terms("Das Haus", "de")] == ["home"]
    with pytest.raises(QueryError, match="no entries from 'en' to 'de'"):
        glossaries.load("", [one.id], EN_DE)


def test_glossaries_and_entries_of_an_owner_are_limited(glossaries):
    made = glossaries.create("a", "one", {DE_EN: TERMS})
    with pytest.raises(TooManyGlossaries, match="5 entries"):
        glossaries.create("a", "two", {DE_EN: {str(number): "x" for number in range(4)}})
    assert len(glossaries.list("a")) == 1
    glossaries.create("a", "two", {DE_EN: TERMS})
    with pytest.raises(TooManyGlossaries, match="2 glossaries"):
        glossaries.create("a", "three", {DE_EN: TERMS})
    with pytest.raises(TooManyGlossaries, match="5 entries"):
        glossaries.change("a", made.id, dictionaries={EN_DE: TERMS})
    assert glossaries.find("a", made.id).dictionaries == {DE_EN: 2}
    glossaries.create("b", "one", {DE_EN: TERMS})


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, "no entries"),
        ({"a": " "}, "empty"),
        ({"a\tb": "c"}, "control character"),
        ({"a": "b\u2028c"}, "control character"),
        ({"Haus": "house", "haus": "home"}, "twice"),
        ({"a" * 101: "b"}, "longer than 100"),
        ({"!": "b"}, "without letters"),
    ],
)
def test_entries_that_cannot_be_used_are_refused(glossaries, entries, words):
    with pytest.raises(QueryError, match=words):
        glossaries.create("", "Terms", {DE_EN: entries})
    assert glossaries.list("") == []


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a" * 1025])
def test_names_are_bounded(glossaries, name):
    with pytest.raises(QueryError):
        glossaries.create("", name, {DE_EN: TERMS})


def test_languages_are_compared_without_region():
    assert Languages.of("DE-AT", "eng_Latn") == DE_EN
    for source, target in (("de", "de-AT"), ("", "en"), ("d e", "en"), ("x" * 17, "en"), ("дe", "en")):
        with pytest.raises(QueryError):
            Languages.of(source, target)
