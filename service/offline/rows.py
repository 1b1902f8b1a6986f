"""Where results go: lines of text, rows of CSV, of NumPy or of Parquet, by the format of the output."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TextIO, cast

from models import ModelError
from models.tasks.model import AnyModel
from service.offline.array_files import ArrayFormat, NumpyRows, ParquetRows, check_array_format, opened_array_file
from service.offline.asked import Asked
from service.offline.lines import Line
from service.offline.options import FileOptions, UsageError
from service.offline.outputs import Shown, csv_line, line_of, opened_output

__all__ = ["Opened", "Rows", "check_format", "opened_rows"]

_ARRAY_ENDINGS: dict[str, ArrayFormat] = {".npy": "npy", ".parquet": "parquet"}


class Rows(Protocol):
    """Writes results in the order of their texts."""

    def row(self, line: Line, result: object) -> Any:
        """Return what `write` takes, of a result or of the `ModelError` of a text."""
        ...

    def write(self, row: Any) -> None:
        """Write the next row."""
        ...

    def flush(self) -> None:
        """Pass what is written on to its reader."""
        ...

    def finish(self) -> None:
        """Write what belongs at the end."""
        ...


class _TextRows:
    """A line for each text."""

    def __init__(self, output: TextIO, asked: Asked, form: str) -> None:
        self._output, self._asked, self._form = output, asked, form

    def row(self, line: Line, result: object) -> str:
        shown = _failure(line, result) if isinstance(result, ModelError) else self._asked.shown(result)
        return line_of(shown, self._form) + "\n"

    def write(self, row: str) -> None:
        self._output.write(row)

    def flush(self) -> None:
        self._output.flush()

    def finish(self) -> None:
        pass


class _CsvRows(_TextRows):
    """Rows of CSV, which name the line of the text, after a header."""

    def __init__(self, output: TextIO, asked: Asked) -> None:
        super().__init__(output, asked, "csv")
        assert asked.operation.table is not None
        self._table = asked.operation.table
        output.write(csv_line(("line", *self._table.columns, "error")))

    def row(self, line: Line, result: object) -> str:
        if isinstance(result, ModelError):
            return csv_line((line.number, *(None for _ in self._table.columns), str(result)))
        return "".join(csv_line((line.number, *row, None)) for row in self._table.rows(result))


def _failure(line: Line, error: ModelError) -> Shown:
    """Return the line of a text that has no result."""
    text = {"text": line.text} if line.error is None else {}
    return Shown(("",), lambda: {**text, "line": line.number, "error": str(error)})


@dataclass(frozen=True, slots=True)
class Opened:
    """An output that is open."""

    done: int
    """Number of texts whose results it has already."""
    form: str
    """Its format."""
    rows: Callable[[AnyModel], Rows]
    """Makes what writes the results of a model. Raises `UsageError` where the output has rows of another kind."""


def check_format(asked: Asked, files: FileOptions) -> None:
    """Raise `UsageError` where the results cannot be written in the format of the output."""
    if (arrays := _array_format(files)) is not None:
        check_array_format(asked, files, arrays)
    if files.format == "csv" and asked.operation.table is None:
        raise UsageError(f"{asked.name} has no --format csv, but tsv and jsonl")
    if files.format == "csv" and files.resume:
        raise UsageError("--resume needs an output with a line for each text: --format tsv or jsonl")


@contextmanager
def opened_rows(asked: Asked, files: FileOptions) -> Iterator[Opened]:
    """Open the output; a file of arrays gets its name at the end.

    Raises `UsageError` for `resume` without a file, and for a file that is there without `resume`.
    """
    arrays = _array_format(files)
    if arrays is None:
        with opened_output(files) as (output, done, form):
            made = _CsvRows if form == "csv" else None
            yield Opened(done, form, lambda _: made(output, asked) if made else _TextRows(output, asked, form))
        return
    assert files.output is not None
    path = files.output
    with opened_array_file(path, arrays, resume=files.resume) as (file, done), ExitStack() as closing:

        def parquet_rows(model: AnyModel) -> Rows:
            rows = ParquetRows(file, asked, model)
            closing.callback(rows.close)
            return rows

        def numpy_rows(model: AnyModel) -> Rows:
            return NumpyRows(file, path, asked, model)

        yield Opened(done, arrays, numpy_rows if arrays == "npy" else parquet_rows)


def _array_format(files: FileOptions) -> ArrayFormat | None:
    """Return the format of arrays, by the option or by the ending of the output; None for lines of text."""
    if files.format != "auto":
        return cast(ArrayFormat, files.format) if files.format in _ARRAY_ENDINGS.values() else None
    return None if files.output is None else _ARRAY_ENDINGS.get(files.output.suffix.lower())
