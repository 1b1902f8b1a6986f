"""Markdown: CommonMark with tables and strikethrough, read by markdown-it-py.

Paragraphs, headings and cells of tables are blocks; code, HTML blocks and definitions of links are left alone. Lines of
a paragraph are joined, as a reader sees them. A block whose source cannot be found again is left alone.
"""

import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from models.errors import QueryError
from models.text.markup.blocks import DETECTED, BlockTags
from models.text.markup.builder import Builder, Role
from models.text.markup.document import Document
from models.text.markup.entities import Spelling
from models.text.markup.tokens import tokens_of
from models.text.words import Span

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

__all__ = ["MAX_CHARACTERS", "markdown_document"]

MAX_CHARACTERS = 200_000
"""Characters of a text, which are read by Python code."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_SOFT_BREAK = re.compile(r" *\n *")
_HARD_BREAK = re.compile(r"(?: *\\| {2,})\n *")
_VOID = frozenset({"br", "img", "input", "wbr"})
_DELIMITERS = frozenset({"em", "strong", "s"})
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_LINE_BREAK = re.compile(r"\n *")
_LIST_MARKER = re.compile(r"(\d{1,9})([.)])(?=\s|$)")
_OTHER_BLOCK = re.compile(
    r"^[ ]{0,3}(?:[-+*](?:\s|$)|#{1,6}(?:\s|$)|>|\d{1,9}[.)](?:\s|$)|(?:\*[ \t]*){3,}$|(?:_[ \t]*){3,}$"
    r"|(?:-[ \t]*){3,}$|=+\s*$|-+\s*$|`{3}|~{3})",
    re.MULTILINE,
)
"""A line that begins another block, or that makes a heading of the line before it: tags without words can look so."""
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


class _NotFoundError(Exception):
    """The source of a token is not where it should be."""


def markdown_document(
    text: str,
    *,
    ignore_tags: Collection[str] = (),
    translate_attributes: Collection[str] | None = (),
    block_tags: BlockTags = DETECTED,
    places_tags: bool = True,
) -> Document:
    """Return Markdown taken apart; its parameters for elements have no effect.

    Raises `QueryError` without the package markdown-it-py, for more than `MAX_CHARACTERS`, and for more tags than
    `MAX_TAGS`.
    """
    del ignore_tags, translate_attributes
    if len(text) > MAX_CHARACTERS:
        raise QueryError(f"format markdown: the text has {len(text)} characters; the limit is {MAX_CHARACTERS}")
    builder = Builder(text, places_tags=places_tags, spelling=MarkdownSpelling.of)
    lines = [found.span() for found in _LINE.finditer(text)]
    done, before = 0, ""
    for token in _parser().parse(text):
        is_cell, before = before in ("th_open", "td_open"), token.type
        if token.type != "inline" or token.map is None or not token.content.strip():
            continue
        try:
            places = _places(text, lines, token, done, is_cell=is_cell)
            parts = _Inline(token.content, places).parts(token.children or ())
        except _NotFoundError:
            continue
        first, last = places(0), places(len(token.content))
        builder.copied((done, first))
        for add in parts:
            add(builder)
        done = last
    builder.copied((done, len(text)))
    return builder.document()


@functools.cache
def _parser() -> "MarkdownIt":
    try:
        from markdown_it import MarkdownIt
    except ModuleNotFoundError as error:
        raise QueryError(
            "format markdown: the service needs the package markdown-it-py: pip install 'softserve[markup]'"
        ) from error
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    for name in ("link", "image", "autolink", "html_inline", "backticks"):
        rule = next(each.fn for each in parser.inline.ruler.__rules__ if each.name == name)
        parser.inline.ruler.at(name, _with_span(rule))
    return parser


def _with_span(
    rule: "Callable[[StateInline, bool], bool]",
) -> "Callable[[StateInline, bool], bool]":
    """Return a rule that says where in the source its token is: `meta["span"]`."""

    def spanned(state: "StateInline", silent: bool) -> bool:
        start, count = state.pos, len(state.tokens)
        found = rule(state, silent)
        if found and not silent:
            for token in state.tokens[count:]:
                if token.type != "text":
                    token.meta["span"] = (start, state.pos)
                    break
        return found

    return spanned


def _places(text: str, lines: Sequence[Span], token: "Token", done: int, *, is_cell: bool) -> Callable[[int], int]:
    """Return the function from places in the content of a token to those in the source, the first `done` of it used."""
    assert token.map is not None
    starts: list[int] = []
    found: list[int] = []
    place = 0
    for number, content in enumerate(token.content.split("\n")):
        if token.map[0] + number >= len(lines):
            raise _NotFoundError
        start, end = lines[token.map[0] + number]
        line, sought = text[start:end].rstrip(), content.rstrip()
        at = line.find(sought, max(0, done - start)) if is_cell else line.rfind(sought)
        if at < 0 or start + at < done:
            raise _NotFoundError
        starts.append(place)
        found.append(start + at)
        place += len(content) + 1

    def source(place: int) -> int:
        index = bisect_right(starts, place) - 1
        return found[index] + place - starts[index]

    return source


class _Inline:
    """Reads the tokens within a block, and remembers what they add to a builder."""

    def __init__(self, content: str, places: Callable[[int], int]) -> None:
        self._content, self._places = content, places
        self._place = 0
        self._links: list[int] = []
        self._is_address = False
        self._parts: list[Callable[[Builder], None]] = []

    def parts(self, tokens: "Sequence[Token]") -> list[Callable[[Builder], None]]:
        """Return what adds all tokens; raises `_NotFoundError`."""
        for token in tokens:
            if self._is_address:
                self._is_address = token.type != "link_close"
            else:
                self._read(token)
        if self._content[self._place :].strip():
            raise _NotFoundError
        return self._parts

    def _read(self, token: "Token") -> None:
        kind = token.type
        if kind in ("text", "text_special"):
            self._add_text(self._after(token.markup if kind == "text_special" else token.content), token.content)
        elif kind == "softbreak":
            self._add_text(self._matched(_SOFT_BREAK), " ")
        elif kind == "hardbreak":
            self._add("break", self._matched(_HARD_BREAK))
        elif kind.split("_")[0] in _DELIMITERS:
            name = kind.split("_")[0]
            self._add("open" if token.nesting > 0 else "close", self._after(token.markup), f"{name}_delimiter")
        elif kind == "link_close":
            if not self._links:
                raise _NotFoundError
            self._after("]")
            self._add("close", self._links.pop(), "link")
        else:
            self._add_spanned(token)

    def _add_spanned(self, token: "Token") -> None:
        """Add a token that says where in the content it is."""
        start, end = token.meta.get("span", (-1, -1))
        if start != self._place:
            raise _NotFoundError
        if token.type == "link_open" and token.info != "auto":
            self._links.append(end)
            self._add("open", start + 1, "link")
        elif token.type == "html_inline":
            role, name = _html_role(self._content[start:end])
            self._add(role, end, name)
        else:
            self._is_address = token.type == "link_open"
            self._add("point" if token.type == "image" else "atom", end)

    def _add_text(self, end: int, text: str) -> None:
        if end > self._place:
            self._parts.append(functools.partial(Builder.written, span=self._to(end), text=text))

    def _add(self, role: Role, end: int, name: str = "") -> None:
        self._parts.append(functools.partial(Builder.span, role=role, span=self._to(end), name=name))

    def _to(self, end: int) -> Span:
        start, self._place = self._place, end
        return self._places(start), self._places(end)

    def _after(self, written: str) -> int:
        if not self._content.startswith(written, self._place):
            raise _NotFoundError
        return self._place + len(written)

    def _matched(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._content, self._place)
        if found is None:
            raise _NotFoundError
        return found.end()


def _html_role(markup: str) -> tuple[Role, str]:
    tag = next(iter(tokens_of(markup)))
    if tag.kind == "start" and tag.name not in _VOID:
        return "open", f"<{tag.name}"
    return ("close", f"<{tag.name}") if tag.kind == "end" else ("point", "")


class MarkdownSpelling(Spelling):
    """How the characters of a block were written in Markdown: those that would be markup have a backslash."""

    @classmethod
    def of(cls, markup: str) -> "MarkdownSpelling":
        found = Spelling.of(markup)
        rest = re.sub(r"\\.", "", markup)
        is_bare = "[" in rest and "](" not in rest and "][" not in rest
        return cls(found.references, frozenset("[]" if is_bare else ""))

    def letters(self, text: str, quote: str = "") -> list[str]:
        del quote
        written = [self.references.get(letter) or _escaped(text, index, self) for index, letter in enumerate(text)]
        for start in (0, *(found.end() for found in _LINE_BREAK.finditer(text))):
            if marker := _LIST_MARKER.match(text, start):
                written[marker.start(2)] = f"\\{marker[2]}"
            elif text[start : start + 1] in ("#", ">", "-", "+", "=") and written[start] == text[start]:
                written[start] = f"\\{text[start]}"
        return written

    def block(self, markup: str) -> str | None:
        written = markup.strip(" ")
        return written if _OTHER_BLOCK.search(written) is None else None


def _escaped(text: str, index: int, spelling: Spelling) -> str:
    """Return a character with a backslash where it would be markup."""
    letter, before, after = text[index], text[index - 1 : index], text[index + 1 : index + 2]
    if letter == "&":
        return "\\&" if _ENTITY.match(text, index) else letter
    if letter == "<":
        return "\\<" if after.isalpha() or after in ("/", "!", "?") else letter
    if letter == "\\":
        return "\\\\" if after in _PUNCTUATION or not after else letter
    if letter == "_":
        return letter if before.isalnum() and after.isalnum() else "\\_"
    if letter in "[]":
        return letter if letter in spelling.bare else f"\\{letter}"
    return f"\\{letter}" if letter in "*`~|" else letter
