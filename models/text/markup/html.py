"""HTML: which elements end a block of text, which are within one, and which are left alone.

Nothing is repaired: tags that do not nest stay where they are between texts that are translated apart, so that a parser
finds the same tree as before.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from models.text.markup.attributes import shown_attributes
from models.text.markup.blocks import DETECTED, BlockTags
from models.text.markup.builder import Builder
from models.text.markup.document import Document
from models.text.markup.tokens import Attribute, Token, tokens_of

__all__ = ["html_document"]

_INLINE = frozenset(
    [
        "a",
        "abbr",
        "acronym",
        "b",
        "bdi",
        "bdo",
        "big",
        "cite",
        "del",
        "dfn",
        "em",
        "font",
        "i",
        "ins",
        "label",
        "mark",
        "nobr",
        "q",
        "rb",
        "rp",
        "rt",
        "ruby",
        "s",
        "small",
        "span",
        "strike",
        "strong",
        "sub",
        "sup",
        "time",
        "tt",
        "u",
        "data",
        "meter",
        "output",
        "progress",
        "slot",
    ]
)
_INLINE_COPIED = frozenset(
    [
        "code",
        "kbd",
        "samp",
        "var",
        "svg",
        "math",
        "script",
        "style",
        "select",
        "object",
        "audio",
        "video",
        "canvas",
        "button",
    ]
)
"""Elements within sentences that are carried along as they are where they are left alone."""
_COPIED = frozenset(
    [
        "code",
        "kbd",
        "samp",
        "var",
        "pre",
        "script",
        "style",
        "textarea",
        "svg",
        "math",
        "template",
        "xmp",
        "iframe",
        "noembed",
        "noframes",
    ]
)
"""Elements whose content is left alone."""
_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
_INLINE_VOID = frozenset(["embed", "img", "input", "wbr"])
_BLOCK_TAG = re.compile(
    r"<(?:address|article|aside|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|fieldset"
    r"|figcaption|figure|footer|form|frameset|h[1-6r]|head|header|hgroup|html|legend|li|main|menu|nav|ol|p|pre|search"
    r"|section|summary|table|tbody|td|tfoot|th|thead|tr|ul)(?=[\s/>])",
    re.IGNORECASE,
)
"""Tags for which a parser may end other elements, so that what holds one reads otherwise in another place."""
_INVISIBLE = frozenset({"script", "style", "template"})


def html_document(
    text: str,
    *,
    ignore_tags: Collection[str] = (),
    translate_attributes: Collection[str] | None = (),
    block_tags: BlockTags = DETECTED,
    places_tags: bool = True,
) -> Document:
    """Return HTML, a document or a fragment, taken apart.

    The content of `ignore_tags` is left alone, and the values of `translate_attributes` are texts too, where that is
    None those of attributes that people see or hear. `block_tags` name, in lower case, elements whose tags end a block,
    or do not, whatever HTML says. Raises `QueryError` for more tags than `MAX_TAGS`, or elements deeper in each other
    than `MAX_DEPTH`.
    """
    ignored = frozenset(name.lower() for name in ignore_tags)
    names = None if translate_attributes is None else {name.lower() for name in translate_attributes}

    def attributes(token: Token) -> Iterable[Attribute]:
        if _is_ignored(text, token, ignored):
            return ()
        if names is None:
            return shown_attributes(text, token)
        return (each for each in token.attributes if each.name in names)

    builder = Builder(text, attributes, places_tags=places_tags)
    for token, is_copied in _with_copied(text, tokens_of(text), ignored):
        _add(builder, text, token, block_tags, is_copied=is_copied)
    return builder.document()


def _add(builder: Builder, text: str, token: Token, block_tags: BlockTags, *, is_copied: bool) -> None:
    is_inline = block_tags.is_inline(token.name, token.name in _INLINE or "-" in token.name)
    if is_copied:
        is_inline = (is_inline or token.name in _INLINE_COPIED) and _BLOCK_TAG.search(text, *token.span) is None
        _add_copied(builder, token, is_inline=is_inline)
    elif token.kind == "text":
        builder.text(token.span)
    elif token.name in block_tags.splitting:
        builder.boundary(token)
    elif token.kind == "end":
        builder.inline("close", token) if is_inline else builder.boundary(token)
    elif token.kind in ("other", "raw") or token.name in _INLINE_VOID or (is_inline and token.kind == "empty"):
        builder.inline("point", token)
    elif token.name == "br":
        builder.inline("break", token)
    else:
        builder.inline("open", token) if is_inline else builder.boundary(token)


def _add_copied(builder: Builder, token: Token, *, is_inline: bool) -> None:
    if token.name in _INVISIBLE:
        builder.inline("point", replace(token, attributes=()))
    elif is_inline:
        builder.inline("atom", token)
    else:
        builder.boundary(token)


def _with_copied(text: str, tokens: Iterable[Token], ignored: Collection[str]) -> Iterator[tuple[Token, bool]]:
    """Yield tokens and whether they are left alone: whole elements then, as one token with the first tag's attributes.

    An element without an end tag ends with the element that it is in, and has no name: it stays where it is.
    """
    begun: Token | None = None
    within: list[str] = []
    counts: Counter[str] = Counter()
    last = 0
    for token in tokens:
        if begun is None:
            is_copied = token.name in _COPIED or _is_ignored(text, token, ignored)
            if token.kind != "start" or token.name in _VOID or not is_copied:
                yield token, False
                continue
            begun, within, counts = token, [token.name], Counter([token.name])
        elif token.kind == "start" and token.name not in _VOID:
            within.append(token.name)
            counts[token.name] += 1
        elif token.kind == "end":
            if not counts[token.name]:
                yield Token("other", (begun.span[0], last), ""), True
                begun = None
                yield token, False
            else:
                closed = ""
                while closed != token.name:
                    closed = within.pop()
                    counts[closed] -= 1
                if not within:
                    yield Token("other", (begun.span[0], token.span[1]), begun.name, begun.attributes), True
                    begun = None
        last = token.span[1]
    if begun is not None:
        yield Token("other", (begun.span[0], last), ""), True


def _is_ignored(text: str, token: Token, ignored: Collection[str]) -> bool:
    """Return whether a tag, or the request, says that an element is left alone."""
    if token.name in ignored:
        return True
    for attribute in token.attributes:
        if attribute.name == "translate" and text[slice(*attribute.value)].strip().lower() == "no":
            return True
        if attribute.name == "class" and "notranslate" in text[slice(*attribute.value)].split():
            return True
    return False
