"""Translations of texts with protected parts by the bundled model."""

import copy
import re

import pytest

from benchmarks.protected import ALL, kept_parts
from benchmarks.protected_sentences import protected_sentences
from models import QueryError
from models.decoding.beam_search import SearchOptions
from models.operations.translation import TranslateParams
from models.tasks.translation import TRANSLATE
from models.text.markup import Markup
from models.text.protection import Protection

TEXTS = {
    "Besuchen Sie https://example.com/a?b=1 für mehr Informationen.": ["https://example.com/a?b=1"],
    "{name} hat dich eingeladen.": ["{name}"],
    "Hallo ${user}, dein Code ist AB-1234-X.\n\tÖffne a_b.txt!": ["${user}", "AB-1234-X", "a_b.txt"],
    "Klicke <x/> hier, um {{count}} Bilder zu sehen. #bilder": ["<x/>", "{{count}}", "#bilder"],
    "%d Dateien und %d Bilder": ["%d", "%d"],
    "{a}{b} und {a}-{b}": ["{a}", "{b}", "{a}", "{b}"],
    "<b>Fett</b> und {c} 😀": ["<b>", "</b>", "{c}", "😀"],
    "https://a.de": ["https://a.de"],
}


@pytest.fixture(scope="module")
def translator(store):
    return store.load("de-en", threads=1)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_parts_are_there_as_often_as_in_the_text(translator, beam_size) -> None:
    for found in translator.translate(list(TEXTS), beam_size, options=SearchOptions(n_best=beam_size)):
        for each in found.translations:
            for part in TEXTS[found.text]:
                assert each.text.count(part) == found.text.count(part), each.text
            assert not re.search("[\ue000-\uf8ff\U000f0000-\U0010ffff]", each.text)


def test_parts_stand_where_a_translator_puts_them(translator) -> None:
    found = translator.translate(["{name} hat dich eingeladen.", "Besuchen Sie https://a.de/b für mehr Informationen."])
    assert [each.translations[0].text for each in found] == [
        "{name} invited you.",
        "Visit https://a.de/b for more information.",
    ]


def test_parts_of_many_sentences_are_kept(translator) -> None:
    sentences = protected_sentences(200)
    assert kept_parts(translator, sentences, 1).fraction >= 0.995
    assert kept_parts(translator, sentences[:60], 5, ALL).fraction >= 0.995


def test_samples_keep_parts_too(translator) -> None:
    options = SearchOptions(n_best=4, temperature=1.5, seed=3)
    (found,) = translator.translate(["Tom hat {a} und {b} gekauft."], 4, options=options)
    assert [(each.text.count("{a}"), each.text.count("{b}")) for each in found.translations] == [(1, 1)] * 4


def test_plain_texts_are_not_changed(translator) -> None:
    texts = ["Guten Morgen!", "Um 14:30 Uhr kostet es 35 €.", "Tom hat 3 Hunde."]
    assert translator.translate(texts) == translator.translate(texts, protection=Protection(()))
    assert all(each.stand_ins is None for text in texts for each in translator.query(text).sentences)


def test_numbers_are_copied_or_written_as_the_target_language_does(translator) -> None:
    text = "Das kostet 1.000,50 Euro. Summe: 2,5\n\n1.234\nAm 24.12.2024 um 14.30 Uhr."
    both = [
        translator.translate([text], protection=Protection(numbers=numbers), alignment=True)[0].translations[0]
        for numbers in ("copy", "localize")
    ]
    copied, localized = (each.text for each in both)
    assert "1.000,50" in copied
    assert localized == copied.replace("1.000,50", "1,000.50").replace("2,5", "2.5").replace("1.234", "1,234")
    assert "\n\n1,234\n" in localized
    for each in both:
        links = {(text[slice(*link.source)], each.text[slice(*link.target)]) for link in each.alignment}
        assert ("Euro", "euros") in links
        assert ("1.000,50", "1.000,50" if each is both[0] else "1,000.50") in links
    assert translator.translate([text])[0].translations[0].text == copied


def test_numbers_in_cells_of_markup_are_localized(translator) -> None:
    text = "<table><tr><td>3,50</td><td>1.000 Hunde</td></tr></table>"
    (found,) = translator.translate([text], markup=Markup("html"), protection=Protection(numbers="localize"))
    assert found.translations[0].text == "<table><tr><td>3.50</td><td>1,000 dogs</td></tr></table>"


def test_numbers_of_unknown_languages_are_refused(translator) -> None:
    languages = translator.config.languages.model_copy(update={"target": "tlh"})
    config = translator.config.model_copy(update={"languages": languages})
    model = copy.copy(translator)
    model.config = config
    with pytest.raises(QueryError, match="numbers: how the language 'tlh' writes numbers is not known"):
        model.query("3,50", protection=Protection(numbers="localize"))


def test_a_request_names_parts(translator) -> None:
    text = "Mein Bruder arbeitet mit Haus Grün und Blauer Engel."
    protection = Protection(patterns=("Haus Grün", "Blauer? Engel"))
    (found,) = translator.translate([text], protection=protection, alignment=True)
    best = found.translations[0]
    assert best.text.count("Haus Grün") == best.text.count("Blauer Engel") == 1
    links = {(text[slice(*each.source)], best.text[slice(*each.target)]) for each in best.alignment}
    assert {("Bruder", "brother"), ("Haus Grün", "Haus Grün"), ("Blauer Engel", "Blauer Engel")} <= links


def test_parameters_become_a_protection(translator) -> None:
    assert TranslateParams().protection() == Protection()
    chosen = TranslateParams(protect=["a+"], protect_kinds=["url"])
    assert chosen.protection() == Protection(("url",), ("a+",))
    assert TranslateParams(protect_kinds=[]).protection() == Protection(())
    with pytest.raises(QueryError, match=r"protect\.0: '\(' is no regular expression"):
        TRANSLATE.query(translator, "a", TranslateParams(protect=["("]), None)


def test_parts_that_were_kept_are_no_reason_for_low_confidence(translator) -> None:
    (found,) = translator.translate(["Besuchen Sie https://a.de/b für mehr Informationen."])
    assert not found.low_confidence
