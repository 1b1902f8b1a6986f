"""Tests of layers whose classes are shared between two processes: loss and gradients are those of one process.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from tests.support.two_processes import in_two_processes
from training.softmax import KERNELS, GeneralizedSoftmax
from training.softmax.parallel import split_classes, vocabulary_parallel_loss, whole_state

CLASSES, SIZE, IGNORED = 11, 8, 3
LEARNT = [{"name": "pol", "learnable": True}, "lin", {"name": "rbf", "learnable": True}]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A layer and the arguments of its loss."""

    layer: Mapping[str, Any]
    loss: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dtype: torch.dtype = torch.float64


MIXTURE = {"kernels": LEARNT, "bias": True, "variance_penalty": 0.1, "balance_penalty": 0.5, "softcap": 20.0}
CASES = {
    **{name: Case(layer={"kernels": name}) for name in KERNELS},
    **{f"{name} in float32": Case(layer={"kernels": name, "bias": True}, dtype=torch.float32) for name in KERNELS},
    "mixture": Case(layer=MIXTURE),
    "mixture in float32": Case(layer=MIXTURE, dtype=torch.float32),
    "mean": Case(layer={"kernels": "lin", "bias": True}, loss={"reduction": "mean"}),
    "mean of a mixture": Case(layer=MIXTURE, loss={"reduction": "mean", "ignore_index": IGNORED, "z_loss": 0.01}),
    "none": Case(layer={"kernels": "lin"}, loss={"reduction": "none", "ignore_index": IGNORED}),
    "none of a mixture": Case(layer=MIXTURE, loss={"reduction": "none", "temperature": 0.7}),
    "all ignored": Case(layer={"kernels": "lin, log"}, loss={"reduction": "mean", "ignore_index": -7}),
    "untied": Case(layer={"kernels": "lin, log, pol", "untied": "full", "bias": True}),
    "learnt scales": Case(layer={"kernels": [{"name": name, "learnable": True} for name in ("cos", "vmf")]}),
    "low-rank": Case(layer={"kernels": "lin, log", "untied": 2}),
    "mixture in bfloat16": Case(layer=MIXTURE, loss={"reduction": "mean"}, dtype=torch.bfloat16),
    "chunks": Case(layer={"kernels": "2*lin", "chunk_scores": 12}),
}


