"""Inline elements of any format as tags of HTML, so that the translator puts them around the words they belong to.

Elements have the numbers of their payloads as names: `<x-3>` encloses text, `<x-3/>` is a point, `<code id="3">` is an
element within a sentence that is carried along, such as a field; `<br>` is a line break and `<hr>` separates texts.
"""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from models.text.markup import Markup
from models.text.markup.tokens import tokens_of

__all__ = ["TAGS", "Inline", "Kind", "Node", "as_message", "decode", "encode", "has_words", "of_message"]

TAGS = Markup("html")
"""How such texts are read."""

Kind = Literal["around", "point", "atom", "break", "boundary"]
_NUMBER = re.compile(r"x-(\d+)")
_CARRIED = re.compile(r'<code id="(\d+)"></code>')
_IN_MESSAGE = re.compile(r"(?P<tag></?x-\d+/?>)|\{code-(?P<carried>\d+)\}")
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True)
class Inline:
    """An inline element."""

    kind: Kind
    payload: Any
    """The part of the document that the node stands for, in a form of the format that made it."""
    children: "list[Node]" = field(default_factory=list)


Node = str | Inline
"""A piece of text, or an inline element."""


def has_words(nodes: Iterable[Node]) -> bool:
    """Return whether there is a letter in the text of nodes."""
    return any(
        _LETTER.search(node) is not None if isinstance(node, str) else has_words(node.children) for node in nodes
    )


def encode(nodes: Sequence[Node]) -> tuple[str, list[Inline]]:
    """Return nodes as HTML, and the inline elements by their numbers."""
    elements: list[Inline] = []
    return "".join(_encoded(node, elements) for node in nodes), elements


def _encoded(node: Node, elements: list[Inline]) -> str:
    if isinstance(node, str):
        return html.escape(node, quote=False)
    number = len(elements)
    elements.append(node)
    if node.kind == "around":
        return f"<x-{number}>{''.join(_encoded(each, elements) for each in node.children)}</x-{number}>"
    return {
        "point": f"<x-{number}/>",
        "atom": f'<code id="{number}"></code>',
        "break": "<br>",
        "boundary": "<hr>",
    }[node.kind]


def decode(text: str, elements: Sequence[Inline]) -> list[Node] | None:
    """Return the nodes of a translation; None where its tags are not those of the text, each once and nested."""
    rest: dict[str, list[Inline]] = {
        tag: [each for each in elements if each.kind == kind] for tag, kind in (("br", "break"), ("hr", "boundary"))
    }
    numbered = {number: each for number, each in enumerate(elements) if each.kind not in ("break", "boundary")}
    found: list[Node] = []
    stack: list[tuple[str, list[Node]]] = []
    siblings = found
    for token in tokens_of(text):
        if token.kind == "text":
            siblings.append(html.unescape(text[slice(*token.span)]))
        elif token.kind == "end":
            if token.name != "code":
                if not stack or stack[-1][0] != token.name:
                    return None
                _, siblings = stack.pop()
        elif token.name in rest:
            if not rest[token.name]:
                return None
            siblings.append(rest[token.name].pop(0))
        else:
            number = _number(text, token.name, token.attributes)
            element = numbered.pop(number, None)
            if element is None:
                return None
            copied = Inline(element.kind, element.payload)
            siblings.append(copied)
            if element.kind == "around":
                stack.append((token.name, siblings))
                siblings = copied.children
    return None if stack or numbered or any(rest.values()) else found


def as_message(text: str) -> str:
    """Return a text of `encode` as a message of ICU MessageFormat, in which carried parts are arguments."""
    return html.unescape(_CARRIED.sub(r"{code-\1}", text))


def of_message(message: str) -> str:
    """Return a message of `as_message`, or its translation, as HTML for `decode`."""
    pieces, done = [], 0
    for found in _IN_MESSAGE.finditer(message):
        tag = found["tag"] or f'<code id="{found["carried"]}"></code>'
        pieces += [html.escape(message[done : found.start()], quote=False), tag]
        done = found.end()
    return "".join([*pieces, html.escape(message[done:], quote=False)])


def _number(text: str, name: str, attributes: Sequence[Any]) -> int:
    if name == "code":
        return next((int(text[slice(*each.value)]) for each in attributes if each.name == "id"), -1)
    found = _NUMBER.fullmatch(name)
    return int(found[1]) if found else -1
