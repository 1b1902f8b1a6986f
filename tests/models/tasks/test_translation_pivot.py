"""Translation through a third language, of results made by hand: spans, links, terms and confidence."""

import pytest

from models.tasks.translation_pivot import FirstSentence, FirstStep, demanding, joined, with_places
from models.tasks.translation_results import (
    Link,
    Translated,
    TranslatedSentence,
    TranslatedWord,
    Translation,
)
from models.text.glossary import Glossary
from models.text.markup import PLAIN, Markup

TEXT = "Ein Hund. Er schläft."
WRITTEN = "A dog. He sleeps."
SPANS = (((0, 9), (0, 6)), ((10, 21), (7, 17)))


def translation(text, *translations, confidence=None, low=False):
    return Translation(text, translations, low, confidence=confidence)


def first(*, links=None, confidence=0.5, sentences=None, low=False):
    found = translation(TEXT, Translated(WRITTEN, -1.0, links, sentences), confidence=confidence, low=low)
    parts = tuple(FirstSentence(source, target, WRITTEN[slice(*target)]) for source, target in SPANS)
    return FirstStep(found, "a:1", "eng", PLAIN, parts)


def second(**options):
    return [
        translation("A dog.", Translated("Un chien !", -0.5), Translated("Chien.", -0.9), confidence=0.8, **options),
        translation("He sleeps.", Translated("Il dort.", -0.25), confidence=0.4),
    ]


def test_what_stands_between_sentences_is_that_of_the_first_translation():
    found = joined(first(), second(), "b:2")
    assert [(each.text, each.score) for each in found.translations] == [
        ("Un chien ! Il dort.", -0.75),
        ("Chien. Il dort.", -1.15),
    ]
    assert (found.text, found.via, found.models) == (TEXT, "en", ("a:1", "b:2"))


def test_the_confidence_is_the_product_of_both_steps():
    assert joined(first(), second(), "b:1").confidence == pytest.approx(0.5 * 0.4)
    assert joined(first(confidence=None), second(), "b:1").confidence is None


def test_either_step_can_be_doubtful():
    assert not joined(first(), second(), "b:1").low_confidence
    assert joined(first(low=True), second(), "b:1").low_confidence
    assert joined(first(), second(low=True), "b:1").low_confidence


def test_links_meet_in_the_third_language():
    own = (Link((4, 8), (2, 5)), Link((10, 12), (7, 9)), Link((13, 20), (10, 16)))
    both = [
        translation("A dog.", Translated("Un chien !", 0.0, (Link((0, 1), (0, 2)), Link((2, 5), (3, 8))))),
        translation("He sleeps.", Translated("Il dort.", 0.0, (Link((0, 2), (0, 2)), Link((3, 9), (3, 7))))),
    ]
    (found,) = joined(first(links=own), both, "b:1").translations
    pairs = [(TEXT[slice(*link.source)], found.text[slice(*link.target)]) for link in found.alignment]
    assert pairs == [("Hund", "chien"), ("Er", "Il"), ("schläft", "dort")]


def test_there_are_no_links_where_one_step_has_none():
    assert joined(first(links=()), second(), "b:1").translations[0].alignment is None


def test_sentences_have_the_confidence_of_both_steps_and_the_words_of_the_second():
    own = tuple(TranslatedSentence(source, target, 0.5, ()) for source, target in SPANS)
    word = TranslatedWord((0, 2), 0.7)
    rated = TranslatedSentence((0, 10), (0, 8), 0.4, (word,))
    both = [
        translation("A dog.", Translated("Un chien !", 0.0, None, ())),
        translation("He sleeps.", Translated("Il dort.", 0.0, None, (rated,))),
    ]
    one, other = joined(first(sentences=own), both, "b:1").translations[0].sentences
    assert (one.source, one.target, one.confidence) == ((0, 9), (0, 10), None)
    assert (other.source, other.target, other.confidence) == ((10, 21), (11, 19), pytest.approx(0.2))
    assert other.words == (TranslatedWord((11, 13), 0.7),)


def test_a_text_with_markup_is_translated_again_as_a_whole():
    found = translation("<p>Hund</p>", Translated("<p>dog</p>", -1.0), confidence=0.5)
    step = FirstStep(found, "a:1", "en", Markup("html"), None)
    result = joined(step, [translation("<p>dog</p>", Translated("<p>chien</p>", -2.0))], "b:1")
    assert (result.translations[0].text, result.text) == ("<p>chien</p>", "<p>Hund</p>")


def demanded(links, text="A big dog.", **glossary):
    found = translation("Ein großer Hund.", Translated(text, 0.0, tuple(links)))
    sentence = FirstSentence((0, 16), (0, len(text)), text)
    return demanding(sentence, found, Glossary.of(glossary), ("de", "en"))


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ([((11, 15), (6, 9))], "dog"),
        ([((11, 15), (0, 1)), ((11, 15), (6, 9))], "dog"),
        ([((11, 15), (2, 5)), ((11, 15), (6, 9))], "big dog"),
        ([((11, 15), (9, 10))], None),
        ([((0, 3), (6, 9))], None),
    ],
    ids=["a word", "without the article", "two words", "a mark", "no word"],
)
def test_a_term_is_demanded_for_the_words_that_are_linked_with_it(links, words):
    sentence = demanded((Link(*each) for each in links), Hund="chien")
    (term,) = sentence.terms
    assert (term.span, term.target) == ((11, 15), "chien")
    found = sentence.demands.terms(sentence.text, "en")
    assert [(sentence.text[slice(*each.span)], each.target) for each in found] == ([(words, "chien")] if words else [])


def test_uses_of_terms_are_places_of_the_text_and_the_translation():
    sentence = demanded([Link((11, 15), (6, 9))], Hund="chien")
    found = translation("Ein großer Hund.", Translated(sentence.text, 0.0))
    step = FirstStep(found, "a:1", "en", PLAIN, (sentence,), has_glossary=True)
    for text, target in (("Un grand chien.", (9, 14)), ("Une bête.", None)):
        (use,) = joined(step, [translation("", Translated(text, 0.0))], "b:1").translations[0].glossary
        assert (use.term, use.used, use.source, use.target) == ("Hund", target is not None, (11, 15), target)


def test_protected_parts_are_found_again_the_longest_first():
    sentence = FirstSentence((0, 1), (0, 1), "By A and A-B.")
    assert with_places(sentence, {"A", "A-B", "C"}).protected == ((3, 4), (9, 12))
    assert with_places(sentence, ()).protected == ()
