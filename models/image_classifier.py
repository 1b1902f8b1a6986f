"""Classifiers of images: PNG or JPEG files in, probabilities of their classes out.

Shapes: `B` images, `S` height and width, `k` classes asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from models.backend import Array, Backend
from models.classifier import Label, best_labels, read_labels
from models.errors import QueryError
from models.image_decoding import decoded
from models.manifest import Manifest
from models.networks import ImageNetwork

__all__ = ["ImageClassification", "ImageClassifier", "ImageQuery"]

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
