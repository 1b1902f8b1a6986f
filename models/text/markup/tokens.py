"""Tokens of HTML and XML with their places in the text, so that all but the translated text can stay as it is.

HTML is read as the HTML standard's tokenizer does it ("13.2.5 Tokenization"), in which no text is an error.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from models.text.words import Span

__all__ = ["Attribute", "Token", "tokens_of"]

_NAME = re.compile(r"</?([A-Za-z][^\s/>]*)")
_XML_NAME = re.compile(r"</?([^\s/>!?<&=\"']+)")
_ATTRIBUTE = re.compile(r"(=?[^\s/>=]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>][^\s>]*)|(?=>)))?")
_GAP = re.compile(r"[\s/]*")
_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)
_BOGUS = re.compile(r"<(?:[!?]|/(?=[^A-Za-z]))[^>]*(?:>|\Z)")
_CDATA = re.compile(r"<!\[CDATA\[.*?\]\]>", re.DOTALL)
_INSTRUCTION = re.compile(r"<\?.*?\?>", re.DOTALL)
_RAW = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")
}
"""The end of elements of HTML in which there are no tags."""

Kind = Literal["start", "end", "empty", "text", "raw", "other"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute with a value."""

    name: str
    """The name, which is in lower case in HTML."""
    value: Span
    """Its value, without quotation marks."""
    quote: str
    """The quotation mark around the value, which may be none in HTML."""


@dataclass(frozen=True, slots=True)
class Token:
    """A tag, a piece of text, or other markup."""

    kind: Kind
    """`empty` is a tag that ends with `/>`, `raw` text without references, and `other` comments, declarations,
    processing instructions and sections of CDATA."""
    span: Span
    name: str = ""
    """The element of a tag, in lower case in HTML."""
    attributes: tuple[Attribute, ...] = ()


def tokens_of(text: str, *, xml: bool = False) -> Iterator[Token]:
    """Yield the tokens of a text, which joined are the text. XML must be well-formed, without a document type."""
    place, begun = 0, 0
    while (found := text.find("<", place)) >= 0:
        token = _markup(text, found, xml=xml)
        if token is None:
            place = found + 1
            continue
        if begun < found:
            yield Token("text", (begun, found))
        yield token
        place = begun = token.span[1]
        end = None if xml or token.kind != "start" else _RAW.get(token.name)
        if end is not None:
            closing = end.search(text, place)
            place = begun = len(text) if closing is None else closing.start()
            if token.span[1] < place:
                yield Token("text" if token.name in ("title", "textarea") else "raw", (token.span[1], place))
    if begun < len(text):
        yield Token("text", (begun, len(text)))


def _markup(text: str, start: int, *, xml: bool) -> Token | None:
    """Return the token that begins with `<`; None where it is text."""
    for pattern in (_COMMENT, *((_CDATA, _INSTRUCTION) if xml else (_BOGUS,))):
        if other := pattern.match(text, start):
            return Token("other", (start, other.end()))
    name = (_XML_NAME if xml else _NAME).match(text, start)
    if name is None:
        return None
    attributes: list[Attribute] = []
    place = name.end()
    while True:
        gap = _GAP.match(text, place)
        assert gap is not None
        place = gap.end()
        if text.startswith(">", place):
            break
        attribute = _ATTRIBUTE.match(text, place)
        if attribute is None:  # a tag without an end
            return Token("other", (start, len(text)))
        if attribute.lastindex is not None and attribute.lastindex > 1:
            value = attribute.span(attribute.lastindex)
            quote = ('"', "'", "")[attribute.lastindex - 2]
            attributes.append(Attribute(attribute[1] if xml else attribute[1].lower(), value, quote))
        place = attribute.end()
    is_empty = text[place - 1] == "/" and gap.start() < place
    kind: Kind = "end" if text[start + 1] == "/" else "empty" if is_empty else "start"
    return Token(kind, (start, place + 1), name[1] if xml else name[1].lower(), tuple(attributes))
