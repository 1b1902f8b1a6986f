"""Runs an operation on the lines of a file: windows of lines in, results in their order out."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path

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
from service.offline.progress import Progress
from service.offline.rows import Rows, check_format, opened_rows

__all__ = ["load_model", "run_file", "run_texts"]

_MOST_ERRORS = 20
"""Errors that are shown, each a line."""
_HAS_ERROR = "have an error"
_FAILED = {"csv": _HAS_ERROR, "jsonl": _HAS_ERROR, "parquet": _HAS_ERROR, "npy": "are NaN, or 0 in integers,"}
"""What lines without a result are in each format."""


def run_texts(asked: Asked, texts: Sequence[str], options: ModelOptions, files: FileOptions) -> int:
    """Write the results of a few texts; return the exit status.

    Raises `UsageError` for an output that cannot be written or gone on with, and the errors of loading.
    """
    check_format(asked, files)
    with opened_rows(asked, files) as opened:
        done = opened.done
        if done > len(texts):
            raise UsageError(f"{files.output} has {done} lines, more than the {len(texts)} texts")
        model, threads = load_model(asked.name, options)
        writer = _Writer(model, asked, threads, opened.rows(model), opened.form, Progress(len(texts), done))
        lines = [Line(number, text) for number, text in enumerate(texts, 1)]
        writer.write(prepare(partial(asked.query, model), lines[done:]))
        return writer.finish()


def run_file(asked: Asked, file: Path | None, options: ModelOptions, files: FileOptions) -> int:
    """Write a line for each line of a file, or of standard input; return the exit status.

    Raises `UsageError`, `OSError`, and the errors of loading.
    """
    if file is not None and (file.is_dir() or not file.exists()):
        raise UsageError(f"{file} is no file; give texts with --text")
    check_format(asked, files)
    lines = read_texts(file, files)
    first = None if file is None else next(lines, None)  # an input that cannot be read at all leaves no output
    with opened_rows(asked, files) as opened:
        done = opened.done
        lines = chain([] if first is None else [first], lines)
        skipped = sum(1 for _ in islice(lines, done))
        if skipped < done:
            raise UsageError(f"{files.output} has {done} lines, more than the {skipped} of {file or 'standard input'}")
        model, threads = load_model(asked.name, options)
        progress = Progress(line_count(file, files), done)
        writer = _Writer(model, asked, threads, opened.rows(model), opened.form, progress)
        query = partial(asked.query, model)
        prepared: Iterator[Prepared]
        if file is None or not file.is_file():  # whose next lines may come much later
            prepared = (prepare(query, window) for window in _windows(lines))
        else:
            prepared = prepare_ahead(query, _windows(lines, FIRST_WINDOW))
        for window in prepared:
            writer.write(window)
        return writer.finish()


def _windows(lines: Iterator[Line], first: int = 0) -> Iterator[list[Line]]:
    if window := list(islice(lines, min(first, WINDOW))):
        yield window
    while window := list(islice(lines, WINDOW)):
        yield window


class _Writer:
    """Computes the results of prepared texts and writes them; counts texts without a result and shows their errors."""

    def __init__(self, model: AnyModel, asked: Asked, threads: int, rows: Rows, form: str, progress: Progress) -> None:
        self._model, self._asked, self._threads = model, asked, threads
        self._rows, self._form, self._progress = rows, form, progress
        self._texts = self._failed = self._cut = 0

    def write(self, prepared: Prepared) -> None:
        """Write the row of each text, in their order, as soon as those before it are there."""
        rows: dict[int, object] = {}
        written = 0
        self._texts += len(prepared.lines)
        for group in compute(self._model, self._asked.function_of(self._model), prepared, self._threads):
            for place, result in group:
                line = prepared.lines[place]
                self._cut += getattr(result, "truncated", None) is not None
                if isinstance(result, ModelError):
                    self._count_failure(line, result)
                rows[place] = self._rows.row(line, result)
            while written in rows:
                self._rows.write(rows.pop(written))
                written += 1
            self._rows.flush()
            self._progress.add(len(group))

    def finish(self) -> int:
        """Say how many texts were cut, and how many have no result; return the exit status."""
        self._rows.finish()
        self._progress.end()
        if self._cut:
            counted = self._form in ("jsonl", "parquet")
            where = "" if counted else "; --format jsonl has the number of tokens left out"
            print(f"softserve: {self._cut} of {self._texts} texts were cut{where}", file=sys.stderr)
        if self._failed:
            how = _FAILED.get(self._form, "are empty")
            counted_lines = f"{self._failed} of {self._texts} lines failed"
            print(f"softserve: {counted_lines}; they {how} in the output", file=sys.stderr)
        return 1 if self._failed else 0

    def _count_failure(self, line: Line, error: ModelError) -> None:
        """Count a text that has no result, and show the error unless there are too many."""
        self._failed += 1
        if self._failed <= _MOST_ERRORS:
            print(f"softserve: line {line.number}: {escaped(str(error))}", file=sys.stderr)
        elif self._failed == _MOST_ERRORS + 1:
            print("softserve: there are more errors, which are not shown", file=sys.stderr)


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
