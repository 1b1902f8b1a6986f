"""The bundled German-English model: its translations, and that other sentences of the batch do not change them."""

import itertools
import random

import numpy as np
import pytest

from models import TextTooLongError, Translator
from models.decoding.beam_search import Hypothesis, SearchOptions

SUBJECTS = ["Ich", "Maria", "Mein kleiner Bruder", "Der alte Mann, der nebenan wohnt,", "Niemand"]
VERBS = ["hat", "sucht", "will", "braucht", "findet"]
OBJECTS = ["ein Buch", "Wasser", "einen Hund, der nicht beißt", "das"]
ENDS = [".", " nicht.", ", wenn es morgen regnet und wir zu Hause bleiben müssen!"]
BUDGET = 25_000_000
"""Bytes; history keeps every version."""


@pytest.fixture(scope="module")
def translator(store):
    model = store.load("de-en", threads=1)
    assert isinstance(model, Translator)
    return model


@pytest.fixture(scope="module")
def sentences():
    """100 different ones of mixed lengths, in mixed order."""
    parts = list(itertools.product(SUBJECTS, VERBS, OBJECTS, ENDS))
    return [f"{a} {b} {c}{d}" for a, b, c, d in random.Random(1).sample(parts, 100)]


def best(found):
    return [each.translations[0] for each in found]


def test_it_is_small(store):
    assert sum(file.stat().st_size for file in store.path("de-en").iterdir()) <= BUDGET


def test_it_says_how_good_it_is(translator):
    quality = {(each.dataset, each.split, each.metric): each.value for each in translator.manifest.quality}
    assert quality["tatoeba-de-en", "test", "BLEU"] >= 45
    assert {key[2] for key in quality if key[:2] == ("multi30k", "test")} == {"BLEU", "chrF"}
    lossy = translator.manifest.quantization
    assert lossy is not None
    assert lossy.value >= lossy.float32_value - 0.5


@pytest.mark.parametrize(
    ("german", "words"),
    [
        ("Guten Morgen!", {"good", "morning"}),
        ("Ich habe Hunger.", {"hungry"}),
        ("Wo ist der Bahnhof?", {"where", "station"}),
        ("Sie hat gestern ein Buch gelesen.", {"she", "book", "yesterday"}),
        ("Tom spricht kein Französisch.", {"tom", "french"}),
    ],
)
@pytest.mark.parametrize("beam_size", [1, 5])
def test_it_translates(translator, german, words, beam_size):
    (found,) = best(translator.translate([german], beam_size))
    assert words <= set(found.text.lower().replace(".", "").replace("!", "").replace("?", "").split())


def test_neighbours_do_not_change_a_translation(translator, sentences):
    """Batches of 1, 7 and 32 of mixed lengths."""
    alone = [best(translator.translate([text]))[0] for text in sentences]
    assert len({each.text for each in alone}) > 60
    for size in (7, 32):
        groups = [sentences[first : first + size] for first in range(0, len(sentences), size)]
        among = [each for group in groups for each in best(translator.translate(group))]
        assert [each.text for each in among] == [each.text for each in alone]
        assert [each.score for each in among] == pytest.approx([each.score for each in alone], abs=1e-5)


@pytest.mark.parametrize(
    "text",
    ["", " \n ", "🙂", "你好。再见！", "\0\x01\x1b[31m\x7f", "</s>", "Guten </s> Tag", "<unk>", "ß" * 300],
    ids=ascii,
)
def test_odd_texts_have_a_translation(translator, text):
    (found,) = translator.translate([text])
    assert found.text == text
    (one,) = found.translations
    if not text.strip():
        assert one.text == text


def test_a_very_long_sentence_is_refused_or_cut(translator):
    text = " ".join(["Wort"] * 5000)
    with pytest.raises(TextTooLongError, match="1000"):
        translator.translate([text])
    (found,) = translator.translate([text], 1, truncate=True)
    limit = 2 * translator.manifest.config.limits.max_tokens
    assert len(translator._tokenizer.encode_batch([found.translations[0].text])[0]) <= limit


def test_the_n_best_are_different_and_sorted(translator):
    (found,) = translator.translate(["Er kommt heute nicht."], 8, options=SearchOptions(n_best=8))
    scores = [each.score for each in found.translations]
    assert scores == sorted(scores, reverse=True)
    assert len({each.text for each in found.translations}) > 4


