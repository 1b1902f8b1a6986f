"""JSON Lines: an object a line."""

import json
from collections.abc import Sequence
from pathlib import Path

from training.data.tables import Row, Table, flattened

__all__ = ["json_table"]


def json_table(path: Path, lines: Sequence[str]) -> Table:
    """Return the table of a file's lines; keys of objects within objects are dotted paths. Blank lines are skipped.

    Raises `ValueError` naming the first line that is no JSON object.
    """
    rows: list[tuple[int, Row]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: it is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise ValueError(f'{path}, line {number}: it is not a JSON object, such as {{"text": "..."}}')
        rows.append((number, flattened(value)))
    columns = tuple(dict.fromkeys(name for _, row in rows for name in row))
    return Table(path, columns, rows)
