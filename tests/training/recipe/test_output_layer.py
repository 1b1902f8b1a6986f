"""Tests of the recipe's section `output_layer`: valid values, which the layer accepts."""

from typing import Any

import pytest
from pydantic import ValidationError

from training.recipe.output_layer import OutputLayerSettings
from training.softmax import GeneralizedSoftmax


def _wrong(**fields: Any) -> list[tuple[str, str]]:
    """Fields and messages of a section that is refused."""
    with pytest.raises(ValidationError) as caught:
        OutputLayerSettings(**fields)
    return [(".".join(map(str, error["loc"])), error["msg"]) for error in caught.value.errors()]


def test_the_default_is_a_plain_softmax() -> None:
    settings = OutputLayerSettings()
    assert (settings.kernels, settings.untied, settings.sparse_k) == ("lin", None, None)
    assert (settings.label_smoothing, settings.variance_penalty) == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"kernels": "2*lin", "untied": "full"},
        {"kernels": "2*lin", "untied": 3},
        {"kernels": "mix2", "untied": 1, "sparse_k": 5},
        {"sparse_k": 1},
        {"kernels": [{"name": "rbf", "learnable": True}]},
        {"label_smoothing": 0.1},
        {"kernels": "2*cos", "angular_margin": 0.5, "cosine_margin": 0.1},
        {"kernels": "2*lin", "untied": 2, "label_smoothing": 0.5, "variance_penalty": 0.1},
    ],
    ids=str,
)
def test_what_is_accepted_the_layer_takes(fields: dict[str, Any]) -> None:
    content = OutputLayerSettings(**fields).model_dump()
    assert content == OutputLayerSettings(**content).model_dump()
    layer = GeneralizedSoftmax(9, 4, **content)
    for name, value in fields.items():
        assert name == "kernels" or getattr(layer, name) == value


@pytest.mark.parametrize("value", ["half", "none", 0, -2, 1.0, True, [2]], ids=str)
def test_wrong_untied_is_named(value: Any) -> None:
    assert _wrong(kernels="2*lin", untied=value) == [
        ("untied", f'Value error, untied must be null, "full" or a positive rank, not {value!r}')
    ]


@pytest.mark.parametrize("kernels", ["lin", ["log"], [{"name": "pow", "p": 1}]], ids=str)
@pytest.mark.parametrize("untied", ["full", 2])
def test_untying_a_single_kernel_is_refused(kernels: Any, untied: Any) -> None:
    """`GeneralizedSoftmax` ignores it; in a recipe an option without effect is a mistake."""
    ((field, message),) = _wrong(kernels=kernels, untied=untied)
    assert field == "untied"
    assert "no effect with a single kernel" in message


@pytest.mark.parametrize("value", [0, -1, 2.5, 3.0, True, "all"], ids=str)
def test_wrong_sparse_k_is_named(value: Any) -> None:
    assert _wrong(sparse_k=value) == [
        ("sparse_k", f"Value error, sparse_k must be null or a positive integer, not {value!r}")
    ]


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, float("nan"), "some"], ids=str)
def test_wrong_label_smoothing_is_named(value: Any) -> None:
    assert [field for field, _ in _wrong(label_smoothing=value)] == ["label_smoothing"]


@pytest.mark.parametrize("field", ["angular_margin", "cosine_margin"])
def test_margins_need_an_angle(field: str) -> None:
    ((_, message),) = _wrong(kernels="cos, lin", **{field: 0.5})
    assert message == (
        f"Value error, {field}: kernel 'lin' has no angle between hidden states and class vectors; kernel 'cos' has"
    )
    for value in (-0.1, 2, float("nan")):
        assert [name for name, _ in _wrong(kernels="cos", **{field: value})] == [field]


def test_a_wrong_kernel_is_the_only_error() -> None:
    """Whether it can be untied is not known then."""
    assert [field for field, _ in _wrong(kernels="sigmoid", untied=2, sparse_k=2)] == ["kernels"]
