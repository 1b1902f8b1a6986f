"""Tables: the rows of a user's file as mappings of column names to texts, whatever the file's format."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Row", "Table", "flattened", "missing_column"]

Row = Mapping[str, str]

_SPACE = re.compile(r"\s*[\r\n]+\s*")


@dataclass(frozen=True, slots=True)
class Table:
    """A file's columns and rows."""

    path: Path
    columns: tuple[str, ...]
    """Names of the columns, in the file's order."""
    rows: Iterable[tuple[int, Row]]
    """The number of each row and its texts; a row may lack columns. They can be read once."""
    noun: str = "line"
    """The noun for a row."""

    def selected(self, names: Sequence[str], columns: Mapping[str, str]) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield for each row its number and the texts of the columns `names`, without line breaks.

        `columns` are the file's names for them, where it has others. Raises `ValueError` for a column that is missing.
        """
        if unknown := sorted(columns.keys() - set(names)):
            raise ValueError(f"data.files.columns: there is no {unknown[0]!r} here, but {', '.join(names)}")
        own = {name.casefold(): name for name in reversed(self.columns)}
        places = []
        for name in names:
            wanted = columns.get(name, name)
            if wanted.casefold() not in own:
                raise ValueError(missing_column(str(self.path), name, columns, self.columns))
            places.append(own[wanted.casefold()])
        for number, row in self.rows:
            yield number, tuple(_SPACE.sub(" ", row.get(place, "")).strip() for place in places)


def missing_column(place: str, name: str, given: Mapping[str, str], columns: Sequence[str]) -> str:
    """Return the message for a column that a file lacks; `given` are the names that the recipe gives to columns."""
    wanted = given.get(name, name)
    message = f"{place} has no column {wanted!r}, but {', '.join(columns) or 'none'}; data.files.columns"
    if name not in given:
        return f"{message} says which of them is the {name}"
    close = difflib.get_close_matches(wanted, columns, 1)
    return f"{message}.{name} names it{f', perhaps {close[0]}' if close else ''}"


def flattened(value: object, prefix: str = "") -> dict[str, str]:
    """Return the texts of a JSON value by dotted paths: `{"a": {"b": 1}}` has `a.b`.

    Elements of a list of plain values are separated by commas, those of other lists are numbered; null has no text.
    """
    if isinstance(value, Mapping):
        parts = ((str(key), each) for key, each in value.items())
    elif isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value):
        parts = ((str(index), each) for index, each in enumerate(value))
    else:
        return {prefix or "value": _text(value)}
    return {
        path: text
        for key, each in parts
        for path, text in flattened(each, f"{prefix}.{key}" if prefix else key).items()
    }


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
