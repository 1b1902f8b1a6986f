"""A user's own images: a folder for each class, a file of `label<TAB>path` lines, or a CSV file with these columns.

Shapes: `N` images, `S` height and width.
"""

import hashlib
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.errors import QueryError
from models.image.decoding import decoded
from training.data.identity import Record
from training.data.own_files import checked_columns, records_of_split, source_of
from training.data.records import read_records
from training.data.settings import SplitFiles

__all__ = ["LabelledImage", "OwnImages", "holds_images", "images_in_folders"]

_COLUMNS = ("label", "path")
_SUFFIXES = (".png", ".jpg", ".jpeg")
_SHOWN = 5
"""Number of files or classes that a message shows."""


@dataclass(frozen=True, slots=True)
class LabelledImage:
    """An image file and its class."""

    label: str
    path: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnImages:
    """Images of a user's own files, decoded and resized as the service does it."""

    files: SplitFiles
    image_size: int
    """Height and width that images are resized to."""
    max_pixels: int
    """Largest image that is decoded, height times width."""
    limit: int | None = None
    """Number of images to which each split is reduced."""

    def labels(self, data_dir: Path) -> list[str]:
        """Return the names of the classes in alphabetical order.

        Raises `ValueError` for fewer than two classes and, where splits are held out, for classes of a single image;
        `FileNotFoundError` where there is no file or folder.
        """
        path, missing = source_of(self.files, "train", data_dir)
        counts = Counter(image.label for image in _listed(path, data_dir, self.files))
        if len(counts) < 2:
            raise ValueError(f"{path} has only one class, {next(iter(counts))!r}")
        single = sorted(label for label, count in counts.items() if count == 1)
        if single and missing:
            raise ValueError(
                f"{path}: {_some(single)}: a class of a single image is too small to hold out {' and '.join(missing)}"
            )
        return sorted(counts)

    def images(self, split: str, data_dir: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return pixels `[N, S, S, 3]` and classes `[N]` of `train`, `dev` or `test`, ordered by the files' SHA-256.

        Copies of a file are in one split. Raises `ValueError` for an unknown split, for images that cannot be read
        and for classes without a training image; `FileNotFoundError` where there is no file or folder.
        """
        indices = {label: index for index, label in enumerate(self.labels(data_dir))}
        images = [image for _, image in self.files_of(split, data_dir)]
        found = {image.label for image in images}
        untrained = indices.keys() - found if split == "train" else found - indices.keys()
        if untrained:
            raise ValueError(f"classes without a training image: {_some(sorted(untrained))}; they need more images")
        images = images[: self.limit]
        pixels = np.empty((len(images), self.image_size, self.image_size, 3), np.uint8)
        wrong: list[str] = []
        with ThreadPoolExecutor() as pool:
            for index, image in enumerate(pool.map(self._decoded, images)):
                if isinstance(image, str):
                    wrong.append(image)
                else:
                    pixels[index] = image
        if wrong:
            raise ValueError(_some(wrong, "; "))
        return pixels, np.array([indices[image.label] for image in images])

    def records(self, split: str, data_dir: Path) -> list[Record]:
        """Return the class and the SHA-256 of each file of a split, in its order; raises the errors of `labels`."""
        files = self.files_of(split, data_dir)[: self.limit]
        return [((image.label,), digest) for digest, image in files]

    def files_of(self, split: str, data_dir: Path) -> list[tuple[str, LabelledImage]]:
        """Return the SHA-256 of each file of a split, by which they are ordered, and the file; the limit is left aside.

        Raises the errors of `images` but those of single files.
        """
        path, missing = source_of(self.files, split, data_dir)
        images = _listed(path, data_dir, self.files)
        with ThreadPoolExecutor() as pool:
            digests = list(pool.map(_digest, images))
        ordered = sorted(zip(digests, images, strict=True), key=lambda pair: (pair[0], str(pair[1].path)))
        digests, classes = [digest for digest, _ in ordered], [(image.label,) for _, image in ordered]
        return records_of_split(ordered, digests, split, missing, "images", classes)

    def _decoded(self, image: LabelledImage) -> NDArray[np.uint8] | str:
        """Return the pixels `[S, S, 3]` of a file, or the reason why there are none."""
        try:
            pixels: NDArray[np.uint8] = decoded(image.path.read_bytes(), self.image_size, self.max_pixels)
            return pixels
        except QueryError as error:
            return f"{image.path}: {error}"


def _digest(image: LabelledImage) -> str:
    with image.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listed(path: Path, data_dir: Path, files: SplitFiles) -> list[LabelledImage]:
    """Return the files of a list or of a folder of classes."""
    if path.is_dir():
        return images_in_folders(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file or folder; relative paths of data.files start at --data-dir")

    def parse(values: Sequence[str]) -> LabelledImage:
        label, name = checked_columns(values, _COLUMNS)
        if not (data_dir / name).is_file():
            raise ValueError(f"{data_dir / name} is not a file; relative paths start at --data-dir")
        return LabelledImage(label, data_dir / name)

    return read_records(path, _COLUMNS, parse, files)


def holds_images(path: Path) -> bool:
    """Return whether a folder has folders with images."""
    return any(each.suffix.lower() in _SUFFIXES for folder in _folders(path) for each in folder.rglob("*"))


def _folders(path: Path) -> list[Path]:
    return [each for each in path.iterdir() if each.is_dir() and not each.name.startswith(".")]


def images_in_folders(root: Path) -> list[LabelledImage]:
    """Return the images in the folders of a folder, which are their classes.

    Warns about other files, which are skipped; raises `ValueError` where there is no image.
    """
    images: list[LabelledImage] = []
    skipped: list[str] = []
    for path in sorted(root.rglob("*")):
        folder, *rest = path.relative_to(root).parts
        if path.is_dir() or any(part.startswith(".") for part in (folder, *rest)):
            continue
        if rest and path.suffix.lower() in _SUFFIXES:
            images.append(LabelledImage(folder, path))
        else:
            skipped.append(str(path.relative_to(root)))
    if skipped:
        warnings.warn(f"{root}: no .png, .jpg or .jpeg file in a class folder, skipped: {_some(skipped)}", stacklevel=2)
    if not images:
        raise ValueError(f"{root} has no images: a folder for each class, with .png, .jpg or .jpeg files, is expected")
    return images


def _some(names: Sequence[str], separator: str = ", ") -> str:
    """Return the first names, and the number of the others."""
    more = f"{separator}and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return separator.join(names[:_SHOWN]) + more
