"""The formats of documents, by name and by the ending of a file's name."""

from collections.abc import Callable
from dataclasses import dataclass

from models.documents.document import Document, DocumentError, DocumentOptions
from models.documents.gettext import read_po
from models.documents.json_strings import read_json
from models.documents.marked_up import read_html, read_markdown
from models.documents.plain import read_text
from models.documents.subtitles import read_srt, read_vtt
from models.documents.tables import read_csv, read_tsv
from models.documents.word import read_docx
from models.documents.xliff import read_xliff

__all__ = ["DocumentFormat", "format_of", "formats", "read_document"]


@dataclass(frozen=True, slots=True)
class DocumentFormat:
    """A format of documents."""

    name: str
    endings: tuple[str, ...]
    media_type: str
    read: Callable[[bytes, DocumentOptions], Document]
    has_elements: Callable[[DocumentOptions], bool] = lambda options: False
    """Whether the texts have elements and attributes that options may name."""


def _has_values_with_elements(options: DocumentOptions) -> bool:
    return options.value_format in ("html", "xml")


_WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_FORMATS = (
    DocumentFormat("txt", (".txt", ".text"), "text/plain", read_text),
    DocumentFormat("html", (".html", ".htm"), "text/html", read_html, lambda options: True),
    DocumentFormat("md", (".md", ".markdown"), "text/markdown", read_markdown),
    DocumentFormat("srt", (".srt",), "application/x-subrip", read_srt),
    DocumentFormat("vtt", (".vtt",), "text/vtt", read_vtt),
    DocumentFormat("po", (".po", ".pot"), "text/x-gettext-translation", read_po),
    DocumentFormat("xliff", (".xlf", ".xliff"), "application/xliff+xml", read_xliff),
    DocumentFormat("json", (".json",), "application/json", read_json, _has_values_with_elements),
    DocumentFormat("csv", (".csv",), "text/csv", read_csv, _has_values_with_elements),
    DocumentFormat("tsv", (".tsv",), "text/tab-separated-values", read_tsv, _has_values_with_elements),
    DocumentFormat("docx", (".docx",), _WORD, read_docx),
)


def formats() -> tuple[DocumentFormat, ...]:
    """Return all formats."""
    return _FORMATS


def format_of(name: str) -> DocumentFormat:
    """Return the format of a name, which is that of a format or of a file; raises `DocumentError`."""
    lower = name.lower()
    for each in _FORMATS:
        if lower == each.name or f".{lower}" in each.endings or lower.endswith(each.endings):
            return each
    if lower.endswith((".docm", ".dotm")):
        raise DocumentError("documents with macros (docm) are not accepted; save it as docx")
    known = ", ".join(ending for each in _FORMATS for ending in each.endings)
    raise DocumentError(f"no format of documents has the ending of {name[-40:]!r}; known: {known}")


def read_document(content: bytes, form: DocumentFormat, options: DocumentOptions | None = None) -> Document:
    """Read a document of a format. Raises `DocumentError`, and `QueryError` for markup with too many tags."""
    options = options or DocumentOptions()
    if len(content) > options.limits.max_bytes:
        raise DocumentError(f"the document has {len(content)} bytes; the limit is {options.limits.max_bytes}")
    names = {"ignore_tags": options.ignore_tags, "translate_attributes": options.translate_attributes}
    if (given := [name for name, value in names.items() if value]) and not form.has_elements(options):
        raise DocumentError(
            f"{given[0]} is for HTML, and for values of JSON and CSV in HTML or XML, not for this document"
        )
    return form.read(content, options)
