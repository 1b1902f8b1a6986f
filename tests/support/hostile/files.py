"""Image files that are small to send and large to decode, written by hand so that making them costs nothing."""

import functools
import io
import struct
import zlib
from collections.abc import Iterator

from PIL import Image

__all__ = ["SIDE", "chunk_bomb", "jpeg", "many_scans", "png"]

SIDE = 4096
"""Pixels; 4096 x 4096 are 16 megapixels."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Samples of a pixel by colour type (PNG specification, table 11.1)."""
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column and row, and distances, of each pass of an interlaced file."""
_MANY_SCANS_SIZE = 760_000
"""Bytes, so that the file in base64 is below the limit of a body."""


@functools.cache
def png(colour_type: int, bits: int, width: int = SIDE, height: int = SIDE, *, interlaced: bool = False) -> bytes:
    """Return a PNG file whose samples are all zero."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, interlaced)
    palette = [_chunk(b"PLTE", b"\x10\x20\x30" * min(2**bits, 256))] if colour_type == 3 else []
    size = _scanlines(width, height, bits * _CHANNELS[colour_type], interlaced)
    data = _chunk(b"IDAT", _zeros(size))
    return b"".join([_SIGNATURE, _chunk(b"IHDR", header), *palette, data, _chunk(b"IEND", b"")])


def chunk_bomb(kind: bytes, prefix: bytes, size: int = 400_000_000) -> bytes:
    """Return a PNG file of one pixel with a compressed text or colour profile of so many bytes."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    bomb = _chunk(kind, prefix + _zeros(size))
    data = _chunk(b"IDAT", zlib.compress(bytes(4)))
    return b"".join([_SIGNATURE, _chunk(b"IHDR", header), bomb, data, _chunk(b"IEND", b"")])


@functools.cache
def jpeg(mode: str, *, progressive: bool = False, side: int = SIDE) -> bytes:
    """Return a JPEG file of one colour."""
    file = io.BytesIO()
    Image.new(mode, (side, side)).save(file, "JPEG", quality=1, progressive=progressive, optimize=True)
    return file.getvalue()


@functools.cache
def many_scans(side: int = SIDE) -> bytes:
    """Return a progressive JPEG file whose last scan is repeated thousands of times.

    A scan of one colour is some hundred bytes, and each takes a pass over all blocks.
    """
    original = jpeg("L", progressive=True, side=side)
    last = original.rindex(b"\xff\xda")
    scan = original[last:-2]
    return original[:last] + scan * ((_MANY_SCANS_SIZE - len(original)) // len(scan)) + b"\xff\xd9"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _scanlines(width: int, height: int, bits: int, interlaced: bool) -> int:
    """Return the bytes of all scanlines, each with the number of its filter."""

    def size(columns: int, rows: int) -> int:
        return rows * (1 + -(-columns * bits // 8)) if columns > 0 else 0

    if not interlaced:
        return size(width, height)
    return sum(size(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in _ADAM7)


@functools.cache
def _zeros(size: int) -> bytes:
    return b"".join(_compressed(size))


def _compressed(size: int) -> Iterator[bytes]:
    compressor, block = zlib.compressobj(9), bytes(1 << 20)
    for start in range(0, size, len(block)):
        yield compressor.compress(block[: size - start])
    yield compressor.flush()
