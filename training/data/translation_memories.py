"""Translation memories: TMX, whose columns are languages, and XLIFF 1.2 and 2, whose columns are source and target.

Documents with a document type or entities are refused: they can name other files and grow without limit.
"""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from training.data.tables import Row, Table

__all__ = ["tmx_table", "xliff_table"]

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def tmx_table(path: Path, content: bytes) -> Table:
    """Return the table of a TMX document: a column for each language, named in lower case, such as `de` or `en-us`.

    Raises `ValueError` for a document that is not XML, or that declares entities.
    """
    rows: list[tuple[int, Row]] = []
    for number, unit in enumerate(_elements(path, content, "tu"), 1):
        row = {}
        for variant in _children(unit, "tuv"):
            language = variant.get(_LANGUAGE) or variant.get("lang") or "unknown"
            row[language.lower()] = " ".join(_text(each) for each in _children(variant, "seg"))
        rows.append((number, row))
    columns = tuple(dict.fromkeys(name for _, row in rows for name in row))
    return Table(path, columns, rows, noun="unit")


def xliff_table(path: Path, content: bytes) -> Table:
    """Return the table of an XLIFF document, with the columns `source` and `target`; raises as `tmx_table` does.

    Units without a target, which are not translated, are left out.
    """
    rows: list[tuple[int, Row]] = []
    for name in ("trans-unit", "segment"):
        for number, unit in enumerate(_elements(path, content, name), 1):
            row = {side: _text(each) for side in ("source", "target") for each in _children(unit, side)}
            if row.get("target", "").strip():
                rows.append((number, row))
    return Table(path, ("source", "target"), rows, noun="unit")


def _elements(path: Path, content: bytes, name: str) -> Iterator[ElementTree.Element]:
    start = content[:4096].replace(b"\0", b"").lower()
    declared = start.partition(b"<!doctype")[2]
    if b"<!entity" in content.replace(b"\0", b"").lower() or b"[" in declared.partition(b">")[0]:
        raise ValueError(f"{path} declares entities, which are refused; save it without them")
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} is not XML: {error}") from error
    return (each for each in root.iter() if _local(each) == name)


def _children(element: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (each for each in element if _local(each) == name)


def _local(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _text(element: ElementTree.Element) -> str:
    """Return the text of a segment without the codes of its format, which `ph`, `bpt`, `ept` and `it` hold."""
    parts = [element.text or ""]
    for each in element:
        if _local(each) not in ("ph", "bpt", "ept", "it", "ut"):
            parts.append(_text(each))
        parts.append(each.tail or "")
    return "".join(parts)
