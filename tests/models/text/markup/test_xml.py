"""Parts of XML that are translated, and XML that is refused."""

import pytest

from models import QueryError
from models.text.markup import Markup
from models.text.markup.builder import MAX_TAGS


def texts(source: str, **chosen: tuple[str, ...]) -> list[str]:
    return [block.text for block in Markup("xml", **chosen).document(source).blocks]


def test_elements_with_text_are_blocks() -> None:
    assert texts("Hallo <x>Welt</x>!") == ["Hallo Welt!"]
    assert texts("<a>\n <b>Hallo <c/><d>Welt</d></b>\n <b>Zwei</b></a>") == ["Hallo Welt", "Zwei"]
    assert texts("<?xml version='1.0'?>\n<a><?p x?><![CDATA[ nein ]]><B t='1>0'>Ja</B></a>") == ["Ja"]


def test_elements_are_left_alone() -> None:
    source = "<a><p translate='no'>Nein</p><q><p>Nein</p></q><p>Ja</p></a>"
    assert texts(source, ignore_tags=("q",)) == ["Ja"]
    assert texts("<a n='Ein Hund'/>", translate_attributes=("n",)) == ["Ein Hund"]


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
