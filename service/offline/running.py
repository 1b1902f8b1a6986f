"""Runs an operation on the lines of a file: windows of lines in, results in their order out."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TextIO

from models import ModelError, ModelStore, UnsuitableModelError
from models.backend.cpus import usable_cpus
from models.escaping import escaped
from models.store import BUNDLED
from models.tasks.model import AnyModel
from service.offline.asked import Asked
from service.offline.computing import FIRST_WINDOW, WINDOW, Prepared, compute, prepare, prepare_ahead
from service.offline.inputs import line_count, read_texts
from service.offline.lines import Line
from service.offline.options import FileOptions, ModelOptions, UsageError
from service.offline.outputs import Shown, csv_line, line_of, opened_output
from service.offline.progress import Progress

__all__ = ["load_model", "run_file", "run_texts"]

_MOST_ERRORS = 20
"""Errors that are shown, each a line."""


def run_texts(asked: Asked, texts: Sequence[str], options: ModelOptions, files: FileOptions) -> int:
    """Write the results of a few texts; return the exit status.

    Raises `UsageError` for an output that cannot be written or gone on with, and the errors of loading.
    """
    _check_format(asked, files)
    with opened_output(files) as (output, done, form):
        if done > len(texts):
            raise UsageError(f"{files.output} has {done} lines, more than the {len(texts)} texts")
        model, threads = load_model(asked.name, options)
        writer = _Writer(model, asked, threads, output, form, Progress(len(texts), done))
        lines = [Line(number, text) for number, text in enumerate(texts, 1)]
        writer.write(prepare(partial(asked.query, model), lines[done:]))
        return writer.finish()


def run_file(asked: Asked, file: Path | None, options: ModelOptions, files: FileOptions) -> int:
    """Write a line for each line of a file, or of standard input; return the exit status.

    Raises `UsageError`, `OSError`, and the errors of loading.
    """
    if file is not None and (file.is_dir() or not file.exists()):
        raise UsageError(f"{file} is no file; give texts with --text")
    _check_format(asked, files)
    lines = read_texts(file, files)
    first = None if file is None else next(lines, None)  # an input that cannot be read at all leaves no output
    with opened_output(files) as (output, done, form):
        lines = chain([] if first is None else [first], lines)
        skipped = sum(1 for _ in islice(lines, done))
        if skipped < done:
            raise UsageError(f"{files.output} has {done} lines, more than the {skipped} of {file or 'standard input'}")
        model, threads = load_model(asked.name, options)
        writer = _Writer(model, asked, threads, output, form, Progress(line_count(file, files), done))
        query = partial(asked.query, model)
        prepared: Iterator[Prepared]
        if file is None or not file.is_file():  # whose next lines may come much later
            prepared = (prepare(query, window) for window in _windows(lines))
        else:
            prepared = prepare_ahead(query, _windows(lines, FIRST_WINDOW))
        for window in prepared:
            writer.write(window)
        return writer.finish()


def _check_format(asked: Asked, files: FileOptions) -> None:
    """Raise `UsageError` where the results cannot be written as CSV."""
    if files.format == "csv" and asked.operation.table is None:
        raise UsageError(f"{asked.name} has no --format csv, but tsv and jsonl")
    if files.format == "csv" and files.resume:
        raise UsageError("--resume needs an output with a line for each text: --format tsv or jsonl")


def _windows(lines: Iterator[Line], first: int = 0) -> Iterator[list[Line]]:
    if window := list(islice(lines, min(first, WINDOW))):
        yield window
    while window := list(islice(lines, WINDOW)):
        yield window


class _Writer:
    """Computes the results of prepared texts and writes them; counts texts without a result and shows their errors."""

    def __init__(
        self, model: AnyModel, asked: Asked, threads: int, output: TextIO, form: str, progress: Progress
    ) -> None:
        self._model, self._asked, self._threads = model, asked, threads
        self._output, self._form, self._progress = output, form, progress
        self._texts = self._failed = self._cut = 0
        self._table = asked.operation.table if form == "csv" else None
        if self._table is not None:
            output.write(csv_line(("line", *self._table.columns, "error")))

    def write(self, prepared: Prepared) -> None:
        """Write a line for each text, in their order, as soon as those before it are there."""
        lines: dict[int, str] = {}
        written = 0
        self._texts += len(prepared.lines)
        for group in compute(self._model, self._asked.function_of(self._model), prepared, self._threads):
            for place, result in group:
                self._cut += getattr(result, "truncated", None) is not None
                lines[place] = self._written(prepared.lines[place], result)
            while written in lines:
                self._output.write(lines.pop(written))
                written += 1
            self._output.flush()
            self._progress.add(len(group))

    def _written(self, line: Line, result: object) -> str:
        """Return the line of a result or of an error, or the rows of CSV, which name the line of the text."""
        failed = self._failure(line, result) if isinstance(result, ModelError) else None
        if self._table is None:
            return line_of(failed or self._asked.shown(result), self._form) + "\n"
        if failed is not None:
            return csv_line((line.number, *(None for _ in self._table.columns), str(result)))
        return "".join(csv_line((line.number, *row, None)) for row in self._table.rows(result))

    def finish(self) -> int:
        """Say how many texts were cut, and how many have no result; return the exit status."""
        self._progress.end()
        if self._cut:
            where = "" if self._form == "jsonl" else "; --format jsonl has the number of tokens left out"
            print(f"softserve: {self._cut} of {self._texts} texts were cut{where}", file=sys.stderr)
        if self._failed:
            how = "have an error" if self._form in ("csv", "jsonl") else "are empty"
            counted = f"{self._failed} of {self._texts} lines failed"
            print(f"softserve: {counted}; they {how} in the output", file=sys.stderr)
        return 1 if self._failed else 0

    def _failure(self, line: Line, error: ModelError) -> Shown:
        """Return the line of a text that has no result, and show the error unless there are too many."""
        self._failed += 1
        if self._failed <= _MOST_ERRORS:
            print(f"softserve: line {line.number}: {escaped(str(error))}", file=sys.stderr)
        elif self._failed == _MOST_ERRORS + 1:
            print("softserve: there are more errors, which are not shown", file=sys.stderr)
        text = {"text": line.text} if line.error is None else {}
        return Shown(("",), lambda: {**text, "line": line.number, "error": str(error)})


def load_model(operation: str, options: ModelOptions) -> tuple[AnyModel, int]:
    """Load the model for an operation, and return with it the number of parts that are computed at once."""
    store = ModelStore(*(options.model_dirs or (BUNDLED,)))
    name = options.model or _only_model(store, operation)
    if operation not in (offers := store.offers(name)):
        raise UnsuitableModelError(operation, _offering(store, operation), name, offers)
    cpus = options.threads or usable_cpus()
    at_once = cpus if options.device == "cpu" else 1
    model: AnyModel = store.load(name, device=options.device, threads=cpus, parallel=at_once)
    return model, at_once


def _only_model(store: ModelStore, operation: str) -> str:
    offering = _offering(store, operation)
    if len(offering) == 1:
        return offering[0]
    raise UnsuitableModelError(operation, offering)


def _offering(store: ModelStore, operation: str) -> list[str]:
    """Return the names of the models that offer an operation."""
    return [name for name in store.versions() if operation in store.offers(name)]
