"""Batches of images and their classes.

Shapes: `N` images of a split, `B` of a batch, `S` height and width.
"""

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.batching import ExampleBatch

__all__ = ["ImageBatch", "ImageBatches", "augmented"]

_MARGIN = 4
"""Pixels that an image may be moved by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBatch(ExampleBatch):
    """Images and their classes; the targets are `[B, 1]`."""

    images: Tensor
    """`[B, S, S, 3]`, uint8."""


class ImageBatches:
    """Images in random order, or in that of the split; the same epoch number always gives the same batches."""

    def __init__(
        self,
        images: NDArray[np.uint8],
        labels: NDArray[np.int64],
        *,
        batch_images: int,
        seed: int | None = None,
        augment: bool = False,
    ) -> None:
        """Take pixels `[N, S, S, 3]` and classes; nothing is random without `seed`. Raises `ValueError` for none."""
        if not len(images):
            raise ValueError("images: there is none")
        self._images = images
        self._labels = np.asarray(labels)
        self._batch_images = batch_images
        self._seed = seed
        self._augment = augment and seed is not None

    def __len__(self) -> int:
        whole, rest = divmod(len(self._images), self._batch_images)
        return whole + (rest > (self._seed is not None and self._batch_images > 1))

    def epoch(self, number: int) -> Iterator[ImageBatch]:
        """Return the batches of an epoch."""
        return map(operator.call, self.plan(number))

    def plan(self, number: int) -> Sequence[Callable[[], ImageBatch]]:
        """Return a function for each batch of an epoch, which makes it."""
        order = np.arange(len(self._images))
        generator = np.random.default_rng((self._seed or 0, number))
        if self._seed is not None:
            generator.shuffle(order)
        # One image in a last batch has no variance, which batch normalization would need: there are fewer batches.
        return [functools.partial(self._batch, order, number, index) for index in range(len(self))]

    def _batch(self, order: NDArray[np.int64], epoch: int, index: int) -> ImageBatch:
        first = index * self._batch_images
        indices = order[first : first + self._batch_images]
        images = self._images[indices]
        if self._augment:
            # A generator of its own, so that going on from here needs no earlier batch.
            images = augmented(images, np.random.default_rng((self._seed or 0, epoch, first)))
        return ImageBatch(
            images=torch.from_numpy(images),
            targets=torch.from_numpy(self._labels[indices][:, None]),
            indices=torch.from_numpy(indices),
        )


def augmented(images: NDArray[np.uint8], generator: np.random.Generator) -> NDArray[np.uint8]:
    """Return images `[B, S, S, 3]` moved by up to 4 pixels over their mirrored borders, half of them mirrored."""
    size = images.shape[1]
    padded = np.pad(images, ((0, 0), (_MARGIN, _MARGIN), (_MARGIN, _MARGIN), (0, 0)), mode="reflect")
    moves = generator.integers(2 * _MARGIN + 1, size=(len(images), 2))
    found = np.stack([image[y : y + size, x : x + size] for image, (y, x) in zip(padded, moves.tolist(), strict=True)])
    mirrored = generator.random(len(images)) < 0.5
    found[mirrored] = found[mirrored, :, ::-1]
    return found