# ---- what must not be lost ----


@pytest.mark.parametrize(
    ("german", "english"),
    [
        ("Milch\nBrot", "milk\nbread"),
        ("Guten Morgen\nGute Nacht", "Good morning\nGood night"),
        ("Guten Morgen\u2028Gute Nacht", "Good morning\u2028Good night"),
        ("Guten Morgen  Gute Nacht", "Good morning  Good night"),
        ("***", "***"),
        ("∞", "∞"),
        (">", ">"),
        ("3 €", "3 €"),
        ("www.bahn.de", "www.bahn.de"),
        ("Die Kin-\nder", "The children\n"),
        ("Hallo\u200b We\u00adlt", "Hello world"),
        ("<b>Hallo</b> 😀", "<b>Hello</b> 😀"),
    ],
)
def test_nothing_is_lost(translator, german, english):
    (found,) = translator.translate([german])
    assert found.translations[0].text == english
    unsure = found.confidence is not None and found.confidence < translator.config.confidence.threshold
    assert found.low_confidence == unsure, "no check failed"


@pytest.mark.parametrize(
    ("german", "low"),
    [
        ("Wo ist der Bahnhof?", False),
        ("Es ist 8 Uhr.", False),
        ("Ich zahle 5 %.", False),
        ("Der Zug fährt um 6.30 Uhr ab.", False),
        ("Sie haben %d neue Nachrichten.", False),
        ("Das ist 50 £ wert.", False),
        ("Das kostet 1.000,50 €.", False),
        ("Das sind 20 °C.", False),
        ("Der Winkel α ist groß.", True),
        ("Guten Tag\nПривет", True),
    ],
)
def test_confidence_is_low_where_something_was_changed(translator, german, low):
    assert translator.translate([german])[0].low_confidence == low


@pytest.mark.parametrize(
    ("text", "low"),
    [
        ("The landlord can terminate the contract with three months' notice if the rent is not paid.", False),
        ("The landlord can terminate the contract" + " of the contract" * 8, True),
        ("The landlord can" * 6, True),
    ],
)
def test_a_translation_that_repeats_itself_has_little_confidence(translator, text, low):
    """The tokens of a loop are likely, each after those before it: their log-probabilities are high in all cases."""
    query = translator.query("Der Vermieter kann mit einer Frist von drei Monaten kündigen, wenn nicht gezahlt wird.")
    tokens = tuple(translator.target_ids(text))
    sums = np.cumsum([-0.2] * (len(tokens) + 1))
    found = translator.result(query, [[Hypothesis(tokens, sums[-1], -0.2, None, sums)]])
    assert (found.confidence < 0.5) == found.low_confidence == low


def test_no_replacement_character_is_emitted(translator):
    symbols = "€£¥∞✈☕♥²½№™°→■あ漢яא\u0301\ufe0f\u200d\U0001f600"
    texts = [text.format(each) for each in symbols for text in ("{0}", "Hallo {0} Welt", "{0}{0}", "Das ist 3 {0}.")]
    for found in translator.translate(texts, 4, options=SearchOptions(n_best=4)):
        assert not any("\ufffd" in each.text for each in found.translations)
    assert translator.translate(["\ufffd"])[0].translations[0].text == "\ufffd"


def test_lines_are_joined_on_demand(translator):
    text = "Wo ist\nder Bahnhof?\n"
    joined, apart = (translator.translate([text], join_lines=join)[0] for join in (True, False))
    assert joined.translations[0].text == "Where is the station?\n"
    assert apart.translations[0].text.count("\n") == 2


def test_sentences_in_capitals_are_read_as_others_and_written_in_capitals(translator):
    """Protected parts keep their case, and a word in capitals in another sentence is a word like others."""
    found = translator.translate(
        ["ACHTUNG! DIE TÜR IST GESCHLOSSEN.", "ÖFFNEN SIE config.yaml NICHT!", "Er rief: NEIN!"]
    )
    lower = translator.translate(["Achtung! Die tür ist geschlossen."])
    first, second, third = (each.translations[0].text for each in found)
    assert first == lower[0].translations[0].text.upper()
    assert "config.yaml" in second
    assert second.replace("config.yaml", "").isupper()
    assert not third.isupper()
