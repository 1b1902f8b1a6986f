"""Reading the files of a bundle: regular files only, of bounded size, each byte once.

The author of a bundle chooses what its entries are: a FIFO would block its reader for ever, and `/dev/zero` never ends.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["NotAFile", "NotWritten", "TooLarge", "open_regular", "read_regular", "sha256_of_regular", "writing"]

_BLOCK = 1 << 20
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotAFile(OSError):
    """A directory, FIFO, socket or device in place of a file, or a link to one."""


class TooLarge(OSError):
    """A file that is larger than allowed."""


class NotWritten(OSError):
    """A copy that could not be written."""


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Make errors of the operating system those of the copy: `NotWritten`."""
    try:
        yield
    except OSError as error:
        raise NotWritten(error.errno, error.strerror) from error


def open_regular(path: Path, max_bytes: int | None = None) -> BinaryIO:
    """Open a regular file, or the target of a symbolic link if that is one.

    Raises `NotAFile`, `TooLarge` for more than `max_bytes`, and other errors of the operating system.
    """
    _check(os.stat(path), max_bytes)  # before it is opened, which alone has an effect on some devices
    # Without O_NONBLOCK, to open a FIFO that has taken the file's place would wait for a writer.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
    try:
        _check(os.fstat(file.fileno()), max_bytes)
    except OSError:
        file.close()
        raise
    return file


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file; raises what `open_regular` does."""
    with open_regular(path, max_bytes) as file:
        return b"".join(_blocks(file))


def sha256_of_regular(path: Path, max_bytes: int | None = None, copy_to: Path | None = None) -> str:
    """Return the SHA-256 of a file in hexadecimal, and write the very bytes that it is of to a new file.

    Raises what `open_regular` does, and `NotWritten`.
    """
    digest = hashlib.sha256()
    with open_regular(path, max_bytes) as file:
        if copy_to is None:
            for block in _blocks(file):
                digest.update(block)
        else:
            with writing():
                copy = copy_to.open("xb", buffering=0)
            with copy:
                for block in _blocks(file):
                    digest.update(block)
                    with writing():
                        _write(copy, block)
    return digest.hexdigest()


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file, no more than it has now."""
    remaining = os.fstat(file.fileno()).st_size
    while remaining > 0 and (block := file.read(min(_BLOCK, remaining))):
        remaining -= len(block)
        yield block


def _write(file: BinaryIO, block: bytes) -> None:
    """Write a whole block: an unbuffered file may take a part of it."""
    rest = memoryview(block)
    while rest:
        rest = rest[file.write(rest) :]


def _check(found: os.stat_result, max_bytes: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotAFile(0, f"it is {_KINDS.get(stat.S_IFMT(found.st_mode), 'no file')}, not a file")
    if max_bytes is not None and found.st_size > max_bytes:
        raise TooLarge(0, f"it has {found.st_size:,} bytes; the limit is {max_bytes:,}")
