"""Compressed bodies: gzip and deflate, each with a bound on its decompressed length."""

import zlib
from collections.abc import Iterator, Mapping

from starlette.exceptions import HTTPException

__all__ = ["ENCODINGS", "Decompressor", "chosen_encoding", "compressed"]

ENCODINGS: Mapping[str, int] = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""The window of zlib for each `Content-Encoding`; deflate is zlib's format (RFC 9110, section 8.4.1.2)."""
_PART = 1 << 16
"""Bytes that are decompressed at a time."""
_LEVEL = 1
"""Fast: answers are small."""


class Decompressor:
    """Undoes the `Content-Encoding` of a body while it is received."""

    def __init__(self, encoding: str, most: int) -> None:
        """`most` bounds the decompressed length, in bytes; raises `HTTPException` 415 for an unknown encoding."""
        if encoding not in ENCODINGS:
            detail = f"unknown Content-Encoding {encoding!r}"
            raise HTTPException(415, detail, {"Accept-Encoding": ", ".join(ENCODINGS)})
        self._stream = zlib.decompressobj(ENCODINGS[encoding])
        self._encoding, self._most, self._length = encoding, most, 0

    def parts(self, content: bytes) -> Iterator[bytes]:
        """Yield what the next bytes of the body stand for, at most 64 KiB at a time.

        Raises `HTTPException`: 413 for more than `most` bytes in all, 400 for bytes that are not in the encoding.
        """
        part = b""
        while (content or len(part) == _PART) and not self._stream.eof:
            try:
                part = self._stream.decompress(content, _PART)
            except zlib.error as error:
                raise HTTPException(400, f"the body is not {self._encoding}: {error}") from None
            content = self._stream.unconsumed_tail
            self._length += len(part)
            if self._length > self._most:
                raise HTTPException(413, f"the body has more than {self._most} bytes when it is decompressed")
            yield part
        if content or self._stream.unused_data:
            raise self._wrong_end()

    def finish(self) -> None:
        """Raise `HTTPException` 400 where the end of the encoding has not come."""
        if not self._stream.eof:
            raise self._wrong_end()

    def _wrong_end(self) -> HTTPException:
        return HTTPException(400, f"the body does not end where its {self._encoding} ends")


def chosen_encoding(accepted: str) -> str | None:
    """Return the encoding of an answer by the request's `Accept-Encoding`; None for none."""
    offers = [each.partition(";") for each in accepted.lower().split(",")]
    names = [name.strip() for name, _, quality in offers if quality.replace(" ", "") not in ("q=0", "q=0.0")]
    return next((name for name in names if name in ENCODINGS), None)


def compressed(content: bytes, encoding: str) -> bytes:
    """Return a body in an encoding of `ENCODINGS`."""
    stream = zlib.compressobj(_LEVEL, wbits=ENCODINGS[encoding])
    return stream.compress(content) + stream.flush()
