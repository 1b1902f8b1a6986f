"""Classifiers of images: PNG or JPEG files in, probabilities of their classes out.

Shapes: `B` images, `S` height and width, `k` classes asked for.
"""

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from models.backend import Array, Backend
from models.classifier import Label, best_labels, read_labels
from models.errors import QueryError
from models.manifest import Manifest
from models.networks import ImageNetwork

__all__ = ["ImageClassification", "ImageClassifier", "ImageQuery", "decoded"]

# On sizes, which are checked here, and on harmless metadata.
warnings.filterwarnings("ignore", module=r"PIL\.")

_BATCH_IMAGES = 32
"""Images that `classify` computes together."""


@dataclass(frozen=True, slots=True)
class ImageClassification:
    """The classes of an image, most probable first."""

    labels: tuple[Label, ...]
    """Fewer than asked for where a sparse-softmax gives fewer a probability."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageQuery:
    """A decoded image."""

    pixels: Array
    """`[S, S, 3]`, uint8."""
    top_k: int
    length: int = 1
    """All images cost the same."""

    @property
    def result_items(self) -> int:
        """Labels of the result, at most."""
        return self.top_k


class ImageClassifier:
    """A loaded bundle that classifies images. Safe to call from several threads.

    `classify` does a whole job; a server checks and decodes queries as they come (`query`) and runs them in batches
    (`run`).
    """

    def __init__(self, manifest: Manifest, labels: Sequence[str], backend: Backend) -> None:
        assert isinstance(manifest.network, ImageNetwork)
        assert manifest.limits.max_pixels is not None
        self.manifest = manifest
        self.backend = backend
        self.labels = tuple(labels)
        self._size, self._max_pixels = manifest.network.image_size, manifest.limits.max_pixels

    @classmethod
    def from_bundle(cls, path: Path, manifest: Manifest, backend: Backend) -> Self:
        return cls(manifest, read_labels(path, manifest), backend)

    def classify(self, images: Sequence[bytes], top_k: int = 5) -> list[ImageClassification]:
        """The `top_k` most probable classes of each PNG or JPEG file; all where there are fewer, none of probability 0.

        Raises `QueryError` for `top_k` below 1 and for what is no such file, or too large an image.
        """
        return self.run([self.query(image, top_k) for image in images])

    def query(self, image: bytes, top_k: int = 5) -> ImageQuery:
        """Checks and decodes one file; see `classify`."""
        if top_k < 1:
            raise QueryError(f"top_k must be at least 1, not {top_k}")
        return ImageQuery(decoded(image, self._size, self._max_pixels), min(top_k, len(self.labels)))

    def run(self, queries: Sequence[ImageQuery]) -> list[ImageClassification]:
        """Results in the order of the queries."""
        groups = [queries[first : first + _BATCH_IMAGES] for first in range(0, len(queries), _BATCH_IMAGES)]
        return [result for group in groups for result in self._run(group)]

    def _run(self, queries: Sequence[ImageQuery]) -> list[ImageClassification]:
        inputs = {
            "images": np.stack([query.pixels for query in queries]),
            "k": np.array(max(query.top_k for query in queries)),
        }
        values, classes = self.backend.run("classify", inputs, ["log_probabilities", "classes"])
        rows = best_labels(self.labels, values, classes, [query.top_k for query in queries])
        return [ImageClassification(row) for row in rows]


def decoded(image: bytes, size: int, max_pixels: int) -> Array:
    """The pixels of a PNG or JPEG file, the right way up, on white, brought to `[size, size, 3]`, uint8.

    Raises `QueryError` where it is no such file, is damaged, or has more than `max_pixels`, which is seen before
    anything is decoded.
    """
    try:
        with Image.open(io.BytesIO(image), formats=("PNG", "JPEG")) as opened:
            width, height = opened.size
            if width * height > max_pixels:
                raise QueryError(f"the image has {width * height} pixels; the model's limit is {max_pixels}")
            small = _coloured(opened).resize((size, size), Image.Resampling.BILINEAR)
            return np.asarray(ImageOps.exif_transpose(small))
    except (QueryError, MemoryError):
        raise
    except Image.DecompressionBombError:
        raise QueryError(f"the image has far more than {max_pixels} pixels, the model's limit") from None
    except UnidentifiedImageError:
        raise QueryError("the image is neither a PNG nor a JPEG file") from None
    except Exception as error:  # what a damaged file makes a decoder raise is in no specification
        raise QueryError(f"the image is damaged: {error}") from None


def _coloured(image: Image.Image) -> Image.Image:
    """Red, green and blue of 8 bits each; 16 bits are scaled, not cut off, and what is transparent becomes white."""
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "RGB" and "transparency" not in image.info:
        return image.convert("RGB")
    layered = image.convert("RGBA")
    ground = Image.new("RGBA", layered.size, "white")
    return Image.alpha_composite(ground, layered).convert("RGB")
