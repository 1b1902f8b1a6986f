"""Blocks of text, made of the parts of a text with markup in order: text, inline tags, points, and ends of blocks."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from models.errors import QueryError
from models.text.markup.document import ATOMS, Block, Document, Element, Piece
from models.text.markup.entities import Spelling, signs, unescaped
from models.text.markup.tokens import Attribute, Token
from models.text.words import Span

__all__ = ["MAX_DEPTH", "MAX_TAGS", "NEED_CONTENT", "Builder", "Role", "too_many_tags"]

MAX_TAGS = 50_000
"""Tags of a text."""
MAX_DEPTH = 100
"""Inline elements within each other."""
NEED_CONTENT = frozenset({"em_delimiter", "strong_delimiter", "s_delimiter"})
"""Names of inline elements that are left out where they enclose nothing."""
_MAX_INLINE = 500
"""Inline tags of a block. In a block with more, they stay where they are between texts that are translated apart."""

_WHITE = " \t\n\r\f"
_SPACE = re.compile(rf"[{_WHITE}]+")

_TOGETHER = re.compile(r"(?<=\S)\u00a0(?=\S)")
"""A no-break space between words."""

_WITH_LINES = frozenset({"title"})
"""Attributes in whose values line ends are shown."""

Role = Literal["text", "open", "close", "point", "break", "atom"]


def too_many_tags() -> QueryError:
    """Return the error for a text with too many tags."""
    return QueryError(f"the text has more than {MAX_TAGS} tags")


@dataclass(slots=True)
class _Node:
    """A piece of text, a point, an element that is carried along, or an inline element."""

    role: Role
    markup: tuple[Piece, ...]
    text: str = ""
    raw: str = ""
    closing: tuple[Piece, ...] = ()
    children: "list[_Node] | None" = None
    needs_content: bool = False

    def pieces(self) -> list[Piece]:
        """Return the markup of the whole node."""
        within = [piece for child in self.children or () for piece in child.pieces()]
        return [*self.markup, *within, *self.closing]

    def has_text(self) -> bool:
        """Return whether there is any text in it, or an element that is carried along."""
        if self.role == "text":
            return bool(_SPACE.sub("", self.text))
        return self.role == "atom" or any(child.has_text() for child in self.children or ())

    @property
    def is_point(self) -> bool:
        return not self.has_text() and self.role != "text"


@dataclass(frozen=True, slots=True)
class _Item:
    role: Role
    markup: tuple[Piece, ...]
    raw: str
    name: str = ""


class Builder:
    """Makes a document of its parts, in order."""

    def __init__(
        self,
        source: str,
        attributes: Callable[[Token], Iterable[Attribute]] = lambda token: (),
        *,
        places_tags: bool = True,
        spelling: Callable[[str], Spelling] = Spelling.of,
    ) -> None:
        """`attributes` returns those of a tag that are translated.

        Without `places_tags`, inline tags stay between texts translated apart. `spelling` returns how a block writes
        its text, of its markup.
        """
        self._spelling = spelling
        self._source = source
        self._attributes = attributes
        self._places_tags = places_tags
        self._pieces: list[Piece] = []
        self._blocks: list[Block] = []
        self._items: list[_Item] = []
        self._tags = 0

    def text(self, span: Span) -> None:
        """Add text, whose references of signs such as `&copy;` are carried along."""
        raw = self._source[slice(*span)]
        for index, piece in enumerate(signs(raw)):
            if index % 2:
                self._items.append(_Item("atom", (piece,), ""))
            elif piece:
                self._items.append(_Item("text", (piece,), unescaped(piece)))

    def written(self, span: Span, text: str) -> None:
        """Add text that its markup spells in another way."""
        self._items.append(_Item("text", (self._source[slice(*span)],), text))

    def span(self, role: Role, span: Span, name: str = "") -> None:
        """Add markup that stands for an inline tag or a point."""
        self._count()
        self._items.append(_Item(role, (self._source[slice(*span)],), "", name))

    def inline(self, role: Role, token: Token) -> None:
        """Add an inline tag, or a point such as a comment."""
        self._items.append(_Item(role, self._markup(token), "", token.name))

    def atom(self, span: Span) -> None:
        """Add an inline element that is carried along as it is."""
        self._items.append(_Item("atom", (self._source[slice(*span)],), ""))

    def boundary(self, token: Token) -> None:
        """Add a tag, or other markup, that ends a block and begins one."""
        self._end_block()
        self._pieces += self._markup(token)

    def copied(self, span: Span) -> None:
        """Add markup that is not looked at, and that ends a block and begins one."""
        self._end_block()
        self._pieces.append(self._source[slice(*span)])

    @contextlib.contextmanager
    def within_atom(self) -> Iterator[None]:
        """Add parts as blocks of their own within an inline element that is carried along."""
        around, self._items, self._pieces = (self._items, self._pieces), [], []
        yield
        self._end_block()
        markup = tuple(self._pieces)
        self._items, self._pieces = around
        self._items.append(_Item("atom", markup, ""))

    def document(self) -> Document:
        """Return the document, whose parts have all been added."""
        self._end_block()
        return Document(tuple(self._pieces), tuple(self._blocks))

    def _markup(self, token: Token) -> tuple[Piece, ...]:
        """Return a token as it is, with blocks in place of the attributes that are translated."""
        if token.kind in ("start", "end", "empty"):
            self._count()
        start, end = token.span
        pieces: list[Piece] = []
        for attribute in self._attributes(token) if token.attributes and token.kind != "end" else ():
            value = self._source[slice(*attribute.value)]
            if stripped := value.strip(_WHITE):
                first = attribute.value[0] + value.index(stripped)
                pieces += [self._source[start:first], self._added(_attribute_block(attribute, stripped))]
                start = first + len(stripped)
        return (*pieces, self._source[start:end])

    def _count(self) -> None:
        self._tags += 1
        if self._tags > MAX_TAGS:
            raise too_many_tags()

    def _added(self, block: Block) -> int:
        self._blocks.append(block)
        return len(self._blocks) - 1

    def _end_block(self) -> None:
        items, self._items = self._items, []
        if not any(item.role == "text" and item.raw.strip() for item in items):
            self._pieces += [piece for item in items for piece in item.markup]
            return
        nodes = _tree(items) if self._places_tags or all(item.role == "text" for item in items) else None
        if nodes is None:
            self._add_apart(items)
        else:
            self._add_nodes(nodes)

    def _add_apart(self, items: Iterable[_Item]) -> None:
        """Add each text as a block, between tags that stay."""
        for item in items:
            if item.role == "text" and item.raw.strip():
                self._add_block([_Node("text", item.markup, item.raw, str(item.markup[0]))])
            else:
                self._pieces += item.markup

    def _add_nodes(self, nodes: Sequence[_Node]) -> None:
        """Add nodes as blocks between line breaks; tags around a block are no part of it."""
        start = 0
        for index, node in enumerate(nodes):
            if node.role == "break":
                self._add_peeled(nodes[start:index])
                self._pieces += node.markup
                start = index + 1
        self._add_peeled(nodes[start:])

    def _add_peeled(self, nodes: Sequence[_Node]) -> None:
        first, last = 0, len(nodes)
        while first < last and not nodes[first].has_text():
            self._pieces += nodes[first].pieces()
            first += 1
        while first < last and not nodes[last - 1].has_text():
            last -= 1
        if last - first == 1 and nodes[first].role == "open":
            self._pieces += nodes[first].markup
            self._add_nodes(nodes[first].children or ())
            self._pieces += nodes[first].closing
        elif first < last:
            self._add_block(nodes[first:last])
        self._pieces += [piece for node in nodes[last:] for piece in node.pieces()]

    def _add_block(self, nodes: Sequence[_Node]) -> None:
        nodes = list(nodes)
        before, after = "", ""
        if nodes[0].role == "text":
            nodes[0], before = _stripped(nodes[0], at_start=True)
        if nodes[-1].role == "text":
            nodes[-1], after = _stripped(nodes[-1], at_start=False)
        text = _BlockText()
        elements = text.add_all(nodes)
        raw = "".join(text.raw)
        markup = tuple(piece for node in nodes for piece in node.pieces())
        plain = text.joined()
        together = tuple(found.start() for found in _TOGETHER.finditer(plain))
        block = Block(
            _TOGETHER.sub(" ", plain),
            markup,
            self._spelling(raw),
            elements=tuple(elements),
            atoms=frozenset(text.atoms),
            kept_together=together,
        )
        self._pieces += [before, self._added(block), after]


def _attribute_block(attribute: Attribute, value: str) -> Block:
    """Return the block of an attribute, of its value without white space around it."""
    read = value if attribute.name in _WITH_LINES else _SPACE.sub(" ", value)
    return Block(unescaped(read), (value,), Spelling.of(value), attribute.quote or '"', is_bare=not attribute.quote)


def _tree(items: Sequence[_Item]) -> list[_Node] | None:
    """Return the nodes of a block; None where its tags do not nest, or cannot be moved."""
    if sum(item.role != "text" for item in items) > _MAX_INLINE:
        return None
    atoms = sum(item.role == "atom" for item in items)
    if atoms > len(ATOMS) or (atoms and any(letter >= chr(ATOMS[0]) for item in items for letter in item.raw)):
        return None
    found: list[_Node] = []
    siblings = found
    stack: list[tuple[str, _Node, list[_Node]]] = []
    for item in items:
        if item.role == "open":
            if len(stack) == MAX_DEPTH:
                raise QueryError(f"the text has more than {MAX_DEPTH} inline elements within each other")
            if item.name in _NOT_NESTED and any(name == item.name for name, *_ in stack):
                return None
            node = _Node("open", item.markup, children=[], needs_content=item.name in NEED_CONTENT)
            siblings.append(node)
            stack.append((item.name, node, siblings))
            siblings = node.children = []
        elif item.role == "close":
            if not stack or stack[-1][0] != item.name:
                return None
            _, node, siblings = stack.pop()
            node.closing = item.markup
        else:
            siblings.append(_Node(item.role, item.markup, item.raw, str(item.markup[0])))
    return None if stack else found


_NOT_NESTED = frozenset({"a", "nobr"})
"""Elements that end where another one of the name begins."""


def _stripped(node: _Node, *, at_start: bool) -> tuple[_Node, str]:
    """Return a text without the white space at one end, and that."""
    pattern = r"^[ \t\n\r\f]+" if at_start else r"[ \t\n\r\f]+$"
    found = re.search(pattern, node.raw)
    if found is None:
        return node, ""
    size = len(found[0])
    kept = slice(size, None) if at_start else slice(0, -size)
    return replace(node, markup=(node.raw[kept],), raw=node.raw[kept], text=node.text[kept]), found[0]


class _BlockText:
    """The plain text of a block, as it grows."""

    def __init__(self) -> None:
        self.raw: list[str] = []
        self.atoms: list[str] = []
        self._pieces: list[str] = []
        self._length = 0
        self._last = ""
        self._begun: list[tuple[list[Element], int]] = []
        """Points and line breaks that nothing follows so far."""

    def joined(self) -> str:
        return "".join(self._pieces)

    def add_all(self, nodes: Sequence[_Node]) -> list[Element]:
        elements: list[Element] = []
        for node in nodes:
            if node.role == "text":
                self.raw.append(node.raw)
                self._add(_SPACE.sub(" ", node.text))
            elif node.role == "atom":
                mark = chr(ATOMS[len(self.atoms)])
                self.atoms.append(mark)
                space = self._last == " "
                self._add(mark)
                span = (self._length - 1, self._length)
                elements.append(Element(span, node.markup, is_atom=True, space_before=space))
                self._begun.append((elements, len(elements) - 1))
            elif node.role == "open" and node.has_text():
                start = self._length
                index = len(elements)
                elements.append(Element((start, start), node.markup, node.closing, needs_content=node.needs_content))
                children = self.add_all(node.children or ())
                elements[index] = replace(elements[index], span=(start, self._length), children=tuple(children))
            else:
                self._add_point(elements, node)
        return elements

    def _add(self, text: str) -> None:
        if not text:
            return
        for elements, index in self._begun:
            elements[index] = replace(elements[index], space_after=text[0] == " ")
        self._begun = []
        if text[0] == " " and self._last in (" ", "\n"):
            text = text[1:]
        if text:
            self._pieces.append(text)
            self._length += len(text)
            self._last = text[-1]

    def _add_point(self, elements: list[Element], node: _Node) -> None:
        is_break = node.role == "break"
        space = self._last == " "
        start = self._length
        element = Element(
            (start, start + is_break),
            tuple(node.pieces()),
            is_point=not is_break,
            is_break=is_break,
            space_before=space,
        )
        elements.append(element)
        if is_break:
            self._pieces.append("\n")
            self._length += 1
            self._last = "\n"
        self._begun.append((elements, len(elements) - 1))
