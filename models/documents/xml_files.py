"""XML files of others: no document types, no entities of their own, no network, bounded depth and size."""

import re
from typing import TYPE_CHECKING
from xml.parsers import expat

from models.documents.document import DocumentError, Limits, missing_package

if TYPE_CHECKING:
    from lxml.etree import _Element

__all__ = ["check_xml", "parse_xml", "serialized_xml"]

_DECLARATION = re.compile(rb"\A\s*<\?xml[^>]*\?>\s*")


class _Checks:
    def __init__(self, limits: Limits) -> None:
        self._limits, self._depth, self._elements = limits, 0, 0

    def begin(self, name: str, attributes: object) -> None:
        del name, attributes
        self._depth += 1
        self._elements += 1
        if self._depth > self._limits.max_depth:
            raise DocumentError(f"xml: more than {self._limits.max_depth} elements within each other")
        if self._elements > self._limits.max_elements:
            raise DocumentError(f"xml: more than {self._limits.max_elements} elements")

    def end(self, name: str) -> None:
        del name
        self._depth -= 1

    def doctype(self, *_: object) -> None:
        raise DocumentError("xml: a document type declaration is not accepted")


def check_xml(content: bytes, limits: Limits, where: str = "xml") -> None:
    """Raise `DocumentError` for XML that is not well-formed, has a document type, or exceeds a limit."""
    parser = expat.ParserCreate()
    checks = _Checks(limits)
    parser.StartElementHandler, parser.EndElementHandler = checks.begin, checks.end
    parser.StartDoctypeDeclHandler = checks.doctype
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise DocumentError(
            f"{where}: {expat.ErrorString(error.code)}, line {error.lineno}, column {error.offset + 1}"
        ) from None
    except (ValueError, LookupError) as error:  # an encoding that is unknown, or has several bytes for a character
        raise error if isinstance(error, DocumentError) else DocumentError(f"{where}: {error}") from None


def parse_xml(content: bytes, limits: Limits, form: str) -> "_Element":
    """Return the root of checked XML; raises `DocumentError`."""
    check_xml(content, limits, form)
    try:
        from lxml import etree
    except ModuleNotFoundError:
        raise missing_package("lxml", form) from None
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        return etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        raise DocumentError(f"{form}: {error}") from None


def serialized_xml(root: "_Element", content: bytes) -> bytes:
    """Return XML in the encoding of the file `content` that it was read from, with its declaration."""
    from lxml import etree

    tree = root.getroottree()
    encoding = tree.docinfo.encoding or "UTF-8"
    written: bytes = etree.tostring(tree, encoding=encoding, xml_declaration=False)
    declaration = _DECLARATION.match(content)
    if encoding.upper() not in ("UTF-8", "ASCII", "US-ASCII", "ISO-8859-1"):
        written = etree.tostring(tree, encoding=encoding, xml_declaration=True)
    elif declaration is not None:
        written = declaration[0] + written.lstrip()
    mark = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
    if mark and (found := _DECLARATION.match(content[3:])):
        written = found[0] + written
    end = content[len(content.rstrip()) :] if encoding.upper() == "UTF-8" else b""
    return mark + written.rstrip() + end
