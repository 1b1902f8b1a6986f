"""Translations of texts with markup by the bundled model."""

import pytest

from benchmarks.tagged_fragments import tagged_fragments
from benchmarks.tags import kept_tags
from models import QueryError
from models.decoding.beam_search import SearchOptions
from models.errors import TooManyPartsError
from models.tasks.translation import MarkupQuery
from models.text.markup import Markup

HTML = Markup("html")


@pytest.fixture(scope="module")
def translator(store):
    return store.load("de-en", threads=1)


def test_fragments_keep_their_trees_and_what_tags_enclose(translator) -> None:
    fragments = tagged_fragments(100)
    found = translator.translate([each.markup for each in fragments], markup=HTML)
    pairs = [(each, result.translations[0].text) for each, result in zip(fragments, found, strict=True)]
    kept = kept_tags(pairs)
    assert kept.trees == 100
    assert kept.enclosing >= 0.97 * kept.tags
    assert kept.enclosing == kept.tags - kept.lost


def test_a_text_without_inline_tags_is_translated_as_before(translator) -> None:
    text = "Um 14:30 Uhr kostet es 3,50 €. Tom hat 3 Hunde."
    (plain,) = translator.translate([text])
    (found,) = translator.translate([f"<div>\n<p><b> {text}</b></p></div>"], markup=HTML)
    best = plain.translations[0]
    assert found.translations[0].text == f"<div>\n<p><b> {best.text}</b></p></div>"
    assert found.translations[0].score == pytest.approx(best.score)


def test_attention_is_asked_for_where_there_are_inline_tags(translator) -> None:
    query = translator.query("<p>Guten Morgen.</p><p>Ja, <i>guten</i> Abend.</p>", markup=HTML)
    assert isinstance(query, MarkupQuery)
    assert [part.options.attention for part in query.parts()] == [False, True]
    assert query.result_items > 0


def test_a_text_is_one_query_with_limited_sentences(translator) -> None:
    text = "<p>Ja. Nein.</p><p>Gut. Schlecht.</p>"
    assert len(translator.query(text, markup=HTML, max_sentences=4).parts()) == 4
    with pytest.raises(TooManyPartsError):
        translator.query(text, markup=HTML, max_sentences=3)


def test_code_is_carried_along(translator) -> None:
    text = "<p>Nutzen Sie <code>ls &lt;b&gt;</code>, um die Dateien zu sehen.</p><pre>Nein &uuml;</pre>"
    for beam_size in (1, 5):
        (found,) = translator.translate([text], beam_size, markup=HTML)
        assert found.translations[0].text.count("<code>ls &lt;b&gt;</code>") == 1
        assert found.translations[0].text.endswith("</p><pre>Nein &uuml;</pre>")


def test_texts_without_words_come_back_as_they_are(translator) -> None:
    for text in ("", "<p> </p>", "<b>3</b>&nbsp;<i>€</i>", "<!-- nur ein Kommentar -->", "<p><a href=x>123</a>"):
        (found,) = translator.translate([text], markup=HTML)
        assert found.translations[0].text == text


def test_confidence_and_language_are_those_of_the_text(translator) -> None:
    (found,) = translator.translate(["<p class='x'>Guten <b>Morgen</b>!</p>"], markup=HTML)
    assert not found.low_confidence
    (found,) = translator.translate(["<p>This is <b>not</b> a German sentence at all.</p>"], markup=HTML)
    assert found.low_confidence
    assert found.detected_language == "en"


def test_samples_keep_their_tags(translator) -> None:
    options = SearchOptions(n_best=4, temperature=1.5, seed=3)
    (found,) = translator.translate(["Tom <b>hat</b> 3 <br> Hunde."], 4, options=options, markup=HTML)
    assert [each.text.count("<b>") for each in found.translations] == [1] * 4


def test_there_is_no_alignment_of_markup(translator) -> None:
    with pytest.raises(QueryError, match="alignment"):
        translator.translate(["<b>Ja</b>"], alignment=True, markup=HTML)
