"""Translations by a glossary with the bundled model."""

import pytest

from models import QueryError
from models.decoding.beam_search import SearchOptions
from models.operations.translation import TranslateParams
from models.tasks.translation import TRANSLATE
from models.text.glossary import Glossary
from models.text.markup import Markup

GLOSSARY = Glossary.of({"Vertrag": "agreement", "Auto": "automobile*", "Haus": "residence"})


@pytest.fixture(scope="module")
def translator(store):
    return store.load("de-en", threads=1)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_terms_are_used(translator, beam_size) -> None:
    texts = {
        "Hast du den Vertrag gelesen?": "Have you read the agreement?",
        "Autos sind teuer.": "Automobiles are expensive.",
        "Das Auto steht vor dem Haus.": "The automobile is standing in front of the residence.",
    }
    found = translator.translate(list(texts), beam_size, glossary=GLOSSARY)
    assert [each.translations[0].text for each in found] == list(texts.values())


def test_uses_are_where_they_are_said_to_be(translator) -> None:
    text = "Hallo {name}! Der VERTRAG kostet 1.000 Euro. Das Auto ist rot."
    (found,) = translator.translate([text], glossary=GLOSSARY)
    best = found.translations[0]
    places = [(text[slice(*use.source)], best.text[slice(*use.target)]) for use in best.glossary]
    assert places == [("VERTRAG", "AGREEMENT"), ("Auto", "automobile")]
    assert all(use.used for use in best.glossary)


def test_sentences_without_terms_do_not_change(translator) -> None:
    texts = ["Guten Morgen!", "Wo ist der Bahnhof?", "Hast du den Vertrag gelesen?"]
    free, bound = translator.translate(texts), translator.translate(texts, glossary=GLOSSARY)
    assert [(each.translations[0].text, each.translations[0].score) for each in bound[:2]] == [
        (each.translations[0].text, each.translations[0].score) for each in free[:2]
    ]
    assert bound[0].translations[0].glossary == ()
    assert free[0].translations[0].glossary is None


def test_terms_within_markup(translator) -> None:
    (found,) = translator.translate(["<p>Der <b>Vertrag</b> ist neu.</p>"], glossary=GLOSSARY, markup=Markup("html"))
    best = found.translations[0]
    assert best.text.startswith("<p>")
    assert "agreement</b> is new.</p>" in best.text
    assert [(use.term, use.used, use.source) for use in best.glossary] == [("Vertrag", True, None)]


def test_samples_are_refused(translator) -> None:
    with pytest.raises(QueryError, match="glossary"):
        translator.translate(["Hallo"], options=SearchOptions(temperature=1.0), glossary=GLOSSARY)


def test_the_parameter_and_the_record(translator) -> None:
    params = TranslateParams(glossary={"Vertrag": "agreement"})
    query = TRANSLATE.query(translator, "Der Vertrag ist neu.", params, None)
    result = translator.result(query, translator.decoder.search(query.parts()))
    assert TRANSLATE.content_of(result, params)["translations"][0]["glossary"] == [
        {"term": "Vertrag", "translation": "agreement", "used": True, "source": [4, 11], "target": [4, 13]}
    ]
