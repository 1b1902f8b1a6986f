"""Word documents (docx): paragraphs of the body, of tables, headers, footers, notes, comments and text boxes.

A paragraph is a text whose runs are inline elements, so that the style of a word is that of its translation. Where its
translation equals it, it is not touched.
"""

import copy
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from models.documents.archives import check_archive
from models.documents.document import DocumentError, DocumentOptions, Segment, missing_package
from models.documents.inline import TAGS, Inline, Kind, Node, decode, encode, has_words
from models.documents.xml_files import parse_xml

if TYPE_CHECKING:
    from lxml.etree import _Element

__all__ = ["read_docx"]

_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_W = f"{{{_NAMESPACE}}}"
_TYPES = "application/vnd.openxmlformats-officedocument.wordprocessingml."
_PARTS = frozenset(
    f"{_TYPES}{name}+xml"
    for name in ("document.main", "header", "footer", "footnotes", "endnotes", "comments", "template.main")
)
"""Content types of parts with paragraphs."""
_CONTAINERS = frozenset(f"{_W}{name}" for name in ("hyperlink", "ins", "smartTag", "fldSimple", "customXml"))
"""Elements of a paragraph with runs in them that are translated."""
_DROPPED = frozenset(f"{_W}{name}" for name in ("proofErr", "lastRenderedPageBreak"))
"""Marks of the last spelling check and of the last layout, which a translation makes untrue."""
_KINDS: Mapping[str, Kind] = {"tab": "boundary", "ptab": "boundary", "cr": "break", "br": "break"}
"""What an element of a run is between words; others are points, such as images and marks of notes."""
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


def read_docx(content: bytes, options: DocumentOptions) -> "WordDocument":
    """Read a docx file; raises `DocumentError`."""
    check_archive(content, options.limits, "docx")
    return WordDocument(content, options)


def _package(content: bytes) -> Any:
    try:
        import docx
        from docx.opc.exceptions import OpcError
    except ModuleNotFoundError:
        raise missing_package("python-docx", "docx") from None
    try:
        package = docx.Document(io.BytesIO(content)).part.package
    except (OpcError, KeyError, ValueError, AttributeError, SyntaxError) as error:
        raise DocumentError(f"docx: {str(error)[:200]}") from None
    if any("vbaProject" in str(part.partname) or "macroEnabled" in part.content_type for part in package.iter_parts()):
        raise DocumentError("docx: the document has macros (docm), which is not accepted; save it as docx")
    return package


class WordDocument:
    """A docx file that was read."""

    def __init__(self, content: bytes, options: DocumentOptions) -> None:
        self._content, self._options = content, options
        segments: list[Segment] = []
        for name, paragraph in _paragraphs(_package(content), options):
            nodes, _ = _nodes_of(paragraph)
            if not has_words(nodes):
                continue
            text, _ = encode(nodes)
            segments.append(Segment(text, TAGS, name))
            if len(segments) > options.limits.max_segments:
                raise DocumentError(f"the document has more than {options.limits.max_segments} texts")
        self.segments = tuple(segments)

    def written(self, translations: Sequence[str | None]) -> bytes:
        """Return the file with the translations of its paragraphs."""
        package = _package(self._content)
        left = iter(zip(self.segments, translations, strict=True))
        for _, paragraph in _paragraphs(package, self._options, write=True):
            nodes, base = _nodes_of(paragraph)
            if not has_words(nodes):
                continue
            segment, translation = next(left)
            if translation is None or translation == segment.text:
                continue
            found = decode(translation, encode(nodes)[1])
            if found is not None:
                _rewrite(paragraph, found, base)
        written = io.BytesIO()
        package.save(written)
        return written.getvalue()


def _paragraphs(package: Any, options: DocumentOptions, *, write: bool = False) -> Iterator[tuple[str, "_Element"]]:
    """Yield the paragraphs of all parts, each with the name of its part.

    With `write`, parts that python-docx keeps as bytes get those of the tree once its paragraphs have been yielded.
    """
    parts = sorted((part for part in package.iter_parts() if part.content_type in _PARTS), key=_order)
    for part in parts:
        name = str(part.partname).rpartition("/")[2].removesuffix(".xml")
        root = getattr(part, "element", None)
        is_bytes = root is None
        if root is None:
            root = parse_xml(part.blob, options.limits, "docx")
        for paragraph in list(root.iter(f"{_W}p")):
            yield name, paragraph
        if is_bytes and write:
            from lxml import etree

            part._blob = etree.tostring(root, encoding="UTF-8", xml_declaration=True, standalone=True)


