"""Decoding PNG and JPEG files in little memory, and refusing those made to take much memory or time.

Shapes: `H` and `W` height and width of an image, `S` those of the result.
"""

import contextlib
import io
import threading
import warnings
from collections.abc import Mapping

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from models.backend import Array
from models.errors import QueryError
from models.image.files import check_structure

__all__ = ["decoded"]

# On sizes, which are checked here, and on harmless metadata.
warnings.filterwarnings("ignore", module=r"PIL\.")

_MAX_SIDE = 65_535
"""Largest height and width, those of JPEG: an image of one column would take far more memory resized than decoded."""
_LARGE_PIXELS = 1 << 22
"""Images with more pixels are decoded one at a time: one of 16 megapixels takes 70 to 150 MB."""
_LARGE_IMAGES = threading.Lock()
_READ_BYTES = 4096
"""Bytes given to a decoder at once, which holds the interpreter lock; flat pixels are a thousand times as many."""
_TILE = 1 << 18
"""Pixels that are converted together. Conversions of a whole image would be several copies of it at once."""

_TURNS: Mapping[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What brings an image the right way up, by its EXIF orientation (Exif 2.32, tag 0x0112)."""


def decoded(image: bytes, size: int, max_pixels: int) -> Array:
    """Return the pixels of a PNG or JPEG file, the right way up, on white, brought to `[size, size, 3]`, uint8.

    Raises `QueryError` where it is no such file, is damaged, or has more than `max_pixels`, which is seen before
    anything is decoded, or where its structure is one that takes a decoder much memory or time.
    """
    check_structure(image)
    try:
        with Image.open(io.BytesIO(image), formats=("PNG", "JPEG")) as opened:
            _check_size(*opened.size, max_pixels)
            opened.decodermaxblock = _READ_BYTES
            large = opened.width * opened.height > _LARGE_PIXELS
            with _LARGE_IMAGES if large else contextlib.nullcontext():
                opened.load()
                small = _resized(opened, size)
            turn = _TURNS.get(_orientation(opened))
            return np.asarray(small if turn is None else small.transpose(turn))
    except (QueryError, MemoryError):
        raise
    except Image.DecompressionBombError:
        raise QueryError(f"the image has far more than {max_pixels} pixels, the model's limit") from None
    except UnidentifiedImageError:
        raise QueryError("the image is neither a PNG nor a JPEG file") from None
    except Exception as error:  # the exceptions for damaged files are not documented
        raise QueryError(f"the image is damaged: {error}") from None


def _orientation(image: Image.Image) -> object:
    """Return the orientation that a file states; conversions of its image do not keep it.

    Metadata that cannot be read is left aside: cameras and editors write wrong metadata to good images.
    """
    with contextlib.suppress(Exception):  # what they make Pillow raise is in no specification
        return image.getexif().get(ExifTags.Base.Orientation)
    return None


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise QueryError(f"the image has {width * height} pixels; the model's limit is {max_pixels}")
    if max(width, height) > _MAX_SIDE:
        raise QueryError(f"the image is {width} by {height} pixels; neither may be more than {_MAX_SIDE}")


def _resized(image: Image.Image, size: int) -> Image.Image:
    """Return an image of `[H, W]` as one of `[S, S, 3]`, as if it were converted to RGB and resized as a whole.

    Resizing is a pass over rows and one over columns, each rounded to 8 bits, so that the pass over rows can be done
    strip by strip with the same result. Where an image is much higher than wide, some versions of Pillow would do the
    other first: pixels then differ by at most 1 of 255, because each pass rounds once.
    """
    width, height = image.size
    narrow = Image.new("RGB", (size, height))
    rows = max(1, _TILE // width)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        strip = _coloured(image.crop((0, top, width, bottom)))
        narrow.paste(strip.resize((size, bottom - top), Image.Resampling.BILINEAR), (0, top))
    return narrow.resize((size, size), Image.Resampling.BILINEAR)


def _coloured(image: Image.Image) -> Image.Image:
    """Return red, green and blue of 8 bits each; 16 bits are scaled, and transparent pixels become white."""
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    layered = image.convert("RGBA")
    ground = Image.new("RGBA", layered.size, "white")
    return Image.alpha_composite(ground, layered).convert("RGB")
