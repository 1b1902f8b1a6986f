"""HTML and Markdown: each block of text is a segment."""

import re
from typing import Literal

from models.documents.decoding import decoded
from models.documents.document import DocumentError, DocumentOptions, Segment
from models.documents.spliced import Place, SplicedDocument
from models.text.markup import Markup, filled

__all__ = ["read_html", "read_markdown"]

_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n.*?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
"""Metadata in YAML before a text in Markdown, which Markdown would read as a heading."""


def read_html(content: bytes, options: DocumentOptions) -> SplicedDocument:
    """Read HTML, a document or a fragment; raises `DocumentError`, `QueryError`."""
    return _read(content, options, "html", _CHARSET)


def read_markdown(content: bytes, options: DocumentOptions) -> SplicedDocument:
    """Read Markdown; raises `DocumentError`, `QueryError`."""
    return _read(content, options, "markdown", None)


def _read(
    content: bytes, options: DocumentOptions, form: Literal["html", "markdown"], declared: re.Pattern[bytes] | None
) -> SplicedDocument:
    file = decoded(content, options.encoding, declared=declared)
    front = _FRONT_MATTER.match(file.text) if form == "markdown" else None
    at = front.end() if front else 0
    ignored = options.ignore_tags if form == "html" else ()
    document = Markup(form, ignored).document(file.text[at:])
    segments: list[Segment] = []
    places: list[Place] = []
    for piece in document.pieces:
        if isinstance(piece, str):
            at += len(piece)
            continue
        block = document.blocks[piece]
        text = filled(block.markup, ())
        if not file.text.startswith(text, at):
            raise DocumentError(f"the {form} at character {at + 1} cannot be read")
        segments.append(Segment(text, form, f"character {at + 1}", block))
        places.append(Place((at, at + len(text))))
        at += len(text)
    return SplicedDocument(file, segments, places, options.limits)
