"""Tests of batches of images."""

import numpy as np
import pytest

from training.data.image_batching import ImageBatches, augmented

IMAGES = np.arange(7 * 6 * 6 * 3, dtype=np.uint64).reshape(7, 6, 6, 3).astype(np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9, 2])


def _order(batches: ImageBatches, epoch: int) -> list[int]:
    return [index for batch in batches.epoch(epoch) for index in batch.indices.tolist()]


def test_without_a_seed_images_come_as_they_are() -> None:
    batches = list(ImageBatches(IMAGES, LABELS, batch_images=3, augment=True).epoch(0))
    assert [len(batch.targets) for batch in batches] == [3, 3, 1]
    assert np.array_equal(np.concatenate([batch.images.numpy() for batch in batches]), IMAGES)
    assert [label for batch in batches for (label,) in batch.targets.tolist()] == LABELS.tolist()


def test_no_training_batch_has_one_image() -> None:
    """Batch normalization needs a variance; the image left out is another one in each epoch."""
    batches = ImageBatches(IMAGES, LABELS, batch_images=3, seed=1)
    left_out = {frozenset(range(7)) - frozenset(_order(batches, epoch)) for epoch in range(20)}
    assert len(batches) == 2
    assert len(left_out) > 3
    assert len(ImageBatches(IMAGES, LABELS, batch_images=1, seed=1)) == 7
    assert len(ImageBatches(IMAGES, LABELS, batch_images=3)) == 3


def test_with_a_seed_each_epoch_has_its_order() -> None:
    batches = ImageBatches(IMAGES, LABELS, batch_images=4, seed=1)
    assert len(batches) == 2
    assert sorted(_order(batches, 0)) == sorted(_order(batches, 1)) == list(range(7))
    assert _order(batches, 0) == _order(batches, 0) != _order(batches, 1)


def test_what_is_drawn_for_a_batch_does_not_depend_on_those_before() -> None:
    batches = ImageBatches(IMAGES, LABELS, batch_images=3, seed=1, augment=True)
    first, again = list(batches.epoch(4)), list(batches.epoch(4))
    assert all(np.array_equal(a.images.numpy(), b.images.numpy()) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0].images.numpy(), IMAGES[first[0].indices.numpy()])


def test_images_are_moved_and_mirrored() -> None:
    images = np.repeat(IMAGES[:1], 400, axis=0)
    found = augmented(images, np.random.default_rng(0))
    assert found.shape == images.shape
    padded = np.pad(IMAGES[0], ((4, 4), (4, 4), (0, 0)), mode="reflect")
    crops = [padded[y : y + 6, x : x + 6] for y in range(9) for x in range(9)]
    allowed = {crop.tobytes() for crop in crops} | {np.ascontiguousarray(crop[:, ::-1]).tobytes() for crop in crops}
    seen = {image.tobytes() for image in found}
    assert seen <= allowed
    assert len(seen) > 80


def test_no_image_is_an_error() -> None:
    with pytest.raises(ValueError, match="there is none"):
        ImageBatches(IMAGES[:0], LABELS[:0], batch_images=3)
