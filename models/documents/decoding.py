"""Text files as text and back: encodings and byte order marks."""

import codecs
import re
from dataclasses import dataclass

from models.documents.document import DocumentError

__all__ = ["DecodedText", "decoded"]

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks, those of UTF-32 before those of UTF-16, which begin alike."""
_UNMARKED = {"utf-16": "utf-16-le", "utf-32": "utf-32-le", "utf-8-sig": "utf-8"}
"""Encodings that would write a mark of their own."""


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The text of a file, and how it was encoded."""

    text: str
    encoding: str
    mark: bytes = b""
    """The byte order mark at the beginning of the file."""

    def encoded(self, text: str) -> bytes:
        """Return another text in the same encoding; in UTF-8 where that does not have all of its characters."""
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise DocumentError(
                f"the translation has {text[error.start]!r}, which the encoding {self.encoding} of the file has not; "
                "convert the file to UTF-8 first"
            ) from None


def decoded(content: bytes, encoding: str | None = None, *, declared: re.Pattern[bytes] | None = None) -> DecodedText:
    """Return the text of a file.

    A byte order mark counts most, then `encoding`, then the first group of `declared` in the file's beginning, then
    UTF-8. Raises `DocumentError` for an unknown encoding, and for bytes that it does not have.
    """
    for mark, name in _MARKS:
        if content.startswith(mark):
            return DecodedText(_text(content[len(mark) :], name, given=False), name, mark)
    if encoding is None and declared is not None and (found := declared.search(content[:1024])):
        encoding = found[1].decode("ascii", "replace")
    name = "utf-8" if encoding is None else encoding
    try:
        name = codecs.lookup(name).name
        "".encode(name)
    except (LookupError, ValueError):
        raise DocumentError(f"{name[:40]!r} is no encoding of text, such as utf-8, cp1252 or utf-16") from None
    name = _UNMARKED.get(name, name)
    return DecodedText(_text(content, name, given=encoding is not None), name)


def _text(content: bytes, encoding: str, *, given: bool) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        advice = "" if given else "; name its encoding, such as cp1252 or utf-16"
        raise DocumentError(f"the file is not {encoding.upper()}: byte {error.start + 1}{advice}") from None
