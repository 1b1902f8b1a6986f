"""HTML and Markdown: each block of text is a segment, with the attributes of its tags; so is each other attribute."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from models.documents.decoding import decoded
from models.documents.document import DocumentError, DocumentOptions, MarkupInPlace, Segment
from models.documents.spliced import Place, SplicedDocument
from models.text.markup import Block, Markup, filled
from models.text.markup import Document as TakenApart

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
    markup = options.markup(form)
    document = markup.document(file.text[at:])
    texts = _texts(document.blocks)
    segments: list[Segment] = []
    places: list[Place] = []
    for piece in document.pieces:
        if isinstance(piece, str):
            at += len(piece)
            continue
        text, block = texts[piece], document.blocks[piece]
        if not file.text.startswith(text, at):
            raise DocumentError(f"the {form} at character {at + 1} cannot be read")
        if block.quote:
            segments.append(_attribute(text, block, markup, f"character {at + 1}"))
            places.append(Place((at, at + len(text)), partial(_quoted, quote=block.quote, is_bare=block.is_bare)))
        else:
            segments.append(_segment(text, document.part(piece), markup, f"character {at + 1}"))
            places.append(Place((at, at + len(text))))
        at += len(text)
    return SplicedDocument(file, segments, places, options.limits)


def _texts(blocks: Sequence[Block]) -> list[str]:
    """Return the blocks as they stand in the document."""
    found: list[str] = []
    for block in blocks:
        found.append(filled(block.markup, found))
    return found


def _segment(text: str, parts: TakenApart, markup: Markup, context: str) -> Segment:
    read = MarkupInPlace(
        markup.format, markup.ignore_tags, markup.translate_attributes, markup.block_tags, text=text, parts=parts
    )
    return Segment(text, read, context)


def _attribute(value: str, block: Block, markup: Markup, context: str) -> Segment:
    """Return the value of an attribute as text between tags, so that it has the translation of an equal one."""
    text = value.replace("<", "&lt;")
    written = replace(block, markup=(text,), quote="", is_bare=False)
    return _segment(text, TakenApart((0,), (written,)), markup, context)


def _quoted(text: str, *, quote: str, is_bare: bool) -> str:
    """Return text between tags as the value of an attribute."""
    value = text.replace(quote, "&quot;" if quote == '"' else "&#39;")
    return f"{quote}{value}{quote}" if is_bare else value
