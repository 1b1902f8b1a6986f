"""Runs an operation on the lines of a file: windows of lines in, results in their order out."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from models import ModelStore, QueryError, UnsuitableModelError
from models.backend.cpus import usable_cpus
from models.escaping import escaped
from models.tasks.model import Model
from service.offline.computing import FIRST_WINDOW, WINDOW, Prepared, compute, prepare, prepare_ahead
from service.offline.inputs import line_count, read_texts
from service.offline.operations import Operation
from service.offline.options import FileOptions, ModelOptions, UsageError
from service.offline.outputs import Shown, line_of, opened_output
from service.offline.progress import Progress

__all__ = ["run_file", "run_texts"]

_MOST_ERRORS = 20
"""Errors that are shown, each a line."""


def run_texts(operation: Operation, texts: Sequence[str], options: ModelOptions, form: str) -> int:
    """Print the results of a few texts; return the exit status."""
    form = ("table" if sys.stdout.isatty() else "tsv") if form == "auto" else form
    model, threads = _loaded(operation, options)
    progress = Progress(len(texts))
    prepared = prepare(partial(operation.query, model), texts)
    failed = _write(model, operation, prepared, threads, sys.stdout, form, progress, first=1)
    progress.end()
    return _finish(failed)


def run_file(operation: Operation, file: Path | None, options: ModelOptions, files: FileOptions) -> int:
    """Write a line for each line of a file, or of standard input; return the exit status.

    Raises `UsageError`, `OSError`, and the errors of loading.
    """
    if file is not None and not file.is_file():
        raise UsageError(f"{file} is no file; give texts with --text")
    with opened_output(files) as (output, done, form):
        total = line_count(file)
        if total is not None and done > total:
            raise UsageError(f"{files.output} has {done} lines, more than the {total} of {file}")
        texts = read_texts(file, files.input_format, column=files.column, field=files.field)
        for _ in islice(texts, done):
            pass
        model, threads = _loaded(operation, options)
        progress, failed, first = Progress(total, done), 0, done + 1
        query = partial(operation.query, model)
        windows: Iterator[Prepared]
        if file is None:  # whose next lines may come much later
            windows = (prepare(query, window) for window in _windows(texts))
        else:
            windows = prepare_ahead(query, _windows(texts, FIRST_WINDOW))
        for window in windows:
            failed += _write(model, operation, window, threads, output, form, progress, first=first)
            first += len(window.texts)
        progress.end()
    return _finish(failed)


def _finish(failed: int) -> int:
    if failed:
        print(f"softserve: {failed} lines failed; they are empty in the output", file=sys.stderr)
    return 1 if failed else 0


def _windows(texts: Iterator[str], first: int = 0) -> Iterator[list[str]]:
    if window := list(islice(texts, min(first, WINDOW))):
        yield window
    while window := list(islice(texts, WINDOW)):
        yield window


def _write(
    model: Model[Any],
    operation: Operation,
    prepared: Prepared,
    threads: int,
    output: TextIO,
    form: str,
    progress: Progress,
    *,
    first: int,
) -> int:
    """Write the results of texts, the first of which is on the line `first`; return how many were refused."""
    lines: dict[int, str] = {}
    failed = written = 0
    for group in compute(model, operation.name, prepared, threads):
        for place, result in group:
            if isinstance(result, QueryError):
                failed += 1
                if failed <= _MOST_ERRORS:
                    print(f"softserve: line {first + place}: {escaped(str(result))}", file=sys.stderr)
                record = {"text": prepared.texts[place], "error": str(result)}
                lines[place] = line_of(Shown(("",), partial(dict, record)), form)
            else:
                lines[place] = line_of(operation.shown(result), form)
        while written in lines:  # in order, as soon as they are there
            output.write(lines.pop(written) + "\n")
            written += 1
        output.flush()
        progress.add(len(group))
    return failed


def _loaded(operation: Operation, options: ModelOptions) -> tuple[Model[Any], int]:
    """Load the model, and return with it the number of parts that are computed at once."""
    store = ModelStore(*options.model_dirs)
    name = options.model or _only_model(store, operation.name)
    if operation.name not in (offers := store.offers(name)):
        raise UnsuitableModelError(operation.name, _offering(store, operation.name), name, offers)
    cpus = options.threads or usable_cpus()
    at_once = cpus if options.device == "cpu" else 1
    model: Model[Any] = store.load(name, device=options.device, threads=cpus, parallel=at_once)
    return model, at_once


def _only_model(store: ModelStore, operation: str) -> str:
    offering = _offering(store, operation)
    if len(offering) == 1:
        return offering[0]
    raise UnsuitableModelError(operation, offering)


def _offering(store: ModelStore, operation: str) -> list[str]:
    """Return the names of the models that offer an operation."""
    return [name for name in store.versions() if operation in store.offers(name)]
