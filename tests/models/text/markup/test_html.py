"""Parts of HTML that are translated, left alone, or carried along within a sentence."""

from typing import Any

import pytest

from models import QueryError
from models.text.markup import BlockTags, Markup
from models.text.markup.builder import MAX_DEPTH, MAX_TAGS
from models.text.markup.document import ATOMS
from tests.support.markup import linked_translation

A, B = chr(ATOMS[0]), chr(ATOMS[1])


def texts(source: str, **chosen: Any) -> list[str]:
    return [block.text for block in Markup("html", **chosen).document(source).blocks]


def test_elements_that_end_a_block_can_be_named() -> None:
    source = "<p>Er sagte, <b>es sei <i>gut</i>.</b></p><li>Eins</li>"
    assert texts(source, block_tags=BlockTags(splitting=frozenset({"b"}))) == ["Er sagte,", "es sei gut.", "Eins"]
    assert texts(source, block_tags=BlockTags(detect=False)) == ["Er sagte, es sei gut.Eins"]
    assert texts("<div>Eins</div>", block_tags=BlockTags(non_splitting=frozenset({"div"}))) == ["Eins"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Hallo <b>Welt</b>!", ["Hallo Welt!"]),
        ("<p>Hallo</p>\n<p>Welt", ["Hallo", "Welt"]),
        ("<ul><li>Milch<li>Brot</ul>", ["Milch", "Brot"]),
        ("<td>Milch</td><td>Brot</td>", ["Milch", "Brot"]),
        ("<p>Ein\n   langer\tSatz</p>", ["Ein langer Satz"]),
        ("Zeile<br>Zeile zwei", ["Zeile", "Zeile zwei"]),
        ("Ja <b>Zeile <br/> zwei</b>", ["Ja Zeile \nzwei"]),
        ("Hallo<!-- c --> Welt", ["Hallo Welt"]),
        ("Hallo <img src=x> Welt", ["Hallo Welt"]),
        ("<title>Hallo &amp; <b></title>", ["Hallo & <b>"]),
        ("Tom &amp; Anna &lt;3", ["Tom & Anna <3"]),
        ("10&nbsp;Euro &copy;", [f"10 Euro {A}"]),
        ("<pre>Nein</pre><style>p {}</style><script>var a = '<p>Nein</p>'</script><textarea>Nein</textarea>", []),
        ("<p translate=no>Nein</p><p class='a notranslate'>Nein</p>Ja", ["Ja"]),
        ("Der Befehl <code>ls <b>-l</b></code> und <span translate=no>Haus</span>.", [f"Der Befehl {A} und {B}."]),
        ("<p>Ja <b>nein</p>", ["Ja", "nein"]),
        ("Ja <b>nein <i>doch</b> gut</i>", ["Ja", "nein", "doch", "gut"]),
        ("a < b", ["a < b"]),
        ("<p>\n <!-- c --> </p>&nbsp;", []),
    ],
)
def test_blocks(source: str, expected: list[str]) -> None:
    assert texts(source) == expected or [text.strip() for text in texts(source) if text.strip()] == expected


def test_elements_and_attributes_are_chosen() -> None:
    source = "<p>Ja <q>nein</q></p><aside>Nein</aside><img alt='Ein Hund' title=Haus><input placeholder=\"Ihr Name\">"
    assert texts(source, ignore_tags=("Q", "aside")) == [f"Ja {A}"]
    chosen = texts(source, translate_attributes=("alt", "placeholder"))
    assert chosen == ["Ja nein", "Nein", "Ein Hund", "Ihr Name"]


def translation(source: str, text: str, links: list[tuple[str, str]], **chosen: tuple[str, ...]) -> str:
    return linked_translation(Markup("html", **chosen), source, text, links)


def test_tags_follow_their_words() -> None:
    found = translation(
        "<p>Gestern habe ich <b>den <i>großen</i> Hund</b> gesehen.</p>",
        "I saw the big dog yesterday.",
        [("Gestern", "yesterday"), ("den", "the"), ("großen", "big"), ("Hund", "dog"), ("gesehen", "saw")],
    )
    assert found == "<p>I saw <b>the <i>big</i> dog</b> yesterday.</p>"


