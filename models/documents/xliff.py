"""XLIFF 1.2 and 2.0: the sources of units, whose translations become targets, inline elements included."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.documents.document import DocumentError, DocumentOptions, Segment
from models.documents.inline import TAGS, Inline, Node, as_message, decode, encode, has_words, of_message
from models.documents.xml_files import parse_xml, serialized_xml
from models.text.markup import Markup, has_branches

if TYPE_CHECKING:
    from lxml.etree import _Element

__all__ = ["read_xliff"]

_AROUND = frozenset({"g", "mrk", "pc"})
"""Inline elements with text that is translated."""
_BEGIN = {"bpt": "ept", "sc": "ec", "bx": "ex"}
"""Elements that begin what another one ends, as a pair in a unit."""


def read_xliff(content: bytes, options: DocumentOptions) -> "XliffDocument":
    """Read XLIFF; raises `DocumentError`."""
    root = parse_xml(content, options.limits, "xliff")
    version = root.get("version", "")
    if _name(root) != "xliff" or version.split(".")[0] not in ("1", "2"):
        raise DocumentError("xliff: this is no XLIFF of version 1.2 or 2.0")
    return XliffDocument(content, root, options)


@dataclass(frozen=True, slots=True)
class _Unit:
    holder: "_Element"
    """A trans-unit (1.2) or a segment (2.0)."""
    source: "_Element"
    elements: list[Inline]
    is_message: bool
    """Whether the text is a message of ICU MessageFormat with branches."""


class XliffDocument:
    """An XLIFF file that was read."""

    def __init__(self, content: bytes, root: "_Element", options: DocumentOptions) -> None:
        self._content, self._root = content, root
        self._language = options.target_language
        self._is_second = root.get("version", "").startswith("2")
        self._units: list[_Unit] = []
        segments: list[Segment] = []
        for holder, identifier in _holders(root, self._is_second):
            source = _child(holder, "source")
            if source is None or (not options.overwrite and _is_translated(holder, is_second=self._is_second)):
                continue
            nodes = _paired(_nodes(source))
            if not has_words(nodes):
                continue
            text, elements = encode(nodes)
            message = as_message(text)
            is_message = has_branches(message)
            self._units.append(_Unit(holder, source, elements, is_message))
            segments.append(
                Segment(message, Markup("icu"), identifier) if is_message else Segment(text, TAGS, identifier)
            )
            if len(segments) > options.limits.max_segments:
                raise DocumentError(f"the document has more than {options.limits.max_segments} texts")
        self.segments = tuple(segments)

    def written(self, translations: Sequence[str | None]) -> bytes:
        """Return the file with a target for each translation: `needs-review-translation` (1.2), `translated` (2.0)."""
        if all(each is None for each in translations):
            return self._content
        places = {id(each): place for place, each in enumerate(self._root.iter())}
        root = copy.deepcopy(self._root)
        copies = list(root.iter())
        for unit, translation in zip(self._units, translations, strict=True):
            if translation is None:
                continue
            text = of_message(translation) if unit.is_message else translation
            if (nodes := decode(text, unit.elements)) is None:
                continue
            self._add_target(copies[places[id(unit.holder)]], copies[places[id(unit.source)]], nodes)
        self._name_language(root)
        return serialized_xml(root, self._content)

    def _add_target(self, holder: "_Element", source: "_Element", nodes: Sequence[Node]) -> None:
        target = _child(holder, "target")
        if target is None:
            target = source.makeelement(source.tag.replace("source", "target"), nsmap=source.nsmap)
            before = _child(holder, "seg-source")
            previous = source if before is None else before
            target.tail = previous.tail
            if not (holder.text or "").strip():
                previous.tail = holder.text  # the indentation
            holder.insert(holder.index(previous) + 1, target)
        for child in list(target):
            target.remove(child)
        target.text = None
        _append(target, nodes)
        if self._is_second:
            holder.set("state", "translated")
        else:
            target.set("state", "needs-review-translation")
            target.set("state-qualifier", "mt-suggestion")

    def _name_language(self, root: "_Element") -> None:
        if self._language is None:
            return
        if self._is_second:
            if root.get("trgLang") is None:
                root.set("trgLang", self._language)
            return
        for file in root.iter(f"{{{root.nsmap.get(None)}}}file" if root.nsmap.get(None) else "file"):
            if file.get("target-language") is None:
                file.set("target-language", self._language)


def _name(element: "_Element") -> str:
    """Return the name of an element without its namespace; comments have none."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _child(element: "_Element", name: str) -> "_Element | None":
    return next((each for each in element if _name(each) == name), None)


