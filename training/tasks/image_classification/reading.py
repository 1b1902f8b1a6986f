"""Images and their classes: from a corpus of the registry, or from a user's own files.

Shapes: `N` images, `S` height and width.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.data.image_corpora import ImageCorpus, get_image_corpus
from training.data.own_images import OwnImages
from training.tasks.image_classification.settings import ImageSettings

__all__ = ["image_source", "read_images"]


def image_source(data: ImageSettings, max_pixels: int) -> ImageCorpus | OwnImages:
    """Return the corpus or the own files that a recipe names; `max_pixels` is the largest own image.

    Raises `ValueError` for an unknown corpus.
    """
    if data.files is None:
        assert data.corpus is not None
        return get_image_corpus(data.corpus)
    assert data.image_size is not None
    return OwnImages(files=data.files, image_size=data.image_size, max_pixels=max_pixels, limit=data.limit)


def read_images(
    data: ImageSettings, split: str, data_dir: Path, labels: Sequence[str], max_pixels: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return pixels `[N, S, S, 3]` and indices into `labels`, `[N]`, of `train`, `dev` or `test`.

    Raises `ValueError` where the classes are not `labels` any more, and the errors of `ImageCorpus.images` and
    `OwnImages.images`.
    """
    source = image_source(data, max_pixels)
    if source.labels(data_dir) != list(labels):
        raise ValueError(f"{data.dataset('train')} has other classes than those that the model was trained on")
    images, classes = source.images(split, data_dir)
    limit = data.limit_of(split)
    return images[:limit], classes[:limit]
