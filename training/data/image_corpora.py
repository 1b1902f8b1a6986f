"""Corpora of images and their classes, as Parquet files of the Hugging Face hub's layout.

Shapes: `N` images, `S` height and width.
"""

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field
from pydantic.dataclasses import dataclass

from training.data.corpus import CorpusEntry, CorpusFile, matches
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
    checksums: Mapping[str, str] = Field(default_factory=dict)
    """`algorithm:hex` of the pixels and then the classes, as int64, of the keys of `splits` in the order of `images`;
    it does not depend on the files that they are kept in."""
    columns: tuple[str, ...] = ("img", "fine_label")
    """Names of the columns of images and classes."""

    def labels(self, data_dir: Path) -> list[str]:
        """Return the names of the classes."""
        return self.lines(self.classes, data_dir)

    def images(self, split: str, data_dir: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return pixels `[N, S, S, 3]` and classes `[N]` of `train`, `dev` or `test`, ordered by the SHA-256 of pixels.

        Raises `ValueError` for another split or other images than the registered ones, `FileNotFoundError` where a file
        is missing, saying where to get it.
        """
        if split not in ("train", "dev", "test"):
            raise ValueError(f"corpus {self.name!r} has no split {split!r}; it has train, dev, test")
        source = "test" if split == "test" else "train"
        pixels, classes = self._decoded(source, (self.content(file, data_dir) for file in self.splits[source]))
        if source == "train":
            chosen = (np.arange(len(classes)) % _HELD_OUT == 0) == (split == "dev")
            return pixels[chosen], classes[chosen]
        return pixels, classes

    def _decoded(self, source: str, contents: Iterable[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the pixels and classes of `train` or `test` from its files; raises `ValueError` for other images."""
        rows: list[dict[str, Any]] = []
        for content in contents:
            rows += pyarrow.parquet.read_table(io.BytesIO(content), columns=list(self.columns)).to_pylist()
        image, label = self.columns
        decoded = [np.asarray(Image.open(io.BytesIO(row[image]["bytes"])).convert("RGB")) for row in rows]
        keys = [(hashlib.sha256(each.tobytes()).digest(), row[label]) for each, row in zip(decoded, rows, strict=True)]
        order = sorted(range(len(rows)), key=keys.__getitem__)
        pixels = np.stack([decoded[index] for index in order])
        classes = np.array([rows[index][label] for index in order], dtype=np.int64)
        expected = self.checksums.get(source)
        if expected is not None and not matches(pixels.tobytes() + classes.astype("<i8").tobytes(), expected):
            raise ValueError(f"the {source} images are not those of corpus {self.name!r} (checksum)")
        return pixels, classes

    def all_files(self) -> Iterator[CorpusFile]:
        yield self.classes
        for files in self.splits.values():
            yield from files

    def check(self, files: Mapping[str, bytes]) -> None:
        CorpusEntry.check(self, files)  # the class that `dataclass` makes of this one is not that of `super()`
        for source, parts in self.splits.items():
            self._decoded(source, (files[part.name] for part in parts))


IMAGE_CORPORA: Mapping[str, ImageCorpus] = read_entries(ImageCorpus, Path(__file__).with_suffix(".yaml"))
"""Registered corpora of images by name."""


def get_image_corpus(name: str) -> ImageCorpus:
    """Return the corpus of that name; raises `ValueError` naming the known ones."""
    if name not in IMAGE_CORPORA:
        raise ValueError(f"unknown corpus of images {name!r}; known ones: {', '.join(IMAGE_CORPORA)}")
    return IMAGE_CORPORA[name]
