"""JSON: the strings of a document, or those at some paths. All other characters stay as they are."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial

from models.documents.decoding import decoded
from models.documents.document import DocumentError, DocumentOptions, Limits, Segment
from models.documents.spliced import Place, SplicedDocument
from models.text.words import Span

__all__ = ["read_json"]

_TOKEN = re.compile(r"\"(?:[^\"\\]|\\.)*\"|[\[\]{},:]|[^\s\[\]{},:\"]+", re.DOTALL)
_LETTER = re.compile(r"[^\W\d_]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json(content: bytes, options: DocumentOptions) -> SplicedDocument:
    """Read JSON; raises `DocumentError`."""
    file = decoded(content, options.encoding)
    _check(file.text, options.limits)
    wanted = [_pattern(path) for path in options.paths]
    is_ascii = file.text.isascii() and "\\u" in file.text
    segments: list[Segment] = []
    places: list[Place] = []
    for path, span in _strings(file.text):
        if wanted and not any(pattern.fullmatch("".join(f"/{each}" for each in path)) for pattern in wanted):
            continue
        text = json.loads(file.text[slice(*span)])
        if _LETTER.search(text) is None or _SURROGATE.search(text):
            continue
        segments.append(Segment(text, options.value_markup(text), ".".join(path)))
        places.append(Place(span, partial(json.dumps, ensure_ascii=is_ascii)))
    return SplicedDocument(file, segments, places, options.limits)


def _check(text: str, limits: Limits) -> None:
    """Raise `DocumentError` for what is no JSON, or nested too deeply."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth > limits.max_depth:
            raise DocumentError(f"json: more than {limits.max_depth} lists and objects within each other")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise DocumentError(f"json: {error.msg}, line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"json: {error}") from None


def _pattern(path: str) -> re.Pattern[str]:
    """Return the expression for a path: names separated by points, `*` for any name, `**` for any number of them."""
    names = re.sub(r"\[(\d+|\*)\]", r".\1", path.removeprefix("$").removeprefix(".")).split(".")
    if not all(names):
        raise DocumentError(f"json: {path!r} is no path, such as title, items.*.name or **.text")
    parts = {"*": r"/[^/]*", "**": r"(?:/[^/]*)*"}
    return re.compile("".join(parts.get(name) or "/" + re.escape(name) for name in names))


def _strings(text: str) -> Iterator[tuple[Sequence[str], Span]]:
    """Yield the path and the place of each string that is a value, of valid JSON."""
    path: list[str] = []
    lists: list[bool] = []
    key: str | None = None
    is_value = True
    for token in _TOKEN.finditer(text):
        first = token[0][0]
        if first in "[{":
            lists.append(first == "[")
            path.append("0" if first == "[" else "")
            is_value = first == "["
        elif first in "]}":
            lists.pop()
            path.pop()
        elif first == ",":
            if lists[-1]:
                path[-1] = str(int(path[-1]) + 1)
            is_value = lists[-1]
        elif first == ":":
            assert key is not None
            path[-1], is_value = key, True
        elif first == '"':
            if is_value:
                yield tuple(path), token.span()
            else:
                key = json.loads(token[0]).replace("/", "\u2215")
