"""XML: any vocabulary. Elements with text of their own are blocks, and the elements within them inline.

It must be well-formed, but may be a fragment with several elements and text outside of them. Nothing is expanded or
read: a text with a document type declaration is refused, and with it entities of its own.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from xml.parsers import expat

from models.errors import QueryError
from models.text.markup.blocks import DETECTED, BlockTags
from models.text.markup.builder import MAX_TAGS, Builder, too_many_tags
from models.text.markup.document import Document
from models.text.markup.tokens import Attribute, Token, tokens_of

__all__ = ["xml_document"]

_ROOT = "text"
"""Element around a fragment while it is checked."""
_DOCTYPE = b"<!DOCTYPE"
_MAX_DEPTH = 1000
"""Elements within each other."""


def xml_document(
    text: str,
    *,
    ignore_tags: Collection[str] = (),
    translate_attributes: Collection[str] | None = (),
    block_tags: BlockTags = DETECTED,
    places_tags: bool = True,
) -> Document:
    """Return XML, a document or a fragment, taken apart.

    The content of `ignore_tags`, and of elements with `translate="no"`, is left alone, and the values of
    `translate_attributes` are texts too, none where that is None. `block_tags` name elements whose tags end a block, or
    do not, whatever their content. Raises `QueryError` for XML that is not well-formed, has a document type
    declaration, or more tags than `MAX_TAGS`.
    """
    _check(text)
    tokens = list(tokens_of(text, xml=True))
    names = frozenset(translate_attributes or ())

    def attributes(token: Token) -> Iterable[Attribute]:
        is_ignored = _is_ignored(text, token, ignore_tags)
        return () if is_ignored else (each for each in token.attributes if each.name in names)

    builder = Builder(text, attributes, places_tags=places_tags)
    inline = _inline(text, tokens, block_tags)
    copied_from: int | None = None
    depth = 0
    for token, is_inline in zip(tokens, inline, strict=True):
        if copied_from is not None:
            depth += {"start": 1, "end": -1}.get(token.kind, 0)
            if not depth:
                span = (copied_from, token.span[1])
                builder.atom(span) if is_inline else builder.copied(span)
                copied_from = None
        elif token.kind == "start" and _is_ignored(text, token, ignore_tags):
            copied_from, depth = token.span[0], 1
        elif token.kind == "text":
            builder.text(token.span)
        elif token.kind == "other":
            builder.inline("point", token) if is_inline else builder.boundary(token)
        elif is_inline:
            builder.inline({"start": "open", "end": "close"}.get(token.kind, "point"), token)  # type: ignore[arg-type]
        else:
            builder.boundary(token)
    return builder.document()


def _is_ignored(text: str, token: Token, ignored: Collection[str]) -> bool:
    return token.name in ignored or any(
        each.name in ("translate", "its:translate") and text[slice(*each.value)] == "no" for each in token.attributes
    )


def _check(text: str) -> None:
    """Raise `QueryError` for what is no well-formed XML."""
    start = 0
    if text.startswith("<?xml") and text[5:6].isspace():
        start = text.find("?>") + 2
        if start < 2:
            raise QueryError("format xml: the XML declaration has no end")
    checked = _Checked()
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler, parser.EndElementHandler = checked.begin, checked.end
    checked_text = f"<{_ROOT}>{text[start:]}</{_ROOT}>".encode()
    try:
        parser.Parse(checked_text, True)
    except expat.ExpatError as error:
        if checked_text.startswith(_DOCTYPE, checked_text.rfind(b"<", 0, parser.ErrorByteIndex + 1)):
            raise QueryError("format xml: a document type declaration is not accepted") from None
        line = error.lineno + text.count("\n", 0, start)
        column = error.offset + 1 - (len(_ROOT) + 2 if error.lineno == 1 else 0)
        raise QueryError(f"format xml: {expat.ErrorString(error.code)}, line {line}, column {column}") from None


@dataclass(slots=True)
class _Checked:
    """Counts of what a parser has read."""

    tags: int = 0
    depth: int = 0

    def begin(self, name: str, attributes: object) -> None:
        del name, attributes
        self.tags += 2
        self.depth += 1
        if self.tags > MAX_TAGS:
            raise too_many_tags()
        if self.depth > _MAX_DEPTH:
            raise QueryError(f"format xml: more than {_MAX_DEPTH} elements within each other")

    def end(self, name: str) -> None:
        del name
        self.depth -= 1


def _inline(text: str, tokens: Sequence[Token], block_tags: BlockTags) -> list[bool]:
    """Return for each token whether it is within an element that has text of its own, unless `block_tags` say more.

    Tags of elements that hold one whose tags end a block end blocks too.
    """
    has_text, is_split = _elements(text, tokens, block_tags)
    found: list[bool] = []
    mixed = [has_text[0]]
    within = [0]
    begun = 0
    for token in tokens:
        if token.kind == "end":
            mixed.pop()
            element = within.pop()
        elif token.kind == "start":
            begun += 1
            element = begun
        if token.kind in ("start", "end"):
            found.append(not is_split[element] and block_tags.is_inline(token.name, mixed[-1]))
        else:
            found.append(block_tags.is_inline(token.name, mixed[-1]) if token.kind == "empty" else mixed[-1])
        if token.kind == "start":
            mixed.append(mixed[-1] or has_text[begun])
            within.append(begun)
    return found


def _elements(text: str, tokens: Sequence[Token], block_tags: BlockTags) -> tuple[list[bool], list[bool]]:
    """Return for the whole and each element whether it has text of its own, and whether one in it ends a block."""
    has_text, is_split = [False], [False]
    stack = [0]
    for token in tokens:
        if token.kind == "end":
            closed = stack.pop()
            is_split[stack[-1]] |= is_split[closed]
        if token.kind == "text" and text[slice(*token.span)].strip():
            has_text[stack[-1]] = True
        elif token.kind in ("start", "empty") and token.name in block_tags.splitting:
            is_split[stack[-1]] = True
        if token.kind == "start":
            stack.append(len(has_text))
            has_text.append(False)
            is_split.append(False)
    return has_text, is_split
