"""Documents: files whose texts are translated, and that are written again with everything else as it was."""

from models.documents.document import Document, DocumentError, DocumentOptions, Limits, Segment
from models.documents.formats import DocumentFormat, format_of, formats, read_document

__all__ = [
    "Document",
    "DocumentError",
    "DocumentFormat",
    "DocumentOptions",
    "Limits",
    "Segment",
    "format_of",
    "formats",
    "read_document",
]
