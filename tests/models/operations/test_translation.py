"""The record of a translation with links between words."""

import json

import pytest

from models import ModelStore
from models.operations.translation import TranslateParams
from models.tasks.translation import TRANSLATE
from service.settings import BUNDLED


@pytest.fixture(scope="module")
def translator():
    return ModelStore(BUNDLED).load("de-en", threads=1)


def answer(translator, text, **params):
    chosen = TranslateParams(**params)
    query = TRANSLATE.query(translator, text, chosen, None)
    result = translator.result(query, translator.decoder.search(query.parts()))
    return json.loads(TRANSLATE.json_of(result, chosen)), TRANSLATE.content_of(result, chosen)


def test_links_are_spans_of_both_texts(translator) -> None:
    text = "Hallo! 😀 Anna hat 3 Hunde.\n\tTom wohnt in Berlin."
    plain, validated = answer(translator, text, alignment=True, n_best=2)
    assert plain == validated
    assert len(plain["translations"]) == 2
    best = plain["translations"][0]
    words = {(text[slice(*each["source"])], best["text"][slice(*each["target"])]) for each in best["alignment"]}
    assert {("Hallo", "Hello"), ("Anna", "Anna"), ("3", "3"), ("Hunde", "dogs"), ("Berlin", "Berlin")} <= words


def test_there_are_none_without_the_parameter(translator) -> None:
    plain, validated = answer(translator, "Hallo!")
    assert plain == validated
    assert set(plain["translations"][0]) == {"text", "score"}


def test_a_text_without_words_has_no_links(translator) -> None:
    plain, _ = answer(translator, "😀", alignment=True)
    assert plain["translations"] == [{"text": "😀", "score": 0.0, "alignment": []}]


def test_links_count_as_items_of_the_result(translator) -> None:
    one, other = (translator.query("Guten Morgen!", alignment=each).result_items for each in (True, False))
    assert one == 4 * other