def _order(part: Any) -> tuple[bool, str]:
    return "document.main" not in part.content_type, str(part.partname)


@dataclass(frozen=True, slots=True)
class _Run:
    """The text of a run, and its properties as canonical XML, nothing where it has none."""

    text: str
    style: bytes


@dataclass(frozen=True, slots=True)
class _Container:
    """An inline element with runs in it, as it is read: `Inline` of runs instead of nodes."""

    kind: Kind
    payload: Any
    children: "list[_Item]" = field(default_factory=list)


_Item = _Run | _Container


def _nodes_of(paragraph: "_Element") -> tuple[list[Node], bytes]:
    """Return the content of a paragraph, and the most frequent style of it, whose text has no element."""
    items = list(_items(paragraph))
    styles: Counter[bytes] = Counter()
    _count(items, styles)
    base = styles.most_common(1)[0][0] if styles else b""
    return _styled(items, base), base


def _items(parent: "_Element") -> Iterator[_Item]:
    """Yield the runs, elements and fields of a paragraph, or of a container within it."""
    children = [child for child in parent if child.tag not in _DROPPED and child.tag != f"{_W}pPr"]
    place = 0
    while place < len(children):
        child = children[place]
        if child.tag != f"{_W}r":
            if child.tag in _CONTAINERS:
                yield _Container("around", child, list(_items(child)))
            elif child.tag == f"{_W}sdt" and (content := child.find(f"{_W}sdtContent")) is not None:
                yield from _of_content_control(child, content)
            else:
                yield _Container("point", child)
            place += 1
        elif _field_mark(child) == "begin":
            end = _end_of_field(children, place)
            yield from _field(children[place:end])
            place = end
        else:
            yield from _of_run(child)
            place += 1


def _of_content_control(control: "_Element", content: "_Element") -> Iterator[_Item]:
    """Yield a content control: as one element where its content is runs alone."""
    if any(child.tag == f"{_W}p" for child in content.iter()):
        yield _Container("point", control)
    else:
        yield _Container("around", control, list(_items(content)))


def _of_run(run: "_Element") -> Iterator[_Item]:
    properties = run.find(f"{_W}rPr")
    style = b"" if properties is None else _canonical(properties)
    for child in run:
        name = child.tag.removeprefix(_W) if isinstance(child.tag, str) else ""
        if child.tag in _DROPPED or name in ("rPr", ""):
            continue
        text = {"t": child.text or "", "noBreakHyphen": "\u2011", "softHyphen": ""}.get(name)
        if text is not None:
            if text:
                yield _Run(text, style)
            continue
        kind = _KINDS.get(name, "point")
        if name == "br" and child.get(f"{_W}type") not in (None, "textWrapping"):
            kind = "boundary"
        alone = run.makeelement(run.tag, dict(run.attrib), run.nsmap)
        if properties is not None:
            alone.append(copy.deepcopy(properties))
        yield _Container(kind, (alone, child))


def _canonical(properties: "_Element") -> bytes:
    from lxml import etree

    plain = copy.deepcopy(properties)
    for name in ("lang", "noProof"):  # the language of the source text, and marks of the spelling check
        for each in plain.findall(f"{_W}{name}"):
            plain.remove(each)
    plain.tail = None
    return etree.tostring(plain, method="c14n", exclusive=True) if len(plain) else b""


def _properties_of(style: bytes) -> "_Element | None":
    from docx.oxml.parser import parse_xml as parse_properties

    return parse_properties(style) if style else None


def _count(items: Sequence[_Item], styles: Counter[bytes]) -> None:
    for item in items:
        if isinstance(item, _Run):
            styles[item.style] += len(item.text)
        else:
            _count(item.children, styles)


