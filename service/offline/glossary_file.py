"""Glossaries as files: a term and its translation on each line."""

import csv
from pathlib import Path

from service.offline.options import UsageError

__all__ = ["read_glossary"]


def read_glossary(path: Path) -> dict[str, str]:
    """Return the translations by term of a file of two columns, separated by tabs, or by commas in a `.csv` file.

    Empty lines are left out. Raises `UsageError` for a file that cannot be read, other numbers of columns and terms
    that are there twice.
    """
    is_csv = path.suffix.lower() == ".csv"
    found: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True) if is_csv else csv.reader(file, "excel-tab", quoting=csv.QUOTE_NONE)
            for row in rows:
                cells = [cell.strip() for cell in row]
                if not any(cells):
                    continue
                place = f"{path}, line {rows.line_num}"
                if len(cells) != 2 or not all(cells):
                    raise UsageError(f"{place}: a term and its translation are expected, not {len(cells)} columns")
                if cells[0] in found:
                    raise UsageError(f"{place}: the term {cells[0]!r} is there twice")
                found[cells[0]] = cells[1]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"the glossary {path} cannot be read: {error}") from error
    return found
