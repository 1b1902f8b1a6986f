"""What of Markdown is translated, and how it is written again."""

import sys

import pytest

from models import QueryError
from models.text.markup import Markup, markdown
from models.text.markup.document import ATOMS
from tests.support.markup import linked_translation

A, B = chr(ATOMS[0]), chr(ATOMS[1])


def texts(source: str) -> list[str]:
    return [block.text for block in Markup("markdown").document(source).blocks]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# Titel #\n\nText *mit* **Tags**\nund Zeilen", ["Titel", "Text mit Tags und Zeilen"]),
        ("* Milch\n* Brot\n  und Butter\n\n> Zitat\n> hier", ["Milch", "Brot und Butter", "Zitat hier"]),
        ("| Kopf | b |\n|---|---|\n| Zelle | Zelle |", ["Kopf", "b", "Zelle", "Zelle"]),
        ("```\nNein\n```\n\n    Nein\n\n<div>\nNein\n</div>\n\n[a]: http://b 'Nein'", []),
        ("Der `Befehl` und <http://a.de>", [f"Der {A} und {B}"]),
        ("Ein [Link *hier*](http://a 'b') ![Bild](b)", ["Ein Link hier"]),
        ("Zeile  \nzwei\\\ndrei", ["Zeile", "zwei", "drei"]),
        ("Ein <b>Wort</b> \\* &amp;", ["Ein Wort * &"]),
    ],
)
def test_blocks(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


def translation(source: str, text: str, links: list[tuple[str, str]]) -> str:
    return linked_translation(Markup("markdown"), source, text, links)


def test_tags_follow_their_words() -> None:
    links = [("Gestern", "yesterday"), ("Hund", "dog")]
    found = translation('> Gestern sah ich *den* [Hund](b "c").\n', "I saw a dog yesterday.", links)
    assert found == '> I saw a [dog](b "c") yesterday.\n'


def test_characters_that_would_be_markup_are_escaped() -> None:
    assert translation("Wort", "*a* _b_ `c` [d] <e> a_b &amp; \\", []) == (
        "\\*a\\* \\_b\\_ \\`c\\` \\[d\\] \\<e> a_b \\&amp; \\\\"
    )
    assert translation("Wort", "1. b", []) == "1\\. b"
    assert translation("Wort", "- b", []) == "\\- b"
    assert translation("**Ein  \nWort** a", "a\n- b", [("Ein", "a"), ("Wort", "b")]) == "**a  \n\\- b**"


def test_a_translation_that_would_be_other_blocks_is_left_out() -> None:
    source = "**Hallo ***  \nHallo  \nHallo ***** Hallo****"
    (block,) = Markup("markdown").document(source).blocks
    for text in ("- a", "1. a", "> a", "# a", "a\n***", "a\n===", "```"):
        assert block.spelling.block(text) is None, text
    for text in ("-a", "1.a", "*a* b", "a - b", "\\- a", "** a**"):
        assert block.spelling.block(text) == text
    assert block.spelling.block(" a ") == "a"


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(QueryError, match="the limit is 200000"):
        texts("a" * 200_001)
    markdown._parser.cache_clear()
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    with pytest.raises(QueryError, match=r"softserve\[markup\]"):
        texts("a")
    markdown._parser.cache_clear()
