"""A folder for each class, with a text file for each text."""

from pathlib import Path

from training.data.tables import Row, Table

__all__ = ["class_folders", "folder_table"]

_SUFFIXES = (".txt", ".text", ".md")


def class_folders(path: Path) -> list[Path]:
    """Return the folders of a folder that hold texts, in alphabetical order."""
    return sorted(each for each in path.iterdir() if each.is_dir() and any(map(_is_text, each.iterdir())))


def folder_table(path: Path, encoding: str) -> Table:
    """Return the table of a folder: the name of each text's folder is its `label`, the file's content its `text`.

    Raises `ValueError` for a folder without texts, and for a text in another encoding.
    """
    rows: list[tuple[int, Row]] = []
    for folder in class_folders(path):
        for file in sorted(filter(_is_text, folder.iterdir())):
            try:
                text = file.read_text(encoding="utf-8-sig" if encoding == "utf-8" else encoding)
            except UnicodeDecodeError as error:
                raise ValueError(f"{file} is not {encoding}; data.files.encoding is for another encoding") from error
            rows.append((len(rows) + 1, {"label": folder.name, "text": " ".join(text.split())}))
    if not rows:
        raise ValueError(
            f"{path} has no texts: a folder for each class, with {', '.join(_SUFFIXES)} files, is expected"
        )
    return Table(path, ("label", "text"), rows, noun="text")


def _is_text(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")