def test_siblings_change_their_order() -> None:
    found = translation(
        "<i>Heute</i> ist <b>Montag</b>.", "It is Monday today.", [("Heute", "today"), ("Montag", "Monday")]
    )
    assert found == "It is <b>Monday</b> <i>today</i>."


def test_numbers_and_names_need_no_links() -> None:
    found = translation("<b>Anna</b> hat <i>1.000,50</i> Euro.", "It is 1,000.50 euros that Anna has.", [])
    assert found == "It is <i>1,000.50</i> euros that <b>Anna</b> has."


def test_certain_words_outweigh_links() -> None:
    found = translation("Tom sah <b>Anna 3</b> mal.", "Tom saw Anna 3 times.", [("Anna", "Tom"), ("3", "Tom")])
    assert found == "Tom saw <b>Anna 3</b> times."


def test_an_element_without_words_is_behind_its_neighbour() -> None:
    assert translation("Er kommt <b>ja</b> heute.", "He comes today.", [("kommt", "comes"), ("heute", "today")]) == (
        "He comes<b></b> today."
    )


def test_points_are_behind_the_word_before_them() -> None:
    links = [("Wort", "word"), ("kommt", "comes")]
    assert translation("Ein Wort <img src=x> kommt.", "A word comes.", links) == "A word <img src=x> comes."
    assert translation("Ein Wort<img src=x> kommt.", "A word comes.", links) == "A word<img src=x> comes."
    assert translation("Ein Wort <img src=x>kommt.", "A word comes.", links) == "A word <img src=x>comes."


def test_line_breaks_within_elements_are_kept() -> None:
    assert translation("Ja <b>Zeile<br>zwei</b>", "Yes line\ntwo", [("Zeile", "line"), ("zwei", "two")]) == (
        "Yes <b>line<br>two</b>"
    )


def test_elements_left_alone_stay_in_their_parent() -> None:
    found = translation("Ja <b>Wort <code>x</code></b> nein", f"{A} yes word no", [("Wort", "word"), ("nein", "no")])
    assert found == "<b><code>x</code> yes word</b> no"


def test_characters_are_written_as_they_were() -> None:
    assert translation("Tom &amp; <i>Anna</i> &lt; 3", "Tom & Anna < 3", []) == "Tom &amp; <i>Anna</i> &lt; 3"
    assert translation("Tom & Anna > 3", "Tom & Anna > 3", []) == "Tom & Anna > 3"
    assert translation("sch&ouml;n", "a&b; ö<b>", []) == "a&amp;b; &ouml;&lt;b&gt;"
    assert translation("10&nbsp;Euro", "10 euros", []) == "10&nbsp;euros"
    assert translation("Ja &copy;", f"Yes {A}", []) == "Yes &copy;"


def test_values_of_attributes_are_escaped() -> None:
    chosen = ("title",)
    assert translation("<hr title='Haus'>", "it's <", [], translate_attributes=chosen) == "<hr title='it&#39;s &lt;'>"
    assert translation("<hr title=Haus>", 'a "b"', [], translate_attributes=chosen) == '<hr title="a &quot;b&quot;">'


def test_limits() -> None:
    with pytest.raises(QueryError, match=f"more than {MAX_TAGS} tags"):
        texts("<p>" * (MAX_TAGS + 1))
    with pytest.raises(QueryError, match=f"more than {MAX_DEPTH} inline elements"):
        texts("<b>" * (MAX_DEPTH + 1) + "a" + "</b>" * (MAX_DEPTH + 1))


def test_many_inline_tags_stay_where_they_are() -> None:
    assert len(texts("<b>Ja</b> nein " * 300)) == 600
    assert len(texts("<b>Ja</b> nein " * 100)) == 1


@pytest.mark.parametrize("text", ["<", "<b", "<b a='", "</", "<!--", "&", "<a ", "<b><i>", "<code>", "<br>x"])
def test_hostile_texts_take_linear_time(text: str) -> None:
    texts(text * 2000) if not text.startswith("<b><") else texts(text * 40)