def _holders(root: "_Element", is_second: bool) -> Iterator[tuple["_Element", str]]:
    """Yield the units that are to be translated, and their ids; `translate` counts for everything within."""
    todo: list[tuple[_Element, bool, str]] = [(root, True, "")]
    while todo:
        element, translates, identifier = todo.pop()
        translates = element.get("translate", "yes" if translates else "no") != "no"
        name = _name(element)
        identifier = element.get("id", identifier) if name in ("trans-unit", "unit") else identifier
        if name == ("segment" if is_second else "trans-unit"):
            if translates:
                yield element, identifier
        else:
            todo += [(child, translates, identifier) for child in reversed(element) if isinstance(child.tag, str)]


def _is_translated(holder: "_Element", *, is_second: bool) -> bool:
    target = _child(holder, "target")
    if holder.get("approved") == "yes" or (is_second and holder.get("state") in ("reviewed", "final")):
        return True
    return target is not None and ("".join(target.itertext()).strip() != "" or len(target) > 0)


def _nodes(element: "_Element") -> list[Node]:
    found: list[Node] = [element.text or ""]
    for child in element:
        name = _name(child)
        if name in _AROUND and child.get("translate") != "no" and child.get("mtype") != "protected":
            bare = copy.deepcopy(child)
            for each in list(bare):
                bare.remove(each)
            bare.text = bare.tail = None
            found.append(Inline("around", bare, _nodes(child)))
        else:
            carried = copy.deepcopy(child)
            carried.tail = None
            has_text = name in _AROUND or (name in ("ph", "x") and bool(child.get("disp") or child.get("equiv-text")))
            found.append(Inline("atom" if has_text else "point", carried))
        found.append(child.tail or "")
    return [each for each in found if each != ""]


def _paired(nodes: Sequence[Node]) -> list[Node]:
    """Return nodes in which the beginning and the end of a pair enclose what is between them."""
    found: list[Node] = []
    place = 0
    while place < len(nodes):
        node = nodes[place]
        end = None if isinstance(node, str) or node.kind != "point" else _end_of(nodes, place)
        if end is None or isinstance(node, str):
            found.append(node if isinstance(node, str) else Inline(node.kind, node.payload, _paired(node.children)))
            place += 1
        else:
            closing = nodes[end]
            assert isinstance(closing, Inline)
            found.append(Inline("around", (node.payload, closing.payload), _paired(nodes[place + 1 : end])))
            place = end + 1
    return found


def _end_of(nodes: Sequence[Node], place: int) -> int | None:
    first = nodes[place]
    assert isinstance(first, Inline)
    ending = _BEGIN.get(_name(first.payload))
    if ending is None:
        return None
    key = first.payload.get("rid") or first.payload.get("id")
    for index in range(place + 1, len(nodes)):
        node = nodes[index]
        is_end = isinstance(node, Inline) and node.kind == "point" and _name(node.payload) == ending
        if is_end and key in [node.payload.get(name) for name in ("startRef", "rid", "id")]:  # type: ignore[union-attr]
            return index
    return None


def _append(parent: "_Element", nodes: Sequence[Node]) -> None:
    for node in nodes:
        if isinstance(node, str):
            if len(parent):
                parent[-1].tail = (parent[-1].tail or "") + node
            else:
                parent.text = (parent.text or "") + node
        elif isinstance(node.payload, tuple):
            opening, closing = map(copy.deepcopy, node.payload)
            parent.append(opening)
            _append(parent, node.children)
            parent.append(closing)
        else:
            element = copy.deepcopy(node.payload)
            parent.append(element)
            _append(element, node.children)
