"""Parts of XML that are translated, and XML that is refused."""

from typing import Any

import pytest

from models import QueryError
from models.text.markup import BlockTags, Markup
from models.text.markup.builder import MAX_TAGS


def texts(source: str, **chosen: Any) -> list[str]:
    return [block.text for block in Markup("xml", **chosen).document(source).blocks]


def test_elements_with_text_are_blocks() -> None:
    assert texts("Hallo <x>Welt</x>!") == ["Hallo Welt!"]
    assert texts("<a>\n <b>Hallo <c/><d>Welt</d></b>\n <b>Zwei</b></a>") == ["Hallo Welt", "Zwei"]
    assert texts("<?xml version='1.0'?>\n<a><?p x?><![CDATA[ nein ]]><B t='1>0'>Ja</B></a>") == ["Ja"]


def test_elements_are_left_alone() -> None:
    source = "<a><p translate='no'>Nein</p><q><p>Nein</p></q><p>Ja</p></a>"
    assert texts(source, ignore_tags=("q",)) == ["Ja"]
    assert texts("<a n='Ein Hund'/>", translate_attributes=("n",)) == ["Ein Hund"]
    assert texts("<a n='Nein' translate='no'/><q n='Nein'/>", ignore_tags=("q",), translate_attributes=("n",)) == []


@pytest.mark.parametrize(
    ("block_tags", "expected"),
    [
        (BlockTags(), ["Er sagte, es sei gut.", "Eins", "Zwei"]),
        (BlockTags(splitting=frozenset({"q"})), ["Er sagte,", "es sei gut.", "Eins", "Zwei"]),
        (BlockTags(non_splitting=frozenset({"r"})), ["Er sagte, es sei gut.", "Eins Zwei"]),
        (BlockTags(detect=False), ["Er sagte, es sei gut. Eins Zwei"]),
        (BlockTags(splitting=frozenset({"p"}), detect=False), ["Er sagte, es sei gut.", "Eins Zwei"]),
        (BlockTags(splitting=frozenset({"r"}), detect=False), ["Er sagte, es sei gut.", "Eins", "Zwei"]),
        (
            BlockTags(splitting=frozenset({"q"}), non_splitting=frozenset({"q"})),
            ["Er sagte,", "es sei gut.", "Eins", "Zwei"],
        ),
    ],
)
def test_elements_that_end_a_block_can_be_named(block_tags: BlockTags, expected: list[str]) -> None:
    source = "<a><p>Er sagte, <q>es sei <b>gut</b>.</q></p> <p><r>Eins</r> <r>Zwei</r></p></a>"
    assert texts(source, block_tags=block_tags) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("<a>", "mismatched tag, line 1, column 6"),
        ("<a></b>", "mismatched tag, line 1, column 6"),
        ("a\n & b", "not well-formed (invalid token), line 2, column 3"),
        ("</text><text>", "junk after document element"),
        ("<a>&nbsp;</a>", "undefined entity"),
        (
            "<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>&x;</a>",
            "a document type declaration is not accepted",
        ),
        (
            "<!DOCTYPE a [<!ENTITY x 'ha'><!ENTITY y '&x;&x;'>]><a>&y;</a>",
            "a document type declaration is not accepted",
        ),
        ("<!DOCTYPE a SYSTEM 'http://127.0.0.1/a.dtd'><a/>", "a document type declaration is not accepted"),
        ("<a>" * 1001 + "</a>" * 1001, "more than 1000 elements within each other"),
    ],
)
def test_what_is_refused(source: str, message: str) -> None:
    with pytest.raises(QueryError) as found:
        texts(source)
    assert message in str(found.value)


def test_tags_are_limited() -> None:
    with pytest.raises(QueryError, match="tags"):
        texts("<a/>" * (MAX_TAGS + 1))
