"""Documents in, documents of the same format out: `softserve translate report.docx --output report.en.docx`."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from models import ModelError
from models.documents import Document, DocumentFormat, DocumentOptions, Segment, format_of, read_document
from models.escaping import escaped
from models.operations.operation import InDocuments
from models.tasks.model import AnyModel, Query
from service.offline.asked import Asked
from service.offline.computing import WINDOW, compute, prepare
from service.offline.lines import Line
from service.offline.options import FileOptions, ModelOptions, UsageError
from service.offline.progress import Progress
from service.offline.running import load_model

__all__ = ["DocumentFlags", "document_format", "run_document"]

_LINEWISE = frozenset({"txt", "csv", "tsv", "json"})
"""Formats whose files have a text on each line, or in a column, unless they are said to be documents."""
_MOST_ERRORS = 20
"""Errors and texts of low confidence that are shown, each a line."""
_SHOWN = 80
"""Characters of a text that are shown."""

FormatName = Literal["auto", "off", "txt", "html", "md", "srt", "vtt", "po", "xliff", "json", "csv", "tsv", "docx"]
_Key = tuple[str, str, bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentFlags:
    """Documents: files of which another one of the same format is made."""

    document: FormatName = "auto"
    """Format of FILE as a document, of which --output is another one. By default that of its ending: .html, .md, .srt,
    .vtt, .po, .xliff and .docx; files .txt, .csv, .tsv and .json have a text on each line unless this names their
    format. off reads any file line by line."""
    json_paths: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="PATH")] = ()
    """Values of a JSON document that are translated, such as items.*.title or **.text; repeated for several, all
    strings by default."""
    overwrite: bool = False
    """Translate also messages of PO and units of XLIFF that have a translation."""
    join_lines: bool = False
    """Join the lines of paragraphs in a text document, whose sentences go on in the next line."""


def document_format(file: Path | None, flags: DocumentFlags) -> DocumentFormat | None:
    """Return the format of a file that is a document; None for one that is read line by line.

    Raises `DocumentError` for files with macros.
    """
    if flags.document != "auto":
        if flags.document != "off" and file is None:
            raise UsageError("--document: give a file")
        return None if flags.document == "off" else format_of(flags.document)
    if file is None or not file.suffix:
        return None
    if file.suffix.lower() in (".docm", ".dotm"):
        return format_of(file.name)
    try:
        found = format_of(file.suffix)
    except ModelError:
        return None
    return None if found.name in _LINEWISE else found


def run_document(
    asked: Asked, file: Path, form: DocumentFormat, flags: DocumentFlags, options: ModelOptions, files: FileOptions
) -> int:
    """Write a document with the results of its texts in their places; return the exit status.

    A text without a result stays as it is. Raises `UsageError`, `OSError`, `DocumentError` and the errors of loading.
    """
    if not file.is_file():
        raise UsageError(f"{file} is no file; give texts with --text")
    _check_usage(asked, files)
    in_documents = asked.operation.in_documents
    assert in_documents is not None
    reading = _reading(in_documents.reading(asked.params), flags, files)
    read_document(
        file.read_bytes(), form, DocumentOptions(**reading)
    )  # an error of it is known before a model is loaded
    model, threads = load_model(asked.name, options)
    language = in_documents.target_language(model, asked.params)
    document = read_document(file.read_bytes(), form, DocumentOptions(**reading, target_language=language))
    found = _results(document, model, asked, in_documents, threads)
    _write(document.written(found.texts), files.output)
    of_all = f"of {len(document.segments)} texts"
    if found.failed:
        print(f"softserve: {found.failed} {of_all} failed and stay as they are", file=sys.stderr)
    if found.doubtful:
        print(f"softserve: {len(found.doubtful)} {of_all} have low confidence; check them:", file=sys.stderr)
        for place in sorted(found.doubtful)[:_MOST_ERRORS]:
            segment = document.segments[place]
            print(f"  {escaped(segment.context)}: {escaped(_start(segment.text))}", file=sys.stderr)
        if len(found.doubtful) > _MOST_ERRORS:
            print(f"  and {len(found.doubtful) - _MOST_ERRORS} others", file=sys.stderr)
    return 1 if found.failed else 0


def _start(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def _check_usage(asked: Asked, files: FileOptions) -> None:
    if files.resume:
        raise UsageError("--resume is for lines, not for documents")
    if files.format != "auto" or files.input_format != "auto":
        option = "--format" if files.format != "auto" else "--input-format"
        raise UsageError(f"{option} is for lines; a document is written in its format, and --document off reads lines")
    if files.output is None and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError("--output: name the file to write")
    if files.output is not None and files.output.exists():
        raise UsageError(f"{files.output} is there already")


def _reading(given: Mapping[str, Any], flags: DocumentFlags, files: FileOptions) -> dict[str, Any]:
    """Return the options of reading but for the target language; `given` are those of the parameters."""
    columns = () if files.column is None else tuple(each.strip() for each in files.column.split(","))
    return {
        **given,
        "encoding": None if files.encoding == "utf-8" else files.encoding,
        "columns": columns,
        "paths": flags.json_paths,
        "overwrite": flags.overwrite,
        "join_lines": flags.join_lines,
    }


@dataclass(slots=True)
class _Found:
    """The results of segments."""

    texts: list[str | None]
    failed: int = 0
    """Segments without a result."""
    doubtful: list[int] = field(default_factory=list)
    """Places of the segments whose results are likely to be wrong."""


def _results(
    document: Document, model: AnyModel, asked: Asked, in_documents: InDocuments[Any, Any, Any], threads: int
) -> _Found:
    """Return the results of segments; equal segments are computed once."""
    places: dict[_Key, list[int]] = {}
    for place, segment in enumerate(document.segments):
        places.setdefault(segment.key, []).append(place)
    found = _Found([None] * len(document.segments))
    progress = Progress(len(places), unit="texts")
    keys = iter(places.items())
    while window := list(islice(keys, WINDOW)):
        segments = {key[0]: document.segments[those[0]] for key, those in window}
        query = partial(_query, model=model, asked=asked, in_documents=in_documents, segments=segments)
        prepared = prepare(query, [Line(those[0] + 1, key[0]) for key, those in window])
        for group in compute(model, asked.function_of(model), prepared, threads):
            for place, result in group:
                those = window[place][1]
                if isinstance(result, ModelError):
                    found.failed += len(those)
                    _show(document.segments[those[0]], result, found.failed)
                else:
                    for each in those:
                        found.texts[each] = in_documents.text(result)
                    if in_documents.doubtful(result):
                        found.doubtful += those
            progress.add(len(group))
    progress.end()
    return found


def _query(
    text: str,
    *,
    model: AnyModel,
    asked: Asked,
    in_documents: InDocuments[Any, Any, Any],
    segments: Mapping[str, Segment],
) -> Query:
    return in_documents.query(model, segments[text], asked.params, None)


def _show(segment: Segment, error: ModelError, failed: int) -> None:
    if failed <= _MOST_ERRORS:
        print(f"softserve: {escaped(segment.context)}: {escaped(str(error))}", file=sys.stderr)


def _write(content: bytes, output: Path | None) -> None:
    """Write a file as a whole or not at all."""
    if output is None:
        if sys.stdout is None:
            raise UsageError("standard output is closed; --output names a file")
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.rename(output)
    finally:
        part.unlink(missing_ok=True)
