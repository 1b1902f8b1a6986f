"""ICU MessageFormat, read by pyicumessageformat: texts of messages and of the branches of their plurals and selections.

The syntax stays byte for byte: names, types, styles, selectors and the white space around them. An argument such as
`{name}`, and `#` for the number of a plural, are carried along within their sentence. So is a plural or a selection,
whose branches are texts of their own. Tags, as intl-messageformat and HTML have them, are inline. Apostrophes quote as
in ICU4J by default: only before braces, and before `#` in a plural.
"""

import functools
import re
from collections.abc import Collection, Sequence
from typing import Any

from models.errors import QueryError
from models.text.markup.blocks import DETECTED, BlockTags
from models.text.markup.builder import Builder, Role
from models.text.markup.document import ATOMS, Document
from models.text.markup.entities import Spelling
from models.text.words import Span

__all__ = ["MAX_CHARACTERS", "has_branches", "icu_document", "seems_to_have_branches"]

MAX_CHARACTERS = 100_000
"""Characters of a message, which are read by Python code."""
_NUMERIC = frozenset({"plural", "selectordinal"})
_BRANCHES = re.compile(r"\{\s{0,99}[^\s{},'#]{1,99}\s{0,99},\s{0,99}(?:plural|select|selectordinal)\s{0,99},")
_TAG = r"<(?P<slash>/?)(?P<name>[A-Za-z][\w:.-]{0,99})(?:\s[^<>]{0,999})?/?>"
_UNIT = {
    is_numeric: re.compile(
        rf"'(?P<quoted>[{special}](?:[^']|'')*+)'?|(?P<line>[\r\n]+)|(?P<tag>{_TAG})|''|['<]|[^'<\r\n]+"
    )
    for is_numeric, special in ((False, "{}"), (True, "{}#"))
}
"""The parts of a text: quoted characters, line ends, tags, apostrophes, others; in a plural, and outside of one."""
_QUOTED = {
    is_numeric: re.compile(rf"(?<!')'*+[{special}][{special}']*+")
    for is_numeric, special in ((False, "{}"), (True, "{}#"))
}
"""Characters of the syntax in a text, which are quoted together with the apostrophes around them."""
_VOID = frozenset({"img", "input", "wbr"})


def seems_to_have_branches(text: str) -> bool:
    """Return whether a text has the beginning of a plural or a selection."""
    return "{" in text and _BRANCHES.search(text) is not None


def has_branches(text: str) -> bool:
    """Return whether a text is a message with a plural or a selection; False without the package pyicumessageformat."""
    if not seems_to_have_branches(text):
        return False
    try:
        _tokens(text)
    except QueryError:
        return False
    return True


def icu_document(
    text: str,
    *,
    ignore_tags: Collection[str] = (),
    translate_attributes: Collection[str] | None = (),
    block_tags: BlockTags = DETECTED,
    places_tags: bool = True,
) -> Document:
    """Return a message taken apart; its parameters for elements have no effect.

    Raises `QueryError` without the package pyicumessageformat, for more than `MAX_CHARACTERS`, for a text that is no
    message, and for more lines and arguments than `MAX_TAGS`.
    """
    del ignore_tags, translate_attributes, block_tags
    return _Reader(text, _tokens(text), places_tags=places_tags).document()


@functools.cache
def _parser() -> Any:
    try:
        from pyicumessageformat import Parser
    except ModuleNotFoundError as error:
        raise QueryError(
            "format icu: the service needs the package pyicumessageformat: pip install 'softserve[markup]'"
        ) from error
    return Parser({"require_other": False})


def _tokens(text: str) -> list[tuple[str, str]]:
    """Return the types and the texts of tokens, which joined are the message; raises `QueryError`."""
    if len(text) > MAX_CHARACTERS:
        raise QueryError(f"format icu: the text has {len(text)} characters; the limit is {MAX_CHARACTERS}")
    found: list[dict[str, str]] = []
    try:
        _parser().parse(text, found)
    except SyntaxError as error:
        raise QueryError(f"format icu: {error.msg or 'this is no message'}") from None
    tokens = [(each["type"], each["text"]) for each in found]
    if "".join(written for _, written in tokens) != text:
        raise QueryError("format icu: the message cannot be read")
    return tokens


