"""Tests of DDP and FSDP2 in two processes: loss and updates are those of one process that has the whole batch.

Shapes: `B` texts, `T` tokens, `V` classes, `d` hidden size.
"""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.optim import SGD

from tests.support.two_processes import in_two_processes
from training.softmax import GeneralizedSoftmax

LEARNT = ["lin", {"name": "pow", "learnable": True}, {"name": "rbf", "learnable": True}]
HEADS: Mapping[str, Mapping[str, Any]] = {
    "single": {"kernels": "lin"},
    "distance": {"kernels": "log", "bias": True, "softcap": 20.0},
    "mixture": {"kernels": LEARNT, "bias": True, "variance_penalty": 0.1},
    "smoothing": {"kernels": "2*lin", "label_smoothing": 0.1},
    "untied": {"kernels": "lin, rbf", "untied": "full"},
    "low-rank": {"kernels": "lin, rbf", "untied": 2},
    "sparse": {"kernels": "lin", "sparse_k": 3},
    "gaussians": {"kernels": "ssg, mog"},
}
"""With 11 classes and learnt hyperparameters of one number, which two processes cannot share evenly."""
WRAPPINGS = ("DDP", "FSDP2", "FSDP2 of the root alone")
STEPS = 3


class Model(nn.Module):
    """A model whose last layer computes the loss, with targets as an argument of the call."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(6, 8)
        self.head = GeneralizedSoftmax(11, 8, **head)

    def forward(self, inputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss: `[B, T, 6]`, `[B, T]` -> scalar."""
        loss: Tensor = self.head(torch.tanh(self.body(inputs)), target, reduction="mean")
        return loss


def _data() -> tuple[Tensor, Tensor]:
    """Return inputs `[4, 3, 6]` and targets `[4, 3]`."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 3, 6, generator=generator), torch.randint(11, (4, 3), generator=generator)


def _train(model: nn.Module, inputs: Tensor, target: Tensor) -> list[Tensor]:
    optimizer, losses = SGD(model.parameters(), lr=0.5), []
    for _ in range(STEPS):
        loss = model(inputs, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def _shares() -> tuple[Tensor, Tensor]:
    rank = distributed.get_rank()
    inputs, target = _data()
    return inputs[rank::2], target[rank::2]


def _parameters(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).detach()
        for name, value in model.named_parameters()
    }


def _wrapped(model: Model, wrapping: str) -> nn.Module:
    if wrapping == "DDP":
        return nn.parallel.DistributedDataParallel(model)
    if wrapping == "FSDP2":
        fully_shard(model.head)
    fully_shard(model)
    return model


def train_all() -> dict[str, tuple[list[Tensor], dict[str, Tensor]]]:
    """Return losses of this process's share of the batch, and parameters, by wrapping and head."""
    found = {}
    for wrapping in WRAPPINGS:
        for name, head in HEADS.items():
            model = Model(head)
            losses = _train(_wrapped(model, wrapping), *_shares())
            found[f"{wrapping}: {name}"] = (losses, _parameters(model))
    return found


def use_sharded_models() -> dict[str, Any]:
    """Return what else is done with a model of `fully_shard`."""
    model = Model(HEADS["mixture"])
    _wrapped(model, "FSDP2")
    inputs, target = _shares()
    _train(model, inputs, target)
    register_fsdp_forward_method(model.head, "loss")
    hidden = torch.tanh(torch.ones(2, 6) @ torch.ones(6, 8))
    with torch.no_grad():
        log_prob = model.head(hidden)
        loss = model.head.loss(hidden, torch.tensor([1, 2]))
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))

    half = Model(HEADS["mixture"])
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(half.head, mp_policy=policy)
    fully_shard(half, mp_policy=policy)

    gaussians = Model(HEADS["gaussians"])
    fully_shard(gaussians.head)
    gaussians.head.reset_parameters()
    return {
        "log_prob": log_prob,
        "loss": loss,
        "state": dict(state),
        "half": _train(half, inputs, target),
        "gaussians": _parameters(gaussians.head)["weight"],
    }


def work() -> tuple[Any, Any]:
    return train_all(), use_sharded_models()


@pytest.fixture(scope="module")
def two() -> list[Any]:
    return in_two_processes(work)


@pytest.fixture
def trained(two: list[Any]) -> list[Any]:
    return [rank[0] for rank in two]


@pytest.fixture
def used(two: list[Any]) -> list[Any]:
    return [rank[1] for rank in two]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_losses_and_updates_are_those_of_one_process(wrapping: str, head: str, trained: list[Any]) -> None:
    model = Model(HEADS[head])
    losses = _train(model, *_data())
    (first, parameters), (second, others) = (rank[f"{wrapping}: {head}"] for rank in trained)
    assert losses[-1] < losses[0]
    for loss, *shares in zip(losses, first, second, strict=True):
        assert (sum(shares) / 2 - loss).abs() <= 1e-5
    for name, value in _parameters(model).items():
        assert (parameters[name] - value).abs().max() <= 1e-5
        assert torch.equal(parameters[name], others[name])


def test_a_sharded_layer_computes_log_probabilities_and_registered_methods(used: list[Any]) -> None:
    model = Model(HEADS["mixture"])
    model.load_state_dict(used[0]["state"])
    hidden = torch.tanh(torch.ones(2, 6) @ torch.ones(6, 8))
    for rank in used:
        torch.testing.assert_close(rank["log_prob"], model.head.log_prob(hidden).detach())
        torch.testing.assert_close(rank["loss"], model.head.loss(hidden, torch.tensor([1, 2])).detach())


def test_the_whole_state_of_a_sharded_model_is_that_of_a_model(used: list[Any]) -> None:
    model = Model(HEADS["mixture"])
    _train(model, *_data())
    torch.testing.assert_close(used[0]["state"], dict(model.state_dict()), atol=1e-5, rtol=0)


def test_parameters_are_gathered_in_bfloat16_by_a_mixed_precision_policy(used: list[Any]) -> None:
    losses = _train(Model(HEADS["mixture"]), *_data())
    for loss, *shares in zip(losses, *(rank["half"] for rank in used), strict=True):
        assert (sum(shares) / 2 - loss).abs() <= 0.02


def test_parameters_of_sharded_gaussians_are_drawn_again(used: list[Any]) -> None:
    weight = used[0]["gaussians"]
    assert weight[:, -1].eq(0).all()
    assert weight[:, 0].ne(0).all()