def _styled(items: Sequence[_Item], base: bytes) -> list[Node]:
    """Return items as nodes: neighbouring runs of one style are one."""
    found: list[Node] = []
    last: bytes | None = None
    for item in items:
        if not isinstance(item, _Run):
            found.append(Inline(item.kind, item.payload, _styled(item.children, base)))
            last = None
            continue
        if item.style == last:
            found[-1] = _extended(found[-1], item.text)
        elif item.style == base:
            found.append(item.text)
        else:
            found.append(Inline("around", item.style, [item.text]))
        last = item.style
    return found


def _extended(node: Node, text: str) -> Node:
    if isinstance(node, str):
        return node + text
    first = node.children[0]
    assert isinstance(first, str)
    return Inline(node.kind, node.payload, [first + text])


def _field_mark(run: "_Element") -> str | None:
    mark = run.find(f"{_W}fldChar")
    return None if mark is None else mark.get(f"{_W}fldCharType")


def _end_of_field(children: Sequence["_Element"], place: int) -> int:
    """Return the place after the end of the field that begins at a place; that after its beginning without one."""
    depth = 0
    for index in range(place, len(children)):
        mark = _field_mark(children[index]) if children[index].tag == f"{_W}r" else None
        depth += {"begin": 1, "end": -1}.get(mark or "", 0)
        if depth == 0:
            return index + 1
    return next(
        (index + 1 for index in range(place, len(children)) if _field_mark(children[index]) == "separate"), place + 1
    )


def _field(children: Sequence["_Element"]) -> Iterator[_Item]:
    """Yield a field: a link encloses its text, the others are carried along with their result."""
    marks = [_field_mark(child) for child in children]
    code = "".join("".join(each.itertext()) for child in children for each in child.iter(f"{_W}instrText"))
    if marks[-1] == "end" and "separate" in marks and code.split()[:1] == ["HYPERLINK"] and marks.count("begin") == 1:
        middle = marks.index("separate")
        within = children[0].makeelement(f"{_W}within", nsmap=children[0].nsmap)
        within.extend(copy.deepcopy(child) for child in children[middle + 1 : -1])
        opening, closing = list(children[: middle + 1]), [children[-1]]
        yield _Container("around", (opening, closing), list(_items(within)))
    elif marks[-1] == "end":
        yield _Container("atom", list(children))
    else:
        yield _Container("point", list(children))


def _rewrite(paragraph: "_Element", nodes: Sequence[Node], base: bytes) -> None:
    """Replace the content of a paragraph, in which text without an element has the style `base`."""
    kept = [child for child in paragraph if child.tag == f"{_W}pPr"]
    for child in list(paragraph):
        paragraph.remove(child)
    paragraph.extend(kept)
    _write(paragraph, nodes, _properties_of(base))


def _write(parent: "_Element", nodes: Sequence[Node], properties: "_Element | None") -> None:
    for node in nodes:
        if isinstance(node, str):
            if node:
                parent.append(_run(parent, node, properties))
        elif isinstance(node.payload, bytes):
            _write(parent, node.children, _properties_of(node.payload))
        else:
            _write_element(parent, node, properties)


def _write_element(parent: "_Element", node: Inline, properties: "_Element | None") -> None:
    payload = node.payload
    if node.kind == "around" and isinstance(payload, tuple):
        parent.extend(payload[0])
        _write(parent, node.children, properties)
        parent.extend(payload[1])
    elif isinstance(payload, tuple):
        run, child = payload
        run.append(child)
        parent.append(run)
    elif isinstance(payload, list):
        parent.extend(payload)
    else:
        if node.kind == "around":
            content = payload.find(f"{_W}sdtContent") if payload.tag == f"{_W}sdt" else payload
            for child in list(content):
                if child.tag != f"{_W}fldData":
                    content.remove(child)
            _write(content, node.children, properties)
        parent.append(payload)


def _run(parent: "_Element", text: str, properties: "_Element | None") -> "_Element":
    run = parent.makeelement(f"{_W}r", nsmap=parent.nsmap)
    if properties is not None and len(properties):
        run.append(copy.deepcopy(properties))
    written = run.makeelement(f"{_W}t", nsmap=parent.nsmap)
    written.text = text
    if text != text.strip():
        written.set(_SPACE, "preserve")
    run.append(written)
    return run
