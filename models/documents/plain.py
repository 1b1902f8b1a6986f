"""Text files: each line is a text, or each paragraph where its lines are joined."""

import re

from models.documents.decoding import decoded
from models.documents.document import DocumentOptions, Segment
from models.documents.spliced import Place, SplicedDocument

__all__ = ["read_text"]

_LINE = re.compile(r"[^\r\n]+")
_PARAGRAPH = re.compile(r"[^\r\n]*\S[^\r\n]*(?:\r?\n[^\r\n]*[^\s][^\r\n]*)*")
_LINE_END = re.compile(r"\r\n?|\n")
_LETTER = re.compile(r"[^\W\d_]")


def read_text(content: bytes, options: DocumentOptions) -> SplicedDocument:
    """Read a text file; raises `DocumentError`."""
    file = decoded(content, options.encoding)
    segments: list[Segment] = []
    places: list[Place] = []
    line, counted = 1, 0
    for found in (_PARAGRAPH if options.join_lines else _LINE).finditer(file.text):
        text = found[0].strip()
        if _LETTER.search(text) is None:
            continue
        start = found.start() + found[0].index(text)
        line += len(_LINE_END.findall(file.text, counted, start))
        counted = start
        segments.append(Segment(text, context=f"line {line}", join_lines=options.join_lines))
        places.append(Place((start, start + len(text))))
    return SplicedDocument(file, segments, places, options.limits)
