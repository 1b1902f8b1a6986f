"""`torch.compile(fullgraph=True)` of a model with a layer: the same loss and gradients, and no graph break.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.softmax import GeneralizedSoftmax

# torch's own, where it traces a function with a backward pass.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

N, V, D = 12, 300, 8
LAYERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({"kernels": "lin", "bias": True}, {"reduction": "mean"}),
    "kernel": ({"kernels": "hpb", "label_smoothing": 0.1, "softcap": 5.0}, {"weight": True}),
    "mixture": (
        {
            "kernels": [{"name": "rbf", "learnable": True}, "pow"],
            "untied": 2,
            "variance_penalty": 0.1,
            "balance_penalty": 0.5,
        },
        {"z_loss": 0.1},
    ),
    "directions": ({"kernels": [{"name": "vmf", "learnable": True}, "cos"], "bias": True}, {}),
    "margin": ({"kernels": [{"name": "cos", "learnable": True}], "angular_margin": 0.4}, {"cosine_margin": 0.1}),
    "entmax": ({"kernels": "pow", "alpha": 1.5}, {}),
    "each": ({"kernels": "log", "sparse_k": 1}, {"reduction": "none", "temperature": 1.5}),
}


class Model(nn.Module):
    def __init__(self, options: dict[str, Any], arguments: dict[str, Any]) -> None:
        super().__init__()
        self.body, self.head, self.arguments = nn.Linear(D, D), GeneralizedSoftmax(V, D, **options), arguments

    def forward(self, inputs: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        return self.head(torch.tanh(self.body(inputs)), target, weight=weight, **self.arguments)  # type: ignore[no-any-return]


def _losses_and_gradients(call: Any, model: Model, weight: Tensor | None) -> list[Tensor]:
    inputs, target = torch.randn(N, D, generator=torch.Generator().manual_seed(2)), torch.arange(N)
    target[3] = -100
    losses = call(inputs, target, weight)
    factor = torch.linspace(1, 2, losses.numel()).view(losses.shape)
    return [losses, *torch.autograd.grad((losses * factor).sum(), list(model.parameters()))]


@pytest.mark.parametrize("backend", ["aot_eager"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_compiled_model_has_one_graph_and_the_same_gradients(name: str, backend: str) -> None:
    torch.manual_seed(0)
    options, arguments = LAYERS[name]
    weight = torch.rand(V) if "weight" in arguments else None
    model = Model(options, {key: value for key, value in arguments.items() if key != "weight"})
    expected = _losses_and_gradients(model, model, weight)
    torch.compiler.reset()
    found = _losses_and_gradients(torch.compile(model, fullgraph=True, backend=backend), model, weight)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kernels", ["lin", "pow", "lin, wav"])
def test_a_compiled_head_gives_the_distribution(kernels: str) -> None:
    torch.manual_seed(0)
    head, hidden = GeneralizedSoftmax(V, D, kernels), torch.randn(N, D)
    torch.compiler.reset()
    found = torch.compile(head, fullgraph=True, backend="aot_eager")(hidden)
    torch.testing.assert_close(found, head(hidden))


def test_under_autocast_and_with_a_frozen_body() -> None:
    torch.manual_seed(0)
    head, hidden = GeneralizedSoftmax(V, D, "pow"), torch.randn(N, D)
    torch.compiler.reset()
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    results = []
    for call in (head, compiled):
        with torch.autocast("cpu", torch.bfloat16):
            loss = call(hidden, torch.arange(N))
        results.append([loss, *torch.autograd.grad(loss, list(head.parameters()))])
    torch.testing.assert_close(results[1], results[0])
    head.requires_grad_(False)
    assert not compiled(hidden, torch.arange(N)).requires_grad
