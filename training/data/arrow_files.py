"""Parquet files, and directories that the library `datasets` of Hugging Face saved; both are read by pyarrow."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.data.tables import Row, Table, flattened

__all__ = ["dataset_table", "is_dataset", "parquet_table"]

_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
_BATCH = 10_000


def parquet_table(path: Path) -> Table:
    """Return the table of a Parquet file.

    Raises `ValueError` where pyarrow is not installed, or the file is no Parquet file.
    """
    pyarrow = _pyarrow(path)
    from pyarrow import parquet

    try:
        found = parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from error
    return _table(path, found, _class_names(found.schema.metadata or {}))


def is_dataset(path: Path) -> bool:
    """Return whether a directory was saved by `datasets.Dataset.save_to_disk`, with or without splits."""
    return (path / _STATE).is_file() or (path / _SPLITS).is_file()


def dataset_table(path: Path) -> Table:
    """Return the table of a directory that `datasets.Dataset.save_to_disk` wrote.

    Raises `ValueError` where pyarrow is not installed, and for a directory of several splits, which it names.
    """
    if (path / _SPLITS).is_file():
        splits = json.loads((path / _SPLITS).read_text(encoding="utf-8"))["splits"]
        raise ValueError(f"{path} has the splits {', '.join(splits)}; name one of them, such as {path / splits[0]}")
    pyarrow = _pyarrow(path)
    state = json.loads((path / _STATE).read_text(encoding="utf-8"))
    parts = []
    for file in state["_data_files"]:
        with pyarrow.memory_map(str(path / file["filename"])) as source:
            parts.append(pyarrow.ipc.open_stream(source).read_all())
    info = json.loads((path / _INFO).read_text(encoding="utf-8")) if (path / _INFO).is_file() else {}
    return _table(path, pyarrow.concat_tables(parts), _names_of(info.get("features") or {}))


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise ValueError(f"{path} needs the package pyarrow: pip install pyarrow") from error
    return pyarrow


def _table(path: Path, found: Any, classes: Mapping[str, Sequence[str]]) -> Table:
    """Return a table; `classes` are the names of the classes that a column has by their numbers."""
    first = next(iter(found.slice(0, 1).to_pylist()), dict.fromkeys(found.column_names))
    columns = tuple(name for row in [first] for name in flattened(row))

    def rows() -> Iterator[tuple[int, Row]]:
        number = 0
        for batch in found.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                number += 1
                yield number, flattened({name: _named(value, classes.get(name)) for name, value in row.items()})

    return Table(path, columns, rows(), noun="row")


def _named(value: Any, names: Sequence[str] | None) -> Any:
    if names is None or value is None:
        return value
    return [_named(each, names) for each in value] if isinstance(value, list) else names[value]


def _class_names(metadata: Mapping[bytes, bytes]) -> Mapping[str, Sequence[str]]:
    """Return the names of classes that `datasets` keeps in the metadata of a Parquet file."""
    kept = json.loads(metadata.get(b"huggingface", b"{}"))
    return _names_of(kept.get("info", {}).get("features") or {})


def _names_of(features: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    found = {}
    for name, feature in features.items():
        while isinstance(feature, list) or (isinstance(feature, dict) and "feature" in feature):
            feature = feature[0] if isinstance(feature, list) else feature["feature"]
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            found[name] = feature["names"]
    return found
