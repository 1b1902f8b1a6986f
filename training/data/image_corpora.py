"""Corpora of images and their classes, as Parquet files of the Hugging Face hub's layout.

Shapes: `N` images, `S` height and width.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray
from PIL import Image

from training.data.corpus import CorpusFile, matches

__all__ = ["IMAGE_CORPORA", "ImageCorpus", "get_image_corpus"]

_HELD_OUT = 10
"""One of so many training images is for development."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageCorpus:
    """A named corpus of images with its origin and its licence."""

    name: str
    folder: str
    """Folder under the data directory."""
    description: str
    homepage: str
    licence: str
    release_allowed: bool
    """Whether a model trained on it may be released."""
    image_size: int
    """Height and width."""
    classes: CorpusFile
    """A label a line, in the order of their numbers."""
    splits: Mapping[str, tuple[CorpusFile, ...]]
    """Keys are `train` and `test`; each tenth training image is for `dev`."""
    image: str = "img"
    label: str = "fine_label"
    """Names of the columns."""

    def labels(self, data_dir: Path) -> list[str]:
        """Return the names of the classes."""
        return self._checked(self.classes, data_dir).read_text(encoding="utf-8").removesuffix("\n").split("\n")

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
            path = self._checked(file, data_dir)
            rows += pyarrow.parquet.read_table(path, columns=[self.image, self.label]).to_pylist()
        if source == "train":
            rows = [row for index, row in enumerate(rows) if (index % _HELD_OUT == 0) == (split == "dev")]
        pixels = np.stack([np.asarray(Image.open(io.BytesIO(row[self.image]["bytes"])).convert("RGB")) for row in rows])
        return pixels, np.array([row[self.label] for row in rows])

    def _checked(self, file: CorpusFile, data_dir: Path) -> Path:
        path = data_dir / self.folder / file.name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; corpus {self.name!r} comes from {self.homepage}")
        content = path.read_bytes()
        if not any(matches(content, checksum) for checksum in file.checksums):
            raise ValueError(f"{path} is not the registered file of corpus {self.name!r} (checksum)")
        return path


def _file(name: str, checksum: str) -> CorpusFile:
    return CorpusFile(name=name, checksums=(f"sha256:{checksum}",))


IMAGE_CORPORA: Mapping[str, ImageCorpus] = {
    corpus.name: corpus
    for corpus in (
        ImageCorpus(
            name="cifar100",
            folder="cifar100",
            description="CIFAR-100: 100 classes of small images",
            homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
            licence="research only",
            release_allowed=False,
            image_size=32,
            classes=_file("classes.txt", "4a53f81a8af29bb6aa646bfe2c455db1b061edfde82a39c0cfc313ef536c681b"),
            splits={
                "train": (
                    _file("train-0-of-5.parquet", "389a8ddbf6c105980ac8d32bfff6568e997d9f41742cf288ae78c808b9bff818"),
                    _file("train-1-of-5.parquet", "291af56b81e17645a78ffb7eb9157589addc96240ba6c51c76a87adaeba799f8"),
                    _file("train-2-of-5.parquet", "933ce70d2d814d85fb4e000637be4ccd03bd5f7e61f7163ddb5c70e9ed5e9c29"),
                    _file("train-3-of-5.parquet", "d864dc183587c57753999ba0154217766442507179375b7fe0942d084a02a0fb"),
                    _file("train-4-of-5.parquet", "d950988295a38e174d98c2d9c85b3897966960e705755d80246616936d55b0d2"),
                ),
                "test": (_file("test.parquet", "d3d785fdfbe687d285338592a5f2a18b05730a287217e2697aaf9502ecb4bf28"),),
            },
        ),
    )
}


def get_image_corpus(name: str) -> ImageCorpus:
    """Return the corpus of that name; raises `ValueError` naming the known ones."""
    if name not in IMAGE_CORPORA:
        raise ValueError(f"unknown corpus of images {name!r}; known ones: {', '.join(IMAGE_CORPORA)}")
    return IMAGE_CORPORA[name]
