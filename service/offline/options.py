"""Options that the commands of `service.offline` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

__all__ = ["COMPUTING", "FileOptions", "ModelDirs", "ModelOptions", "UsageError"]

COMPUTING = "softserve-compute"
"""Beginning of the names of threads that compute, for which an interrupted command does not wait."""

OutputFormat = Literal["auto", "table", "tsv", "csv", "jsonl", "npy", "parquet"]


class UsageError(Exception):
    """Options or inputs that do not fit; the command's exit status is 2."""


# One directory for each `--model-dirs`: a list of them would take the positional arguments after it.
ModelDirs = Annotated[tuple[Path, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="DIRECTORY")]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelOptions:
    """The model and the device that it runs on."""

    model: Annotated[str | None, tyro.conf.arg(metavar="NAME[:VERSION]")] = None
    """Such as next-word or next-word:2; optional where one model is made for the command."""
    model_dirs: ModelDirs = ()
    """Directory of bundles instead of the bundled ones, repeated for several; the first one that has a model wins."""
    device: str = "cpu"
    """cpu, or a GPU: cuda or cuda:1."""
    threads: int | None = None
    """Threads that compute, by default one for each processor."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileOptions:
    """Inputs and outputs."""

    input_format: Literal["auto", "text", "tsv", "csv", "jsonl"] = "auto"
    """Format of the input, by default that of the file's ending: .tsv, .csv, .jsonl; others, and standard input, have a
    text on each line."""
    encoding: str = "utf-8"
    """Encoding of the input, such as cp1252; UTF-16 is known by its byte order mark."""
    column: Annotated[str | None, tyro.conf.arg(metavar="NAME|NUMBER")] = None
    """Column of the texts: its name in the header of CSV, by default text or source, or its number, by default 1 in
    tab-separated values, which have a header where a name is given."""
    field: str = "text"
    """Field of the texts in JSON lines."""
    output: Path | None = None
    """File to write, by default standard output. Its ending chooses the format: .jsonl, .npy, .parquet, others
    tab-separated values."""
    format: OutputFormat = "auto"
    """Format of the output: by default a table on a terminal, elsewhere tab-separated values, a line for each text. CSV
    is for score and tag, with a header and a row for each word, token or entity; npy is for the vectors of embed, an
    array with a row for each text; parquet needs pyarrow. npy and parquet need --output."""
    resume: bool = False
    """Go on after the complete lines that --output has, or the complete vectors of a .npy; not of Parquet."""
    truncate: bool = False
    """Cut texts that are too long, which are errors otherwise. JSON lines say by how many tokens: truncated."""
