"""Tests of decoding: orientation, exactness, memory, and files made to take much of it or of time."""

import io
import struct
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from models import QueryError
from models.backend import Array
from models.image import decoding as image_decoding
from models.image import files as image_files
from models.image.decoding import decoded
from models.image.files import check_structure

MODES = ["1", "L", "LA", "P", "P with alpha", "RGB", "RGBA", "I;16"]
NO_LIMIT = 1 << 30


def picture(height: int = 24, width: int = 16) -> Image.Image:
    """Quarters of different colours, so that all eight orientations differ."""
    pixels = np.zeros((height, width, 3), np.uint8)
    y, x = height // 2, width // 2
    pixels[:y, :x], pixels[:y, x:] = (250, 40, 30), (20, 220, 60)
    pixels[y:, :x], pixels[y:, x:] = (240, 230, 90), (10, 30, 90)
    return Image.fromarray(pixels)


def noise(height: int, width: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(256, size=(height, width, 3), dtype=np.uint8))


def of_mode(image: Image.Image, mode: str) -> Image.Image:
    grey = np.asarray(image.convert("L"))
    if mode == "I;16":
        return Image.fromarray(grey.astype(np.uint16) * 251)
    if mode == "LA":
        return Image.merge("LA", [image.convert("L"), Image.fromarray(255 - grey // 2)])
    if mode == "RGBA":
        return Image.merge("RGBA", [*image.split(), Image.fromarray(255 - grey // 2)])
    return image.quantize(16) if mode.startswith("P") else image.convert(mode)


def file_of(image: Image.Image, kind: str, mode: str = "", orientation: int = 1) -> bytes:
    file, options = io.BytesIO(), {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    exif = Image.Exif()
    exif[0x0112] = orientation
    if mode == "P with alpha":
        options["transparency"] = 3
    image.save(file, kind, exif=exif, **options)
    return file.getvalue()


# ---- orientation ----

_TRANSPOSE = Image.Transpose
STORED = {
    1: None,
    2: _TRANSPOSE.FLIP_LEFT_RIGHT,
    3: _TRANSPOSE.ROTATE_180,
    4: _TRANSPOSE.FLIP_TOP_BOTTOM,
    5: _TRANSPOSE.TRANSPOSE,
    6: _TRANSPOSE.ROTATE_90,
    7: _TRANSPOSE.TRANSVERSE,
    8: _TRANSPOSE.ROTATE_270,
}
"""How the pixels of an upright image are stored in each orientation; turns are counter-clockwise."""


def stored(image: Image.Image, orientation: int) -> Image.Image:
    method = STORED[orientation]
    return image if method is None else image.transpose(method)


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize(
    ("kind", "mode"), [*(("PNG", mode) for mode in MODES), ("JPEG", "L"), ("JPEG", "RGB"), ("JPEG", "CMYK")]
)
def test_every_mode_is_seen_the_right_way_up(kind: str, mode: str, orientation: int) -> None:
    image = of_mode(picture(), mode)
    upright = decoded(file_of(image, kind, mode), 8, NO_LIMIT)
    turned = decoded(file_of(stored(image, orientation), kind, mode, orientation), 8, NO_LIMIT)
    # Rows are resized before columns, in the file's orientation; JPEG compresses blocks of another orientation.
    difference = np.abs(turned.astype(int) - upright.astype(int)).max()
    assert difference <= (8 if kind == "JPEG" else 1)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_is_none_is_ignored(orientation: int) -> None:
    expected = decoded(file_of(picture(), "PNG"), 8, NO_LIMIT)
    np.testing.assert_array_equal(decoded(file_of(picture(), "PNG", "", orientation), 8, NO_LIMIT), expected)


WRONG_EXIF = [b"", b"MM", b"MM\0*", b"rubbish", b"II*\0" + b"\xff" * 4, b"II*\0\x08\0\0\0\xff\xff"]


@pytest.mark.parametrize("exif", WRONG_EXIF, ids=range(len(WRONG_EXIF)))
def test_metadata_that_cannot_be_read_is_left_aside(exif: bytes) -> None:
    expected = decoded(png(), 8, NO_LIMIT)
    np.testing.assert_array_equal(decoded(png(chunk(b"eXIf", exif)), 8, NO_LIMIT), expected)


def test_an_orientation_that_is_not_a_number_is_ignored() -> None:
    exif = b"MM\0*" + struct.pack(">IHHHI", 8, 1, 0x0112, 2, 2) + b"a\0\0\0" + bytes(4)
    np.testing.assert_array_equal(decoded(png(chunk(b"eXIf", exif)), 8, NO_LIMIT), decoded(png(), 8, NO_LIMIT))


# ---- pixels ----


def as_a_whole(file: bytes, size: int) -> Array:
    """Reference: every conversion on the whole image, rows resized first, as all versions of Pillow could."""
    with Image.open(io.BytesIO(file)) as image:
        if image.mode.startswith("I"):
            coloured = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
        elif image.mode == "RGB" and "transparency" not in image.info:
            coloured = image.convert("RGB")
        else:
            ground = Image.new("RGBA", image.size, "white")
            coloured = Image.alpha_composite(ground, image.convert("RGBA")).convert("RGB")
        rows = coloured.resize((size, coloured.height), Image.Resampling.BILINEAR)
        return np.asarray(rows.resize((size, size), Image.Resampling.BILINEAR))


@pytest.mark.parametrize("shape", [(1, 1), (3, 200), (200, 3), (90, 70), (7, 7)])
@pytest.mark.parametrize(
    ("kind", "mode"), [*(("PNG", mode) for mode in MODES), ("JPEG", "L"), ("JPEG", "RGB"), ("JPEG", "CMYK")]
)
def test_strips_give_the_pixels_of_the_whole(
    kind: str, mode: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_decoding, "_TILE", 256)
    file = file_of(of_mode(noise(*shape), mode), kind, mode)
    for size in (1, 16, 100):
        np.testing.assert_array_equal(decoded(file, size, NO_LIMIT), as_a_whole(file, size))


@pytest.mark.parametrize("shape", [(7, 7), (90, 70), (70, 90), (300, 40), (40, 300), (500, 3)])
def test_pixels_are_those_that_pillow_resizes_at_once(shape: tuple[int, int]) -> None:
    """Where an image is much higher than wide, Pillow may resize columns first: one more level by rounding."""
    image = noise(*shape)
    found = decoded(file_of(image, "PNG"), 16, NO_LIMIT).astype(int)
    expected = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(found - expected).max() <= (1 if shape[0] > shape[1] else 0)


def test_a_colour_that_is_transparent_in_rgb_is_white(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_decoding, "_TILE", 64)
    file = io.BytesIO()
    picture().save(file, "PNG", transparency=(250, 40, 30))
    found = decoded(file.getvalue(), 8, NO_LIMIT)
    assert found[0, 0].tolist() == [255] * 3
    np.testing.assert_array_equal(found, as_a_whole(file.getvalue(), 8))


# ---- memory and time ----

Cost = Callable[[bytes], tuple[str, float, float]]


@pytest.mark.parametrize(
    ("kind", "mode", "limit"),
    [
        ("PNG", "RGB", 80),
        ("PNG", "RGBA", 85),
        ("PNG", "L", 40),
        ("PNG", "P", 40),
        ("PNG", "I;16", 55),
        ("JPEG", "RGB", 80),
        ("JPEG", "CMYK", 85),
    ],
)
def test_a_large_image_is_in_memory_once(kind: str, mode: str, limit: float, cost: Cost) -> None:
    """Pillow holds colours in 4 bytes a pixel, which is 61 MiB for 16 megapixels."""
    image = picture(4000, 4000)
    large = Image.fromarray(np.full((4000, 4000), 9000, np.uint16)) if mode == "I;16" else of_mode(image, mode)
    file = io.BytesIO()
    large.save(file, kind)
    problem, memory, _ = cost(file.getvalue())
    assert not problem
    assert memory < limit


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(*chunks: bytes, size: tuple[int, int] = (24, 16), behind: bytes = b"") -> bytes:
    """A grey PNG file with chunks before its pixels, and others behind them."""
    width, height = size
    pixels = zlib.compress(bytes((width + 1) * height), 1)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return image_files._PNG + header + b"".join(chunks) + chunk(b"IDAT", pixels) + behind + chunk(b"IEND", b"")


def in_parts(count: int) -> bytes:
    """A PNG file of 16 megapixels whose pixels are in chunks of a byte each, as far as that goes."""
    file = png(size=(4000, 4000))
    start, end = file.index(b"IDAT") - 4, file.index(b"IEND") - 4
    pixels = file[start + 8 : end - 4]
    parts = b"".join(chunk(b"IDAT", pixels[place : place + 1]) for place in range(min(count, len(pixels))))
    return file[:start] + parts + chunk(b"IDAT", pixels[count:]) + file[end:]


def zeros(size: int) -> bytes:
    """Zeros, compressed: one block of them again and again, which takes no time to make."""
    block, count = bytes(1 << 20), size >> 20
    compressor = zlib.compressobj(9)
    first = compressor.compress(block) + compressor.flush(zlib.Z_FULL_FLUSH)
    again = compressor.compress(block) + compressor.flush(zlib.Z_FULL_FLUSH)
    checksum = ((count << 20) % 65521) << 16 | 1  # Adler-32 of zeros
    return first + again * (count - 1) + b"\x03\0" + struct.pack(">I", checksum)


def animated(frames: int) -> bytes:
    """An APNG file of 16 megapixels whose frames are all there."""
    size, pixels = (4000, 4000), zeros(4000 * 4001)

    def control(number: int) -> bytes:
        return chunk(b"fcTL", struct.pack(">IIIIIHHBB", number, *size, 0, 0, 1, 10, 0, 0))

    rest = b"".join(
        control(2 * frame + 1) + chunk(b"fdAT", struct.pack(">I", 2 * frame + 2) + pixels) for frame in range(frames)
    )
    return png(chunk(b"acTL", struct.pack(">II", frames + 1, 0)), control(0), size=size, behind=rest)


def jpeg(size: int, **options: object) -> bytes:
    file = io.BytesIO()
    noise(64, 64).resize((size, size)).convert("L").save(file, "JPEG", **options)
    return file.getvalue()


def with_segments(*segments: bytes) -> bytes:
    file = jpeg(32)
    return file[:2] + b"".join(segments) + file[2:]


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def with_scans(count: int, size: int = 4000) -> bytes:
    """A progressive JPEG file whose cheapest scan comes again and again."""
    file = jpeg(size, progressive=True)
    starts = [found.start() for found in image_files._MARKER.finditer(file) if file[found.start() + 1] == 0xDA]
    ends = [image_files._MARKER.search(file, start + 12).start() for start in starts]  # type: ignore[union-attr]
    start, end = min(zip(starts[1:], ends[1:], strict=True), key=lambda span: span[1] - span[0])
    return file[:end] + file[start:end] * (count - len(starts)) + file[end:]


def overlapping_tags(count: int) -> bytes:
    """EXIF of tags that all have the same bytes as their value, which a reader may copy for each of them."""
    size, place = 12 * count, 8 + 2 + 12 * count + 4
    tags = b"".join(struct.pack(">HHII", tag, 7, size, place) for tag in range(1, count + 1))
    return b"MM\0*" + struct.pack(">IH", 8, count) + tags + bytes(4) + bytes(size)


def exif_segments(exif: bytes) -> bytes:
    """EXIF in as many segments as it takes; Pillow puts them together again."""
    parts = [exif[first : first + 65_000] for first in range(0, len(exif), 65_000)]
    return b"".join(segment(0xE1, b"Exif\0\0" + part) for part in parts)


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a profile of 1 GB": (lambda: png(chunk(b"iCCP", b"a\0\0" + zeros(1 << 30))), "damaged"),
    "a text of 1 GB": (lambda: png(chunk(b"zTXt", b"a\0\0" + zeros(1 << 30))), "damaged"),
    "an international text of 1 GB": (lambda: png(chunk(b"iTXt", b"a\0\1\0\0\0" + zeros(1 << 30))), "damaged"),
    "many texts": (lambda: png(*[chunk(b"zTXt", b"a\0\0" + zeros(1 << 20))] * 5000), "more than 16 chunks"),
    "many texts behind the pixels": (
        lambda: png(behind=chunk(b"iTXt", b"a\0\1\0\0\0" + zeros(1 << 20)) * 5000),
        "more than 16 chunks",
    ),
    "tags that overlap": (lambda: png(chunk(b"eXIf", overlapping_tags(20_000))), ""),
    "tags that overlap in many segments": (lambda: with_segments(exif_segments(overlapping_tags(20_000))), ""),
    "tags that overlap in an index of images": (
        lambda: with_segments(segment(0xE2, b"MPF\0" + overlapping_tags(2600))),
        "",
    ),
    "many segments of EXIF": (lambda: with_segments(segment(0xE1, b"Exif\0\0" + bytes(230)) * 4000), ""),
    "many parts of pixels": (lambda: in_parts(60_000), ""),
    "many chunks": (lambda: png(chunk(b"teXt", b"") * 1_000_000), "more than 65536 chunks"),
    "many frames": (lambda: animated(200), ""),
    "a column": (lambda: png(size=(1, 16_000_000)), "neither may be more than 65535"),
    "a row": (lambda: png(size=(16_000_000, 1)), "neither may be more than 65535"),
    "a tall image": (lambda: png(size=(244, 65_535)), ""),
    "many segments": (lambda: with_segments(segment(0xFE, b"") * 1_000_000), "more than 4096 segments"),
    "many fill bytes": (lambda: with_segments(b"\xff" * 10_000_000), "damaged"),
    "much junk": (lambda: with_segments(b"\0" * 10_000_000), "damaged"),
    "many scans": (lambda: with_scans(5000), "more than 64 scans"),
    "as many scans as there may be": (lambda: with_scans(64), ""),
}


@pytest.mark.parametrize("name", BOMBS)
def test_files_made_to_be_costly_are_not(name: str, cost: Cost) -> None:
    make, expected = BOMBS[name]
    file = make()
    problem, memory, seconds = cost(file)
    assert bool(expected) == bool(problem)
    assert expected in problem
    assert memory < 100
    assert seconds < 3


def test_scans_cannot_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between scans there may be segments, which may hold the bytes of an end; some markers have no length."""
    monkeypatch.setattr(image_files, "_MAX_SCANS", 20)
    file = with_scans(30, 64)
    first = file.index(b"\xff\xda")
    for hidden in (segment(0xFE, b"\xff\xd9"), b"\xff\x01\xff\xff", b"\xff\xff\xff", b"\xff\xd0"):
        with pytest.raises(QueryError, match="more than 20 scans"):
            check_structure(file[:first] + hidden + file[first:])


def test_what_follows_the_end_does_not_count() -> None:
    check_structure(jpeg(64) + b"\xff\xda\0\2" * 10_000)
    check_structure(png() + chunk(b"zTXt", b"") * 100_000)


@pytest.mark.parametrize("length", range(30))
def test_a_file_cut_short_is_left_to_the_decoder(length: int) -> None:
    for file in (jpeg(32), png()):
        check_structure(file[:length])
        with pytest.raises(QueryError, match=r"damaged|neither"):
            decoded(file[:length], 8, NO_LIMIT)


def test_large_images_are_decoded_one_at_a_time(monkeypatch):
    running, most, resized = [], [], image_decoding._resized

    def slow(image, size):
        running.append(size)
        most.append(len(running))
        time.sleep(0.05)
        running.pop()
        return resized(image, size)

    monkeypatch.setattr(image_decoding, "_resized", slow)
    monkeypatch.setattr(image_decoding, "_LARGE_PIXELS", 3)
    buffer = io.BytesIO()
    Image.new("L", (2, 2)).save(buffer, "PNG")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: image_decoding.decoded(buffer.getvalue(), 2, 100), range(4)))
    assert most == [1] * 4
