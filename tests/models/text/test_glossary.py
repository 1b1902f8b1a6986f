"""Terms of a glossary in texts."""

import pytest

from models import QueryError
from models.text.glossary import MAX_ENTRIES, Glossary, place_of


def found(glossary, text, language="de"):
    return [(text[slice(*term.span)], term.target) for term in Glossary.of(glossary).terms(text, language)]


def test_whole_words_are_found_in_any_case() -> None:
    glossary = {"Vertrag": "agreement"}
    assert found(glossary, "Der vertrag und die Vertragsstrafe") == [("vertrag", "agreement")]
    assert found(glossary, "Der VERTRAG") == [("VERTRAG", "AGREEMENT")]
    assert found(glossary, "Vertragspartner, Arbeitsvertrag") == []


def test_the_longest_term_counts() -> None:
    glossary = {"Bank": "bench", "Deutsche Bank": "German bank", "Bank am See": "lake bench"}
    assert found(glossary, "Die Deutsche  Bank am See") == [("Deutsche  Bank", "German bank")]
    assert found(glossary, "Eine Bank am See, eine Bank") == [("Bank am See", "lake bench"), ("Bank", "bench")]
    assert found(glossary, "Deutsche, Bank") == [("Bank", "bench")]


def test_inflected_words_are_found_in_known_languages() -> None:
    glossary = {"Vertrag": "agreement", "Wein": "wine", "Ei": "egg", "neuer Vertrag": "new agreement"}
    assert found(glossary, "des Vertrages") == [("Vertrages", "agreement")]
    assert found(glossary, "Verträge weinen, Eis, Weine") == [("Weine", "wine")]
    assert found(glossary, "neuer Vertrags") == [("neuer Vertrags", "new agreement")]
    assert found(glossary, "des Vertrages", "fr") == []


def test_each_entry_is_found_once() -> None:
    assert found({"Auto": "automobile*"}, "Auto neben Auto") == [("Auto", "automobile")]


def test_places_of_translations() -> None:
    assert place_of("agreement", "An Agreement.", inflected=False) == (3, 12)
    assert place_of("agreement", "agreements", inflected=False) is None
    assert place_of("agreement", "two agreements", inflected=True) == (4, 14)
    assert place_of("C++", "in C++.", inflected=False) == (3, 6)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"Haus": "house", "haus": "home"}, "twice"),
        ({"Haus": "*"}, "without letters"),
        ({"...": "dots"}, "without letters"),
        ({"a" * 101: "a"}, "longer than 100"),
        ({f"Wort{number}": "word" for number in range(MAX_ENTRIES + 1)}, "at most 10000 entries"),
    ],
)
def test_wrong_glossaries_are_refused(terms, message) -> None:
    with pytest.raises(QueryError, match=message):
        Glossary.of(terms)
