"""Compressed bodies: gzip and deflate, each with a bound on its decompressed length."""

import zlib
from collections.abc import Mapping

from starlette.exceptions import HTTPException

__all__ = ["ENCODINGS", "chosen_encoding", "compressed", "decompressed"]

ENCODINGS: Mapping[str, int] = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""The window of zlib for each `Content-Encoding`; deflate is zlib's format (RFC 9110, section 8.4.1.2)."""
_LEVEL = 1
"""Fast: answers are small."""


def decompressed(content: bytes, encoding: str, most: int) -> bytes:
    """Return a body as it was before its `Content-Encoding`, of at most `most` bytes.

    Raises `HTTPException`: 413 for a larger one, of which no more than that is made, 415 for another encoding, 400 for
    a body that is none.
    """
    if encoding not in ENCODINGS:
        raise HTTPException(415, f"unknown Content-Encoding {encoding!r}", {"Accept-Encoding": ", ".join(ENCODINGS)})
    stream = zlib.decompressobj(ENCODINGS[encoding])
    try:
        found = stream.decompress(content, most + 1)
    except zlib.error as error:
        raise HTTPException(400, f"the body is not {encoding}: {error}") from None
    if len(found) > most:
        raise HTTPException(413, f"the body has more than {most} bytes when it is decompressed")
    if not stream.eof or stream.unused_data:
        raise HTTPException(400, f"the body does not end where its {encoding} ends")
    return found


def chosen_encoding(accepted: str) -> str | None:
    """Return the encoding of an answer by the request's `Accept-Encoding`; None for none."""
    offers = [each.partition(";") for each in accepted.lower().split(",")]
    names = [name.strip() for name, _, quality in offers if quality.replace(" ", "") not in ("q=0", "q=0.0")]
    return next((name for name in names if name in ENCODINGS), None)


def compressed(content: bytes, encoding: str) -> bytes:
    """Return a body in an encoding of `ENCODINGS`."""
    stream = zlib.compressobj(_LEVEL, wbits=ENCODINGS[encoding])
    return stream.compress(content) + stream.flush()
