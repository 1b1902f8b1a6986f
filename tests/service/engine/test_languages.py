"""Language pairs: direct ones, those through a third language, and which one a request gets."""

from types import SimpleNamespace

import pytest

from models import QueryError
from models.tasks.translation import TRANSLATE, Languages
from service.engine.languages import find_pair, language_pairs
from service.engine.served_models import NotReady

GERMAN, ENGLISH = "Wo ist denn hier der nächste Bahnhof, bitte?", "Where is the next station, please?"


def translator(name, source, target, version=1, **languages):
    config = SimpleNamespace(languages=Languages(source=source, target=target, **languages))
    return SimpleNamespace(key=(name, version), model=SimpleNamespace(offers=("translate",), config=config))


def pairs_of(*served, setting="any"):
    models = SimpleNamespace(served={each.key: each for each in served}, ready=True)
    return language_pairs(models, TRANSLATE, setting)


def shown(pairs):
    return {(pair.source, pair.target): pair.via for pair in pairs}


CHAIN = (translator("de-en", "de", "en"), translator("en-fr", "en", "fr"))
MANY = translator("many", "de", "en", sources={"de": 1, "fr": 2}, targets={"de": 1, "en": 3, "fr": 2})


def test_two_models_lead_through_a_third_language():
    pairs = pairs_of(*CHAIN)
    assert shown(pairs) == {("de", "en"): None, ("en", "fr"): None, ("de", "fr"): "en"}
    assert pairs[-1].models == ("de-en:1", "en-fr:1")


def test_there_is_at_most_one_third_language_and_none_where_a_model_is_direct():
    direct = translator("de-fr", "deu", "fra")
    assert shown(pairs_of(*CHAIN, direct)) == {("de", "en"): None, ("en", "fr"): None, ("deu", "fra"): None}
    assert ("de", "es") not in shown(pairs_of(*CHAIN, translator("fr-es", "fr", "es")))


@pytest.mark.parametrize(
    ("setting", "via"), [("any", "en"), ("nl", "nl"), ("nl,en", "nl"), ("en, nl", "en"), ("none", None), ("es", None)]
)
def test_the_setting_chooses_among_third_languages(setting, via):
    pairs = pairs_of(*CHAIN, translator("de-nl", "de", "nl"), translator("nl-fr", "nl", "fr"), setting=setting)
    assert shown(pairs).get(("de", "fr")) == via


def test_languages_keep_the_spelling_of_their_models():
    pairs = pairs_of(translator("a", "deu_Latn", "eng_Latn"), translator("b", "en", "pt_BR"))
    found = find_pair(pairs, "de", "PT")
    assert (found.source, found.target, found.via) == ("deu_Latn", "pt_BR", "en")
    assert (found.through.written, found.through.read) == ("eng_Latn", "en")


def test_the_newest_version_of_a_model_is_used():
    pairs = pairs_of(translator("de-en", "de", "en", 1), translator("de-en", "de", "en", 2), CHAIN[1])
    assert find_pair(pairs, "de", "en").models == ("de-en:2",)
    assert find_pair(pairs, "de", "fr").models == ("de-en:2", "en-fr:1")


def test_the_language_of_the_text_chooses_the_model():
    pairs = pairs_of(*CHAIN)
    assert find_pair(pairs, None, "fr", read=lambda: GERMAN).via == "en"
    assert find_pair(pairs, None, "fr", read=lambda: ENGLISH).via is None
    assert find_pair(pairs, None, "fr", read=lambda: "123").via is None


def test_a_model_of_several_languages_detects_each_text_itself():
    pairs = pairs_of(MANY, translator("en-es", "en", "es"))
    assert find_pair(pairs, None, "en").detected
    found = find_pair(pairs, None, "es", read=lambda: GERMAN)
    assert (found.models, found.detected) == (("many:1", "en-es:1"), True)
    assert not find_pair(pairs, "fr", "es").detected
    assert find_pair(pairs, None, "es", read=lambda: ENGLISH).models == ("en-es:1",)


def test_only_a_choice_among_models_reads_the_text():
    def read():
        raise AssertionError

    assert find_pair(pairs_of(*CHAIN), None, "en", read=read).source == "de"
    assert find_pair(pairs_of(MANY), None, "en", read=read).detected


def test_a_pair_that_no_model_has_is_refused_and_the_others_are_named():
    with pytest.raises(QueryError, match=r"^no model translates from 'fr' to 'de'; served: de to en, de to fr, en to"):
        find_pair(pairs_of(*CHAIN), "fr", "de")


def test_there_are_no_pairs_before_the_models_are_loaded():
    with pytest.raises(NotReady):
        language_pairs(SimpleNamespace(served={}, ready=False), TRANSLATE, "any")
