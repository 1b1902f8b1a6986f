"""Lines of files in any encoding; a line that cannot be decoded is an error of its own, and the next ones are read."""

import codecs
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from service.offline.options import UsageError

__all__ = ["Line", "check_encoding", "has_plain_lines", "read_lines"]

_MARK = "\udc80"
"""Stands for bytes that are no character of a wide encoding: a lone surrogate, which no text in it has."""
_MARKING = "softserve.mark"
_BLOCK = 1 << 16
_BYTE_ORDER_MARK = "\ufeff"
_WIDE = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
"""Byte order marks by which encodings are known, the longer one first of two that begin alike."""


@dataclass(frozen=True, slots=True)
class Line:
    """A text of an input, or the reason why it cannot be read."""

    number: int
    """Number of its line, or of the first line of its record, from 1 on."""
    text: str = ""
    error: str | None = None


def check_encoding(encoding: str) -> None:
    """Raise `UsageError` where there is no such encoding of text."""
    try:
        "\n".encode(encoding)
    except (LookupError, ValueError):
        raise UsageError(f"--encoding: {encoding!r} is no encoding of text, such as utf-8, cp1252 or utf-16") from None


def has_plain_lines(encoding: str) -> bool:
    """Return whether lines end with the byte of a line feed, which is no part of other characters."""
    return "\n".encode(encoding) == b"\n"


def read_lines(stream: BinaryIO, encoding: str) -> Iterator[Line]:
    """Yield the lines of a stream without their ends, and without a byte order mark before the first one.

    A byte order mark of UTF-16 or UTF-32 counts more than the encoding that is given. A line that is not in the
    encoding has an error that names the byte, and its text has U+FFFD there.
    """
    first = stream.readline()
    encoding = next((name for mark, name in _WIDE if first.startswith(mark)), encoding)
    if has_plain_lines(encoding):
        decoded = _plain(itertools.chain([first] if first else [], stream), encoding)
    else:
        decoded = _wide(itertools.chain([first], iter(lambda: stream.read(_BLOCK), b"")), encoding)
    for line in decoded:
        text = line.text.rstrip("\r\n")
        yield Line(line.number, text.removeprefix(_BYTE_ORDER_MARK) if line.number == 1 else text, line.error)


def _plain(lines: Iterable[bytes], encoding: str) -> Iterator[Line]:
    for number, line in enumerate(lines, 1):
        try:
            yield Line(number, line.decode(encoding))
        except UnicodeDecodeError as error:
            where = f"byte {error.start + 1} is not {_name(encoding)}"
            reason = f"{where}; --encoding is for another encoding, such as cp1252"
            yield Line(number, line.decode(encoding, "replace"), reason)


def _wide(blocks: Iterable[bytes], encoding: str) -> Iterator[Line]:
    """Decode blocks of an encoding whose characters have several bytes."""
    decoder = codecs.getincrementaldecoder(encoding)(_MARKING)
    numbers, rest = itertools.count(1), ""
    for block in itertools.chain(blocks, [b""]):
        *whole, rest = (rest + decoder.decode(block, final=not block)).split("\n")
        yield from (_marked(next(numbers), text, encoding) for text in whole)
    if rest:
        yield _marked(next(numbers), rest, encoding)


def _marked(number: int, text: str, encoding: str) -> Line:
    if _MARK not in text:
        return Line(number, text)
    place = text.index(_MARK) + 1
    reason = f"character {place} is not {_name(encoding)}; --encoding is for another encoding, such as cp1252"
    return Line(number, text.replace(_MARK, "\ufffd"), reason)


def _name(encoding: str) -> str:
    return codecs.lookup(encoding).name.upper()


def _mark(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _MARK, error.end


codecs.register_error(_MARKING, _mark)