class _Reader:
    """Reads the tokens of a message."""

    def __init__(self, text: str, tokens: Sequence[tuple[str, str]], *, places_tags: bool) -> None:
        self._text, self._tokens = text, tokens
        self._next, self._place = 0, 0
        self._is_numeric = False
        """Whether the block that ends is of a plural."""
        self._builder = Builder(text, places_tags=places_tags, spelling=self._spelling)

    def document(self) -> Document:
        """Return the document."""
        self._message(is_numeric=False)
        return self._builder.document()

    def _spelling(self, markup: str) -> "IcuSpelling":
        return IcuSpelling.of(markup, is_numeric=self._is_numeric)

    def _take(self) -> tuple[str, Span]:
        """Return the next token, a brace or another type, and its place."""
        kind, written = self._tokens[self._next]
        start, self._place = self._place, self._place + len(written)
        self._next += 1
        return written if kind == "syntax" else kind, (start, self._place)

    def _message(self, *, is_numeric: bool) -> None:
        """Add a message up to the brace that ends it."""
        while self._next < len(self._tokens) and self._tokens[self._next] != ("syntax", "}"):
            kind, span = self._take()
            if kind == "text":
                self._add_text(span, is_numeric=is_numeric)
            elif kind == "{":
                self._argument(span[0])
            else:
                self._builder.atom(span)
        self._is_numeric = is_numeric

    def _argument(self, start: int) -> None:
        """Add an argument, whose first brace was taken."""
        kind, span = self._take()
        is_numeric = False
        while kind not in ("{", "}"):
            is_numeric |= kind == "type" and self._text[slice(*span)] in _NUMERIC
            kind, span = self._take()
        if kind == "}":
            self._builder.atom((start, span[1]))
            return
        with self._builder.within_atom():
            while kind != "}":
                if kind == "{":
                    self._builder.copied((start, span[1]))
                    self._message(is_numeric=is_numeric)
                    start = self._take()[1][0]
                kind, span = self._take()
            self._builder.copied((start, span[1]))

    def _add_text(self, span: Span, *, is_numeric: bool) -> None:
        start, pieces = span[0], list[str]()
        for unit in _UNIT[is_numeric].finditer(self._text, *span):
            if unit["line"] or unit["tag"]:
                self._add_written((start, unit.start()), pieces)
                self._builder.span("break" if unit["line"] else _role(unit), unit.span(), unit["name"] or "")
                start, pieces = unit.end(), []
            elif unit["quoted"]:
                pieces.append(unit["quoted"].replace("''", "'"))
            else:
                pieces.append("'" if unit[0] == "''" else unit[0])
        self._add_written((start, span[1]), pieces)

    def _add_written(self, span: Span, pieces: Sequence[str]) -> None:
        if pieces:
            self._builder.written(span, "".join(pieces))


def _role(tag: re.Match[str]) -> Role:
    name = tag["name"].lower()
    if name == "br":
        return "break"
    if name in _VOID or tag[0].endswith("/>"):
        return "point"
    return "close" if tag["slash"] else "open"


class IcuSpelling(Spelling):
    """How the characters of a text were written in a message: those of the syntax are quoted."""

    @classmethod
    def of(cls, markup: str, *, is_numeric: bool = False) -> "IcuSpelling":
        references = {"'": "''"} if "''" in markup else {}
        return cls(references, frozenset() if is_numeric else frozenset("#"))

    def letters(self, text: str, quote: str = "") -> list[str]:
        del quote
        is_doubled = "'" in self.references
        written = [
            "''" if letter == "'" and (is_doubled or _is_before_syntax(text, index)) else letter
            for index, letter in enumerate(text)
        ]
        for run in _QUOTED["#" not in self.bare].finditer(text):
            written[run.start() : run.end()] = [letter.replace("'", "''") for letter in run[0]]
            written[run.start()] = f"'{written[run.start()]}"
            written[run.end() - 1] += "'"
        return written

    def block(self, markup: str) -> str | None:
        """Return the markup of a block, None where tags within quoted characters have changed the syntax."""
        if _QUOTED["#" not in self.bare].search(markup) is None:
            return markup
        kind = "select" if "#" in self.bare else "plural"
        try:
            _tokens(f"{{n, {kind}, other {{{markup}}}}}")
        except QueryError:
            return None
        return markup


def _is_before_syntax(text: str, index: int) -> bool:
    """Return whether an apostrophe could be read with the character after it, which may be that of an argument."""
    after = text[index + 1 : index + 2]
    return after in ("'", "") or after >= chr(ATOMS[0])