def _layer(case: Case) -> GeneralizedSoftmax:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(CLASSES, SIZE, **case.layer, dtype=case.dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return layer


def _data(case: Case) -> tuple[Tensor, Tensor]:
    """Return hidden states `[5, 4, d]`, and targets `[5, 4]` among which some are ignored."""
    torch.manual_seed(1)
    hidden, target = torch.randn(5, 4, SIZE, dtype=case.dtype), torch.randint(CLASSES, (5, 4))
    ignored = case.loss.get("ignore_index", -100)
    target[1:3, 1] = ignored
    return hidden.requires_grad_(), target.fill_(ignored) if ignored == -7 else target


def _backward(loss: Tensor, hidden: Tensor, layer: nn.Module) -> dict[str, Tensor]:
    (loss * torch.linspace(0.5, 2.0, loss.numel(), dtype=loss.dtype).view(loss.shape)).sum().backward()
    found = {"loss": loss.detach(), "hidden": hidden.grad}
    found.update((name, parameter.grad) for name, parameter in layer.named_parameters())
    return {name: value for name, value in found.items() if value is not None}


def _compute(case: Case) -> dict[str, Tensor]:
    shard, first = split_classes(_layer(case))
    hidden, target = _data(case)
    return _backward(vocabulary_parallel_loss(shard, hidden, target, first_class=first, **case.loss), hidden, shard)


def _error(function: Callable[[], Any]) -> str:
    try:
        function()
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _errors() -> dict[str, str]:
    case = CASES["mixture"]
    shard, first = split_classes(_layer(case))
    hidden, target = _data(case)

    def loss(layer: GeneralizedSoftmax = shard, **changes: Any) -> Tensor:
        arguments = {"hidden": hidden, "target": target, "first_class": first, **changes}
        return vocabulary_parallel_loss(layer, **arguments)

    def differentiate_twice() -> None:
        torch.autograd.grad(loss(), hidden, create_graph=True)

    sparse, smooth, dropout = (
        GeneralizedSoftmax(5, SIZE, dtype=torch.float64, **options)
        for options in ({"sparse_k": 2}, {"label_smoothing": 0.1}, {"component_dropout": 0.1})
    )
    return {
        "out of range": _error(lambda: loss(target=target + CLASSES)),
        "overlap": _error(lambda: loss(first_class=0)),
        "target shape": _error(lambda: loss(target=target[0])),
        "target type": _error(lambda: loss(target=target.double())),
        "hidden shape": _error(lambda: loss(hidden=hidden[..., 1:])),
        "reduction": _error(lambda: loss(reduction="max")),
        "z_loss": _error(lambda: loss(z_loss=-1.0)),
        "temperature": _error(lambda: loss(temperature=0.0)),
        "sparse": _error(lambda: loss(sparse)),
        "smooth": _error(lambda: loss(smooth)),
        "dropout": _error(lambda: loss(dropout)),
        "few classes": _error(lambda: split_classes(GeneralizedSoftmax(1, SIZE))),
        "second derivatives": _error(differentiate_twice),
    }


def _train(layer: GeneralizedSoftmax, loss: Callable[[Tensor, Tensor], Tensor], steps: int = 4) -> None:
    torch.manual_seed(2)
    body = nn.Linear(SIZE, SIZE, dtype=torch.float64)
    hidden, target = _data(CASES["mixture"])
    optimizer = torch.optim.SGD([*body.parameters(), *layer.parameters()], lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(torch.tanh(body(hidden.detach())), target).backward()
        optimizer.step()


def _groups_of_one() -> dict[str, Any]:
    """Return what each process computes alone, as the only one of its group."""
    group = [distributed.new_group([rank]) for rank in range(2)][distributed.get_rank()]
    case = CASES["mixture"]
    layer, (hidden, target) = _layer(case), _data(case)
    shard, first = split_classes(layer, process_group=group)
    scale = 1.0 + distributed.get_rank()  # processes that have nothing to do with each other
    loss = vocabulary_parallel_loss(shard, scale * hidden, target, first_class=first, process_group=group)
    return {
        **_backward(loss, hidden, shard),
        "state": whole_state(shard, first_class=first, process_group=group),
    }


def work() -> dict[str, Any]:
    """Return the numbers to compare, in one of two processes."""
    case = CASES["mixture"]
    shard, first = split_classes(_layer(case))
    hidden, target = _data(case)
    with torch.no_grad():
        plain = vocabulary_parallel_loss(shard, hidden, target, first_class=first)
    fixed = vocabulary_parallel_loss(shard, hidden.detach(), target, first_class=first)
    _train(shard, lambda *batch: vocabulary_parallel_loss(shard, *batch, first_class=first, reduction="mean"))
    return {
        "cases": {name: _compute(each) for name, each in CASES.items()},
        "errors": _errors(),
        "first": first,
        "alone": _groups_of_one(),
        "plain": [plain, fixed.detach()],
        "state": whole_state(shard, first_class=first),
    }


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return in_two_processes(work)


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_those_of_one_process(name: str, ranks: list[dict[str, Any]]) -> None:
    case = CASES[name]
    layer, (hidden, target) = _layer(case), _data(case)
    expected = _backward(layer.loss(hidden, target, **case.loss), hidden, layer)
    first, second = (rank["cases"][name] for rank in ranks)
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 0.02}[case.dtype]
    assert first.keys() == second.keys() == expected.keys()
    for key, value in expected.items():
        axis = {"weight": 0, "bias": 0, "other_weights": 1, "left": 1}.get(key)
        if axis is None:
            torch.testing.assert_close(first[key], second[key], atol=0, rtol=0)
        found = first[key] if axis is None else torch.cat([first[key], second[key]], dim=axis)
        torch.testing.assert_close(found, value, atol=tolerance, rtol=tolerance)


def test_each_process_has_a_range_of_classes(ranks: list[dict[str, Any]]) -> None:
    assert [rank["first"] for rank in ranks] == [0, 6]


def test_a_group_may_be_a_part_of_all_processes(ranks: list[dict[str, Any]]) -> None:
    for scale, rank in enumerate(ranks, 1):
        layer, (hidden, target) = _layer(CASES["mixture"]), _data(CASES["mixture"])
        found = rank["alone"]
        torch.testing.assert_close(found.pop("state"), dict(layer.state_dict()))
        torch.testing.assert_close(found, _backward(layer.loss(scale * hidden, target), hidden, layer))


def test_training_gives_the_layer_of_one_process(ranks: list[dict[str, Any]]) -> None:
    layer = _layer(CASES["mixture"])
    _train(layer, lambda *batch: layer.loss(*batch, reduction="mean"))
    trained = GeneralizedSoftmax(CLASSES, SIZE, **MIXTURE, dtype=torch.float64)
    for rank in ranks:
        trained.load_state_dict(rank["state"])
        torch.testing.assert_close(dict(trained.named_parameters()), dict(layer.named_parameters()), atol=1e-10, rtol=0)


def test_losses_without_gradients(ranks: list[dict[str, Any]]) -> None:
    layer, (hidden, target) = _layer(CASES["mixture"]), _data(CASES["mixture"])
    for rank in ranks:
        for loss in rank["plain"]:
            torch.testing.assert_close(loss, layer.loss(hidden, target).detach())


def test_errors_are_raised_in_both_processes(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        errors = rank["errors"]
        assert errors.pop("second derivatives").startswith("RuntimeError")
        assert {name for name, error in errors.items() if not error.startswith("ValueError")} == set()
        assert "sparse_k" in errors["sparse"]
        assert "label_smoothing" in errors["smooth"]
        assert "component_dropout" in errors["dropout"]
        assert "target" in errors["out of range"]
