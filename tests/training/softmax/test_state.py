"""Parameters of a layer drawn again, saved and loaded: what they are parameters of belongs to the state."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from training.softmax import GeneralizedSoftmax
from training.softmax.mixture import extra_state_for_classes

LAYERS: list[dict[str, Any]] = [
    {"kernels": "lin", "bias": True},
    {"kernels": "ssg, mog, lin", "bias": True},
    {"kernels": [{"name": "rbf", "learnable": True}, {"name": "wav", "learnable": True, "a": 3.0}]},
    {"kernels": "2*lin", "untied": "full"},
    {"kernels": "2*lin", "untied": 2},
]


@pytest.mark.parametrize("options", LAYERS, ids=str)
@pytest.mark.parametrize("how", ["filled", "to_empty", "meta"])
def test_parameters_are_drawn_again_as_at_first(options: dict[str, Any], how: str) -> None:
    torch.manual_seed(1)
    first = GeneralizedSoftmax(20, 8, **options)
    if how == "meta":
        layer = GeneralizedSoftmax(20, 8, **options, device="meta").to_empty(device="cpu")
    else:
        layer = GeneralizedSoftmax(20, 8, **options)
        layer = layer.to_empty(device="cpu") if how == "to_empty" else layer
        for parameter in layer.parameters():
            parameter.data.fill_(1e38)
    torch.manual_seed(1)
    layer.reset_parameters()
    for (name, found), expected in zip(layer.named_parameters(), first.parameters(), strict=True):
        assert torch.equal(found, expected), name


def test_type_and_device_of_new_parameters() -> None:
    layer = GeneralizedSoftmax(20, 8, [{"name": "rbf", "learnable": True}, "lin"], bias=True, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in layer.parameters()} == {torch.bfloat16}
    assert {p.device.type for p in GeneralizedSoftmax(20, 8, "mix2", device="meta").parameters()} == {"meta"}


@pytest.mark.parametrize(
    ("kernels", "others"),
    [("lin", "pow"), ("lin, pow", "pow, lin"), ([{"name": "rbf", "gamma": 1.0}], [{"name": "rbf", "gamma": 2.0}])],
    ids=str,
)
def test_parameters_of_other_kernels_are_refused(kernels: Any, others: Any, tmp_path: Path) -> None:
    save_file(GeneralizedSoftmax(20, 8, kernels).state_dict(), tmp_path / "layer.safetensors")
    state = load_file(tmp_path / "layer.safetensors")
    GeneralizedSoftmax(20, 8, kernels).load_state_dict(state)
    with pytest.raises(ValueError, match="_extra_state") as caught:
        GeneralizedSoftmax(20, 8, others).load_state_dict(state)
    assert "'name': '" in str(caught.value)
    del state["_extra_state"]
    GeneralizedSoftmax(20, 8, others).load_state_dict(state)


def test_the_state_of_other_classes_has_their_default_scale() -> None:
    kernels: list[Any] = ["cos", {"name": "vmf", "scale": 3.0}, {"name": "cos", "learnable": True}, "unigram"]
    layer, more = (GeneralizedSoftmax(count, 8, kernels) for count in (20, 25))
    state = layer.get_extra_state()
    with pytest.raises(ValueError, match="_extra_state"):
        more.set_extra_state(state)
    more.set_extra_state(extra_state_for_classes(state, 20, 25))
    assert torch.equal(extra_state_for_classes(state, 20, 20), state)


def test_states_of_earlier_versions() -> None:
    """They have numbers as hyperparameters, and do not say what kernels they are of."""
    layer = GeneralizedSoftmax(20, 8, [{"name": "rbf", "learnable": True, "gamma": 0.5}])
    state = {"weight": layer.weight.detach().clone(), "kernels.0.raw_gamma": torch.tensor(0.25)}
    model = torch.nn.ModuleDict({"head": layer})
    model.load_state_dict({f"head.{name}": value for name, value in state.items()})
    assert layer.kernels[0].raw_gamma.tolist() == [0.25]  # type: ignore[operator, union-attr]
    with pytest.raises(RuntimeError, match="weight"):
        layer.load_state_dict({"kernels.0.raw_gamma": torch.tensor(0.25)})


def test_all_parameters_have_a_dimension() -> None:
    """`fully_shard` refuses parameters that are single numbers."""
    kernels = [{"name": name, "learnable": True} for name in ("log", "pow", "pol", "rbf", "wav", "cos", "vmf")]
    assert all(parameter.dim() for parameter in GeneralizedSoftmax(20, 8, kernels, bias=True).parameters())


def test_a_call_runs_hooks() -> None:
    layer, hidden, target = GeneralizedSoftmax(20, 8, "mix2"), torch.randn(3, 8), torch.arange(3)
    called = []
    layer.register_forward_hook(lambda module, inputs, output: called.append(output))
    torch.testing.assert_close(layer(hidden), layer.log_prob(hidden))
    torch.testing.assert_close(layer(hidden, target, reduction="mean"), layer.loss(hidden, target, reduction="mean"))
    assert len(called) == 2
