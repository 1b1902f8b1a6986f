"""Corpora of images and their classes, as Parquet files of the Hugging Face hub's layout.

Shapes: `N` images, `S` height and width.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray
from PIL import Image
from pydantic.dataclasses import dataclass

from training.data.corpus import CorpusEntry, CorpusFile
from training.settings import ENTRY, read_entries

__all__ = ["IMAGE_CORPORA", "ImageCorpus", "get_image_corpus"]

_HELD_OUT = 10
"""One of so many training images is for development."""


@dataclass(frozen=True, kw_only=True, slots=True, config=ENTRY)
class ImageCorpus(CorpusEntry):
    """A corpus of images with its classes and splits."""

    image_size: int
    """Height and width."""
    classes: CorpusFile
    """A label a line, in the order of their numbers."""
    splits: Mapping[str, tuple[CorpusFile, ...]]
    """Keys are `train` and `test`; each tenth training image is for `dev`."""
    columns: tuple[str, ...] = ("img", "fine_label")
    """Names of the columns of images and classes."""

    def labels(self, data_dir: Path) -> list[str]:
        """Return the names of the classes."""
        return self.lines(self.classes, data_dir)

    def images(self, split: str, data_dir: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return pixels `[N, S, S, 3]` and classes `[N]` of `train`, `dev` or `test`.

        Raises `ValueError` for another split or a file that is not the registered one, `FileNotFoundError` where there
        is none, saying where to get it.
        """
        if split not in ("train", "dev", "test"):
            raise ValueError(f"corpus {self.name!r} has no split {split!r}; it has train, dev, test")
        source = "test" if split == "test" else "train"
        rows: list[dict[str, Any]] = []
        for file in self.splits[source]:
            content = io.BytesIO(self.content(file, data_dir))
            rows += pyarrow.parquet.read_table(content, columns=list(self.columns)).to_pylist()
        if source == "train":
            rows = [row for index, row in enumerate(rows) if (index % _HELD_OUT == 0) == (split == "dev")]
        image, label = self.columns
        pixels = np.stack([np.asarray(Image.open(io.BytesIO(row[image]["bytes"])).convert("RGB")) for row in rows])
        return pixels, np.array([row[label] for row in rows])


IMAGE_CORPORA: Mapping[str, ImageCorpus] = read_entries(ImageCorpus, Path(__file__).with_suffix(".yaml"))
"""Registered corpora of images by name."""


def get_image_corpus(name: str) -> ImageCorpus:
    """Return the corpus of that name; raises `ValueError` naming the known ones."""
    if name not in IMAGE_CORPORA:
        raise ValueError(f"unknown corpus of images {name!r}; known ones: {', '.join(IMAGE_CORPORA)}")
    return IMAGE_CORPORA[name]
