"""`kernel_cross_entropy`, the loss of word vectors that belong to another module."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from training.softmax import KERNELS, GeneralizedSoftmax, build_kernel, kernel_cross_entropy

N, V, D = 7, 20, 6


@pytest.mark.parametrize("kernel", [*KERNELS, {"name": "rbf", "gamma": 0.7}], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_it_is_the_loss_of_a_layer(kernel: Any, reduction: Any) -> None:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, [kernel], bias=True, softcap=4.0, sparse_k=9).double()
    hidden, target = torch.randn(N, D, dtype=torch.float64, requires_grad=True), torch.arange(N)
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": 0.1, "z_loss": 0.01}
    found = kernel_cross_entropy(
        hidden, layer.weight, target, kernel=kernel, bias=layer.bias, softcap=4.0, sparse_k=9, **options
    )
    expected = layer.loss(hidden, target, **options)
    torch.testing.assert_close(found, expected)
    inputs = [hidden, *layer.parameters()]
    torch.testing.assert_close(*(torch.autograd.grad(value.sum(), inputs) for value in (found, expected)))


def test_it_is_linear_cross_entropy() -> None:
    torch.manual_seed(0)
    hidden, table, weight = torch.randn(2, N, D), torch.randn(V, D), torch.rand(V)
    target = torch.randint(V, (2, N))
    target[1, 3] = -100
    found = kernel_cross_entropy(hidden, table, target, class_weight=weight)
    expected = functional.linear_cross_entropy(hidden.flatten(0, 1), table, target.flatten(), weight=weight)
    torch.testing.assert_close(found, expected)


def test_the_weight_may_be_computed_and_a_kernel_learnt() -> None:
    torch.manual_seed(0)
    kernel, table = build_kernel("rbf", learnable=True, hidden_size=D), torch.randn(V, D, requires_grad=True)
    hidden, target = torch.randn(N, D), torch.arange(N)
    loss = kernel_cross_entropy(hidden, torch.tanh(table), target, kernel=kernel)
    found = torch.autograd.grad(loss, [table, *kernel.parameters()])
    plain = functional.cross_entropy(kernel(torch.tanh(table), hidden), target)
    torch.testing.assert_close(found, torch.autograd.grad(plain, [table, *kernel.parameters()]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "2*lin"}, "single"),
        ({"kernel": "nothing"}, "known kernels"),
        ({"weight": torch.ones(V)}, r"\[V, d\]"),
        ({"weight": torch.ones(V, D + 1)}, r"\[\.\.\., 7\]"),
        ({"kernel": {"name": "mog", "num_gaussians": 4}}, "num_gaussians"),
        ({"kernel": build_kernel("mog", num_gaussians=4)}, "num_gaussians"),
    ],
    ids=str,
)
def test_what_does_not_fit(arguments: dict[str, Any], message: str) -> None:
    given = {"hidden": torch.ones(N, D), "weight": torch.ones(V, D), "target": torch.arange(N), **arguments}
    with pytest.raises(ValueError, match=message):
        kernel_cross_entropy(**given)
