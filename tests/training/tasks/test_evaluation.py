"""Tests of evaluation in batches."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from training.data.text_batching import TextBatch, TextBatches
from training.run.distributed import Group
from training.tasks.evaluation import evaluate_batches, evaluate_examples

TEXTS = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 9]]


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5))


@pytest.fixture
def batches() -> TextBatches:
    return TextBatches(TEXTS, [[0]] * 4, batch_tokens=4)


def test_results_are_in_the_order_of_the_split(model: nn.Module, batches: TextBatches) -> None:
    assert len(batches) > 1
    assert [batch.indices.tolist() for batch in batches.epoch(0)] != [[0, 1, 2, 3]]
    found = evaluate_examples(model, batches, lambda batch: batch.tokens[:, 0].tolist())
    assert found == [1, 4, 5, 7]


def test_dropout_and_gradients_are_off_while_computing(model: nn.Module, batches: TextBatches) -> None:
    def compute(batch: TextBatch) -> Tensor:
        assert not model.training
        outputs: Tensor = model(torch.ones(len(batch.tokens), 1))
        return outputs

    model.train()
    turns = list(evaluate_batches(model, batches, compute))
    assert model.training
    assert not any(outputs.requires_grad for _, outputs in turns)
    values = torch.cat([outputs for _, outputs in turns])
    assert torch.equal(values, values[:1].expand(4, 1))


def test_a_model_trains_on_after_an_error(model: nn.Module, batches: TextBatches) -> None:
    def compute(batch: TextBatch) -> Iterator[int]:
        raise FloatingPointError

    with pytest.raises(FloatingPointError):
        evaluate_examples(model, batches, compute)
    assert model.training


def test_a_batch_needs_a_result_for_each_example(model: nn.Module, batches: TextBatches) -> None:
    with pytest.raises(ValueError, match="zip"):
        evaluate_examples(model, batches, lambda batch: [1])


def test_the_processes_of_a_group_share_the_batches(
    model: nn.Module, batches: TextBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[dict[int, int]] = []
    monkeypatch.setattr(Group, "gathered", lambda group, own: shares.append(own) or shares)
    found = [
        evaluate_examples(model, batches, lambda batch: batch.tokens[:, 0].tolist(), Group(rank, 2)) for rank in (0, 1)
    ]
    assert all(shares)
    assert not shares[0].keys() & shares[1].keys()
    assert found[1] == [1, 4, 5, 7]
