"""Tests of batches made in worker processes: they are those of the training process."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from training.data.batching import Batch, ExampleBatch, RedrawnBatches, SentenceBatches, StreamBatches
from training.data.image_batching import ImageBatches
from training.data.loading import load
from training.data.text_batching import TextBatches

CPU = torch.device("cpu")
SENTENCES = [[number % 7, *range(number % 5)] for number in range(23)]


def _batches(name: str) -> Any:
    match name:
        case "sentences":
            return SentenceBatches(SENTENCES, end_id=9, batch_tokens=8, seed=1)
        case "texts":
            return TextBatches(SENTENCES, [[0]] * len(SENTENCES), batch_tokens=8, seed=1)
        case "redrawn":
            return RedrawnBatches(lambda epoch: SentenceBatches(SENTENCES[epoch:], end_id=9, batch_tokens=8, seed=1))
        case "images":
            images = np.random.default_rng(0).integers(256, size=(11, 8, 8, 3), dtype=np.uint8)
            return ImageBatches(images, np.arange(11), batch_images=2, seed=1, augment=True)
        case _:
            return StreamBatches(SENTENCES, end_id=9, num_streams=2, steps=3)


def _numbers(batches: Iterator[Any]) -> list[list[Any]]:
    return [
        [getattr(batch, name).tolist() for name in ("inputs", "tokens", "images", "targets") if hasattr(batch, name)]
        for batch in batches
    ]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["sentences", "texts", "redrawn", "images", "streams"])
def test_batches_are_those_of_the_epoch(name: str, workers: int) -> None:
    batches = _batches(name)
    expected = _numbers(batches.epoch(1))
    state = torch.get_rng_state()
    found = _numbers(load(batches, 1, first=0, workers=workers, device=CPU))
    assert found == expected
    assert len(found) > 4
    assert _numbers(load(batches, 1, first=3, workers=workers, device=CPU)) == expected[3:]
    assert list(load(batches, 1, first=len(found), workers=workers, device=CPU)) == []
    assert torch.equal(torch.get_rng_state(), state)


def test_batches_before_the_first_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, made = _batches("texts"), []
    collate = TextBatches.collate
    monkeypatch.setattr(TextBatches, "collate", lambda self, indices: made.append(1) or collate(self, indices))
    list(load(batches, 0, first=3, workers=0, device=CPU))
    assert len(made) == len(batches) - 3


def test_all_tensors_of_a_batch_move() -> None:
    batch = Batch(torch.ones(2, 3), torch.zeros(2, 3), continues=True).to(torch.device("meta"))
    assert (batch.inputs.device.type, batch.targets.device.type, batch.continues) == ("meta", "meta", True)
    (first, *_) = _batches("texts").epoch(0)
    assert isinstance(first, ExampleBatch)
    assert {getattr(first.to(torch.device("meta")), name).device.type for name in ("tokens", "targets", "indices")} == {
        "meta"
    }
