"""Subtitles: SubRip (srt) and WebVTT. Time codes, settings, notes and styles stay as they are, byte for byte."""

import html
import re
import textwrap
from collections.abc import Sequence
from functools import partial

from models.documents.decoding import decoded
from models.documents.document import DocumentError, DocumentOptions, Segment
from models.documents.inline import TAGS, Inline, Node, decode, encode, has_words
from models.documents.spliced import Place, SplicedDocument

__all__ = ["read_srt", "read_vtt"]

_CUE = re.compile(
    r"^[ \t]*(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}[ \t]+-->[ \t]+(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}[^\r\n]*(?:\r?\n|\Z)",
    re.MULTILINE,
)
_LINES = re.compile(r"(?:[^\r\n]*[^\s][^\r\n]*(?:\r?\n|\Z))+")
"""The lines after a time code, to the next empty one."""
_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>|<\d[\d:.]*>|\{\\[^{}\n]*\}")
_NAME = re.compile(r"</?([A-Za-z]+)")
_REFERENCE = re.compile(r"&(?:amp|lt|gt|nbsp|#\d+);")
_SPEAKER = re.compile(r"\s*(?:[-–—‐]|♪|>>|\[|\()")
"""The beginning of a line that goes on with another speaker."""


def read_srt(content: bytes, options: DocumentOptions) -> SplicedDocument:
    """Read SubRip; raises `DocumentError`."""
    return _read(content, options, "srt")


def read_vtt(content: bytes, options: DocumentOptions) -> SplicedDocument:
    """Read WebVTT; raises `DocumentError`."""
    return _read(content, options, "vtt")


def _read(content: bytes, options: DocumentOptions, form: str) -> SplicedDocument:
    file = decoded(content, options.encoding)
    text = file.text
    if form == "vtt" and not text.startswith("WEBVTT"):
        raise DocumentError("vtt: the file does not begin with WEBVTT")
    segments: list[Segment] = []
    places: list[Place] = []
    cues = 0
    for cue in _CUE.finditer(text):
        cues += 1
        lines = _LINES.match(text, cue.end())
        if lines is None:
            continue
        shown = lines[0].rstrip("\r\n")
        has_references = form == "vtt" or _REFERENCE.search(shown) is not None
        nodes, count = _nodes(shown, has_references=has_references)
        if not has_words(nodes):
            continue
        written, elements = encode(nodes)
        segments.append(Segment(written, TAGS, f"cue {cues}, {cue[0].strip()}"))
        end = "\r\n" if "\r\n" in lines[0] else "\n"
        places.append(
            Place(
                (cue.end(), cue.end() + len(shown)),
                partial(_written, elements=elements, lines=count, end=end, has_references=has_references, shown=shown),
            )
        )
    if text.strip() and not cues and form == "srt":
        raise DocumentError("srt: the file has no time codes, such as 00:00:01,000 --> 00:00:02,000")
    return SplicedDocument(file, segments, places, options.limits)


def _nodes(shown: str, *, has_references: bool) -> tuple[list[Node], int]:
    """Return the nodes of a cue, and its number of lines that are not those of different speakers."""
    lines = shown.splitlines()
    text_of = html.unescape if has_references else str
    several = len(lines) > 1 and all(_SPEAKER.match(_TAG.sub("", line)) for line in lines[1:])
    pieces: list[Node] = []
    for number, line in enumerate(lines):
        if number:
            pieces.append(Inline("break", "\n") if several else " ")
        done = 0
        for tag in _TAG.finditer(line):
            pieces += [text_of(line[done : tag.start()]), Inline("point", tag[0])]
            done = tag.end()
        pieces.append(text_of(line[done:]))
    return _nested(pieces), 1 if several else len(lines)


def _nested(pieces: Sequence[Node]) -> list[Node]:
    """Return nodes in which pairs of tags enclose what is between them; tags without a partner are points."""
    found: list[Node] = []
    stack: list[tuple[str, str, list[Node]]] = []
    siblings = found
    for piece in pieces:
        if isinstance(piece, str) or piece.kind != "point" or (name := _NAME.match(piece.payload)) is None:
            siblings.append(piece)
        elif not piece.payload.startswith("</"):
            siblings.append(Inline("point", piece.payload))
            stack.append((name[1], piece.payload, siblings))
            siblings = []
        elif any(each[0] == name[1] for each in stack):
            while stack:
                begun, tag, parent = stack.pop()
                if begun == name[1]:
                    parent[-1] = Inline("around", (tag, piece.payload), siblings)
                    siblings = parent
                    break
                siblings = _unclosed(parent, siblings)
        else:
            siblings.append(piece)
    while stack:
        *_, parent = stack.pop()
        siblings = _unclosed(parent, siblings)
    return found


def _unclosed(parent: list[Node], children: list[Node]) -> list[Node]:
    parent += children
    return parent


def _written(text: str, *, elements: list[Inline], lines: int, end: str, has_references: bool, shown: str) -> str:
    """Return a cue with about as many lines as it had, of similar lengths."""
    nodes = decode(text, elements)
    if nodes is None:
        return shown
    written = _joined(nodes, has_references=has_references)
    if lines > 1:
        written = _wrapped(written, lines)
    return re.sub(r"\n(?:[ \t]*\n)+", "\n", written.strip("\n")).replace("\n", end)


def _joined(nodes: Sequence[Node], *, has_references: bool) -> str:
    pieces: list[str] = []
    for node in nodes:
        if isinstance(node, str):
            pieces.append(html.escape(node, quote=False) if has_references else node.replace("-->", "→"))
        elif node.kind == "around":
            opening, closing = node.payload
            pieces += [opening, _joined(node.children, has_references=has_references), closing]
        else:
            pieces.append(str(node.payload))
    return "".join(pieces)


def _wrapped(text: str, lines: int) -> str:
    """Return a text broken into at most so many lines, of which the longest is as short as possible."""
    shown = re.sub(r"\s+", " ", _TAG.sub(lambda tag: tag[0].replace(" ", "\0"), text)).strip()
    width = max(-(-len(_TAG.sub("", shown)) // lines), 1)
    while True:
        broken = textwrap.wrap(shown, width, break_long_words=False, break_on_hyphens=False)
        if len(broken) <= lines or width > len(shown):
            return "\n".join(broken).replace("\0", " ")
        width += 1 + width // 20
