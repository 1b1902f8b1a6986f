"""Images: files of 16 megapixels in every mode, bombs, and more of them than can be decoded in time.

The server needs an image classifier with a `max_pixels` of 16 megapixels or more.
"""

import base64
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence

from tests.support.hostile.attack import OVERLOADED, Attack, at_once
from tests.support.hostile.files import SIDE, chunk_bomb, jpeg, many_scans, png
from tests.support.limited_server import Answer, LimitedServer

__all__ = ["IMAGES"]

_REFUSED = frozenset({413, 422})
_LEGAL = frozenset({200, *OVERLOADED})

Make = Callable[[], bytes]

_KINDS: dict[str, Make] = {
    "PNG, 1 bit": lambda: png(0, 1),
    "PNG, gray": lambda: png(0, 8),
    "PNG, gray of 16 bits": lambda: png(0, 16),
    "PNG, gray with alpha": lambda: png(4, 8),
    "PNG, palette": lambda: png(3, 8),
    "PNG, RGB": lambda: png(2, 8),
    "PNG, RGB of 16 bits": lambda: png(2, 16),
    "PNG, RGBA": lambda: png(6, 8),
    "PNG, RGBA of 16 bits": lambda: png(6, 16),
    "PNG, RGBA, interlaced": lambda: png(6, 8, interlaced=True),
    "JPEG, gray": lambda: jpeg("L"),
    "JPEG, RGB": lambda: jpeg("RGB"),
    "JPEG, RGB, progressive": lambda: jpeg("RGB", progressive=True),
    "JPEG, CMYK": lambda: jpeg("CMYK"),
}


def _post(server: LimitedServer, files: Sequence[bytes], timeout_ms: int) -> Answer:
    encoded = [base64.b64encode(file).decode() for file in files]
    return server.post("/v1/classify", {"image": encoded}, timeout_ms)


def _one(make: Make, count: int = 1, timeout_ms: int = 5000) -> Callable[[LimitedServer], list[Answer]]:
    return lambda server: [_post(server, [make()] * count, timeout_ms)]


def _several(make: Make, clients: int, timeout_ms: int) -> Callable[[LimitedServer], Sequence[Answer]]:
    def run(server: LimitedServer) -> Sequence[Answer]:
        file = [make()]
        return at_once(clients, lambda _: _post(server, file, timeout_ms))

    return run


def _large() -> Iterator[Attack]:
    for name, make in _KINDS.items():
        yield Attack(name=f"image: 16 megapixels, {name}", run=_one(make), statuses=_LEGAL)
    for name in ("PNG, RGBA", "JPEG, CMYK"):
        make = _KINDS[name]
        yield Attack(
            name=f"image: 20 clients, 16 megapixels, {name}, deadline 50 ms",
            run=_several(make, 20, 50),
            statuses=OVERLOADED,
            max_seconds=2.0,
            max_stall=0.2,
        )
        yield Attack(
            name=f"image: 16 clients, 16 megapixels, {name}, deadline 2 s",
            run=_several(make, 16, 2000),
            statuses=_LEGAL,
            max_seconds=4.0,
            max_stall=0.2,
        )


def _bombs() -> Iterator[Attack]:
    files: dict[str, Make] = {
        "65,000 x 65,000 pixels": lambda: _lying(65_000, 65_000),
        "17 megapixels": lambda: _lying(SIDE + 100, SIDE + 100),
        "2,147,483,647 x 1 pixels": lambda: _lying(2**31 - 1, 1),
        "no pixels": lambda: _lying(0, 0),
        "16 megapixels without data": lambda: _lying(SIDE, SIDE),
        "a compressed text of 400 MB": lambda: chunk_bomb(b"zTXt", b"a\0\0"),
        "a colour profile of 400 MB": lambda: chunk_bomb(b"iCCP", b"a\0\0"),
        "an international text of 400 MB": lambda: chunk_bomb(b"iTXt", b"a\0\1\0\0\0"),
        "PNG cut in the middle": lambda: png(6, 8)[: len(png(6, 8)) // 2],
        "JPEG cut in the middle": lambda: jpeg("RGB")[: len(jpeg("RGB")) // 2],
    }
    for name, make in files.items():
        yield Attack(name=f"image: {name}", run=_one(make), statuses={200, *_REFUSED, 504})
    yield Attack(
        name="image: a JPEG file of thousands of scans, deadline 1 s",
        run=_one(many_scans, timeout_ms=1000),
        statuses={*_REFUSED, 504},
        max_seconds=2.0,
    )
    yield Attack(
        name="image: ten of 16 megapixels in a request, deadline 1 s",
        run=_one(lambda: png(6, 8), 10, 1000),
        statuses={200, *_REFUSED, *OVERLOADED},
        max_seconds=2.5,
    )
    yield Attack(
        name="image: 10,000 files of one pixel",
        run=_one(lambda: png(0, 1, 1, 1), 10_000),
        statuses={*_REFUSED, *OVERLOADED},
    )


def _lying(width: int, height: int) -> bytes:
    """Return a PNG file whose header gives a larger size than its data."""
    honest = png(0, 8, 1, 1)
    header = b"IHDR" + struct.pack(">II", width, height) + honest[24:29]
    return honest[:12] + header + struct.pack(">I", zlib.crc32(header)) + honest[33:]


IMAGES: tuple[Attack, ...] = (*_large(), *_bombs())
"""Every file is below the limit of a body."""
