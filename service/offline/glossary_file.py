"""Glossaries as files: a term and its translation on each line."""

from pathlib import Path

from models import QueryError
from models.text.glossary_entries import read_entries
from service.offline.options import UsageError

__all__ = ["read_glossary"]


def read_glossary(path: Path) -> dict[str, str]:
    """Return the translations by term of a file of two columns, separated by tabs, or by commas in a `.csv` file.

    Empty lines are left out. Raises `UsageError` for a file that cannot be read, other numbers of columns and terms
    that are there twice.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return read_entries(text, "csv" if path.suffix.lower() == ".csv" else "tsv")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the glossary {path} cannot be read: {error}") from error
    except QueryError as error:
        raise UsageError(f"{path}, {error}") from None
