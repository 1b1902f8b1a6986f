"""Tests of checkpoint averaging."""

import pytest
import torch
from torch import nn

from training.run.snapshots import Snapshots


class _Model(nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.register_buffer("count", torch.tensor(0))

    def set(self, value: float) -> None:
        with torch.no_grad():
            self.weight.copy_(torch.tensor([value, -value]))
            self.count.fill_(int(value))


def _taken(snapshots: Snapshots, model: _Model, *values: float) -> None:
    for value in values:
        model.set(value)
        snapshots.take(model)


def test_the_mean_is_of_the_last_ones() -> None:
    """Of 1, 2, 6, 7 the last three: 5. What counts is not averaged but taken from the last."""
    snapshots, model = Snapshots(3), _Model()
    _taken(snapshots, model, 1, 2, 6, 7)
    model.set(100)
    with snapshots.averaged(model):
        assert model.weight.tolist() == [5, -5]
        assert model.count.item() == 7
    assert model.weight.tolist() == [100, -100]
    assert model.count.item() == 100


def test_fewer_than_asked_for_are_averaged_as_they_are() -> None:
    snapshots, model = Snapshots(9), _Model()
    _taken(snapshots, model, 1, 2)
    with snapshots.averaged(model):
        assert model.weight.tolist() == [1.5, -1.5]


def test_without_snapshots_the_model_is_its_own_mean() -> None:
    model = _Model()
    model.set(3)
    with Snapshots(4).averaged(model):
        assert model.weight.tolist() == [3, -3]
    assert model.weight.tolist() == [3, -3]


def test_own_weights_come_back_after_an_error() -> None:
    snapshots, model = Snapshots(2), _Model()
    _taken(snapshots, model, 1)
    model.set(8)
    with pytest.raises(RuntimeError, match="halfway"), snapshots.averaged(model):
        raise RuntimeError("halfway")
    assert model.weight.tolist() == [8, -8]


def test_training_goes_on_without_changing_a_snapshot() -> None:
    snapshots, model = Snapshots(2), _Model()
    _taken(snapshots, model, 1)
    model.set(5)
    assert [weights["weight"].tolist() for weights in snapshots.state()] == [[1, -1]]


def test_snapshots_survive_a_round_trip() -> None:
    """Earlier snapshots are replaced, oldest first: 1, 3, 5, then 3, 5, 7."""
    snapshots, other, model = Snapshots(3), Snapshots(3), _Model()
    _taken(snapshots, model, 1, 3)
    _taken(other, model, 50)
    other.load(snapshots.state())
    for value, mean in ((5, 3), (7, 5)):
        _taken(other, model, value)
        with other.averaged(model):
            assert model.weight.tolist() == [mean, -mean]
