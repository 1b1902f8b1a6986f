"""Results as rows of a NumPy file (`.npy`) or of Parquet, written as a stream; files get their name when whole."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, BinaryIO, Literal, Union, cast, get_args, get_origin

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import BaseModel

from models import ModelError
from models.tasks.model import AnyModel
from service.offline.asked import Asked
from service.offline.lines import Line
from service.offline.options import FileOptions, UsageError

__all__ = ["ArrayFormat", "NumpyRows", "ParquetRows", "check_array_format", "opened_array_file"]

ArrayFormat = Literal["npy", "parquet"]

_PARTIAL = ".partial"
"""End of the name of a file that is not whole yet."""
_GROUP_ROWS, _GROUP_BYTES = 4096, 16 << 20
"""Rows of a row group of Parquet, and bytes of their vectors, at most: they are held until the group is written."""
_SCALARS: Mapping[Any, str] = {str: "string", float: "float64", int: "int64", bool: "bool_"}
"""The function of pyarrow that returns the type of each kind of scalar."""


def check_array_format(asked: Asked, files: FileOptions, form: ArrayFormat) -> None:
    """Raise `UsageError` where the results cannot be written in this format, or pyarrow is missing."""
    if files.output is None:
        raise UsageError(f"--format {form} needs --output")
    if form == "npy":
        if asked.operation.array is None:
            raise UsageError(
                f"{asked.name} has no output in NumPy's format, which is for vectors; --format jsonl has all"
            )
        return
    if files.resume:
        raise UsageError("--resume needs an output that can be gone on with: JSON lines, tab-separated values or .npy")
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UsageError("Parquet needs the package pyarrow: pip install 'softserve[parquet]'") from None
    _fields(asked)


@contextmanager
def opened_array_file(path: Path, form: ArrayFormat, *, resume: bool) -> Iterator[tuple[BinaryIO, int]]:
    """Yield a file that gets the name `path` when it is whole, and the number of rows that it has already.

    An interrupted NumPy file is kept with the ending `.partial`, for `resume`. Raises `UsageError` for a file that is
    there without `resume`, and with it for one that is no array of vectors.
    """
    partial = path.with_name(path.name + _PARTIAL)
    whole, goes_on = path.exists(), form == "npy" and partial.exists()
    if (whole or goes_on) and not resume:
        hint = ": --resume goes on with it" if form == "npy" else ""
        raise UsageError(f"{path if whole else partial} is there already{hint}")
    if whole:
        path.replace(partial)
    with partial.open("r+b" if whole or goes_on else "w+b") as file:
        size = _size(file)
        try:
            yield file, _complete_rows(file, path) if size else 0
        except BaseException:
            if whole and _size(file) == size:
                partial.replace(path)
            elif form == "parquet" or (not goes_on and _complete_rows(file, path) == 0):
                partial.unlink()
            raise
    partial.replace(path)


def _size(file: BinaryIO) -> int:
    file.flush()
    return os.fstat(file.fileno()).st_size


def _complete_rows(file: BinaryIO, path: Path) -> int:
    """Return the number of rows of a NumPy file, and cut off a part of a row; the file's header may say another number.

    Raises `UsageError` where it is no array of vectors.
    """
    size = _size(file)
    if size == 0:
        return 0
    dimensions, dtype = _read_header(file, path)
    start, row = file.tell(), dimensions * dtype.itemsize
    count = (size - start) // row
    file.truncate(start + count * row)
    return count


def _read_header(file: BinaryIO, path: Path) -> tuple[int, np.dtype[Any]]:
    """Return the size and the type of the rows; the file is then at the first row."""
    file.seek(0)
    try:
        if npy.read_magic(file) != (1, 0):
            raise ValueError("its version is not 1.0")
        shape, by_columns, dtype = npy.read_array_header_1_0(file)
    except ValueError as error:
        raise UsageError(f"{path} is no NumPy file: {error}") from None
    if by_columns or len(shape) != 2 or not shape[1] or dtype.hasobject:
        raise UsageError(f"{path} is no array of vectors")
    return shape[1], dtype


class NumpyRows:
    """An array `[texts, dimensions]`, of which the header is corrected at the end.

    The row of a text without a result is NaN, or 0 in integers.
    """

    def __init__(self, file: BinaryIO, path: Path, asked: Asked, model: AnyModel) -> None:
        """Write the header; raises `UsageError` where the file has rows of another size or type."""
        array = asked.operation.array
        assert array is not None
        self._file, self._array = file, array
        dimensions, dtype = array.form(model, asked.params)
        self._dtype = dtype.newbyteorder("<")
        self._start, self._dimensions = 0, dimensions
        if _size(file):
            found = _read_header(file, path)
            self._start = file.tell()
            if found != (dimensions, self._dtype):
                raise UsageError(
                    f"{path} has vectors of {found[0]} numbers ({found[1]}), not of {dimensions} ({self._dtype})"
                )
        else:
            self._write_header(0)
            self._start = file.tell()
        file.seek(0, os.SEEK_END)

    def _write_header(self, count: int) -> None:
        """Write the header, which has the same size for any number of rows: NumPy leaves room for it to grow."""
        self._file.seek(0)
        shape = (count, self._dimensions)
        header = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(self._file, header)
        assert self._start in (0, self._file.tell())

    def row(self, line: Line, result: object) -> NDArray[Any]:
        """Return the vector of a result `[dimensions]`."""
        del line
        if isinstance(result, ModelError):
            return _missing(self._dimensions, self._dtype)
        return self._array.values(result).astype(self._dtype, copy=False)

    def write(self, row: NDArray[Any]) -> None:
        """Append a row."""
        assert row.shape == (self._dimensions,)
        self._file.write(row.tobytes())

    def flush(self) -> None:
        """Pass what is written on to the operating system."""
        self._file.flush()

    def finish(self) -> None:
        """Write the number of rows into the header."""
        count = (_size(self._file) - self._start) // (self._dimensions * self._dtype.itemsize)
        self._write_header(count)
        self._file.flush()


def _missing(dimensions: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.full(dimensions, np.nan if dtype.kind == "f" else 0, dtype)


class ParquetRows:
    """The columns of the record of a result, after the text if that has none, and before the error.

    Values of a text without a result are null.
    """

    def __init__(self, file: BinaryIO, asked: Asked, model: AnyModel) -> None:
        import pyarrow
        from pyarrow import parquet

        self._arrow, self._asked = pyarrow, asked
        self._array = asked.operation.array
        form: tuple[int, np.dtype[Any]] = (0, np.dtype("f4"))
        if self._array is not None:
            form = self._array.form(model, asked.params)
        self._dimensions, self._dtype = form
        types = {name: _type(pyarrow, annotation) for name, annotation in _fields(asked).items()}
        if self._array is not None:
            types[self._array.field] = pyarrow.list_(pyarrow.from_numpy_dtype(self._dtype), self._dimensions)
        self._schema = pyarrow.schema([*types.items(), ("error", pyarrow.string())])
        self._writer = parquet.ParquetWriter(file, self._schema, use_dictionary=False)
        most = _GROUP_BYTES // max(1, self._dimensions * self._dtype.itemsize)
        self._rows_of_group = max(1, min(_GROUP_ROWS, most))
        self._rows: list[Mapping[str, Any]] = []

    def row(self, line: Line, result: object) -> Mapping[str, Any]:
        """Return the value of each column that has one."""
        text = None if line.error is not None else line.text.encode("utf-8", "replace").decode()
        asked, array = self._asked, self._array
        if isinstance(result, ModelError):
            return {asked.operation.input: text, "error": str(result)}
        skipped = None if array is None else {array.field}
        found = asked.operation.record_of(result, asked.params).model_dump(mode="json", exclude=skipped)
        vector = {} if array is None else {array.field: array.values(result)}
        return {asked.operation.input: text, **found, **vector}

    def write(self, row: Mapping[str, Any]) -> None:
        """Add a row, and write a full row group."""
        self._rows.append(row)
        if len(self._rows) == self._rows_of_group:
            self._write_group()

    def flush(self) -> None:
        """Do nothing: a row group is written when it is full."""

    def finish(self) -> None:
        """Write the last row group and the end of the file."""
        if self._rows:
            self._write_group()
        self.close()

    def close(self) -> None:
        """Write the end of the file, also where rows are missing; a writer that is left open would do that later."""
        self._writer.close()

    def _write_group(self) -> None:
        rows, self._rows = self._rows, []
        columns = [self._column(field, [row.get(field.name) for row in rows]) for field in self._schema]
        self._writer.write_table(self._arrow.Table.from_arrays(columns, schema=self._schema))

    def _column(self, field: Any, values: list[Any]) -> Any:
        if self._array is None or field.name != self._array.field:
            return self._arrow.array(values, field.type)
        empty = np.zeros(self._dimensions, self._dtype)
        numbers = np.concatenate([empty if value is None else value for value in values])
        missing = self._arrow.array([value is None for value in values])
        return self._arrow.FixedSizeListArray.from_arrays(self._arrow.array(numbers), type=field.type, mask=missing)


def _fields(asked: Asked) -> dict[str, Any]:
    """Return the annotation of each column of Parquet; raises `UsageError` for one that it cannot have."""
    operation = asked.operation
    found: dict[str, Any] = {operation.input: str}
    for record in operation.records or (operation.record,):
        found |= {name: field.annotation for name, field in record.model_fields.items()}
    array = None if operation.array is None else operation.array.field
    import pyarrow

    for name, annotation in found.items():
        if name != array and _type(pyarrow, annotation) is None:
            raise UsageError(f"{asked.name} has no output in Parquet, which cannot have {name}; --format jsonl has all")
    return found


def _type(arrow: Any, annotation: Any) -> Any:
    """Return the type of Arrow of a value of a record; None where there is none."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arrow, arguments[0])
    if origin in (UnionType, Union):
        kept = [each for each in arguments if each is not type(None)]
        return _type(arrow, kept[0]) if len(kept) == 1 else None
    if origin is Literal:
        return arrow.string() if all(isinstance(each, str) for each in arguments) else None
    if origin in (list, tuple) and (origin is list or arguments[1:] == (...,)):
        item = _type(arrow, arguments[0])
        return None if item is None else arrow.list_(item)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        parts = {name: _type(arrow, field.annotation) for name, field in annotation.model_fields.items()}
        return None if None in parts.values() else arrow.struct(list(parts.items()))
    scalar = _SCALARS.get(annotation)
    return None if scalar is None else cast(Any, getattr(arrow, scalar))()
