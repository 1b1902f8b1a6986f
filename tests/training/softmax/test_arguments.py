"""Arguments that do not suit a layer are refused with the reason, instead of computing something else."""

import pytest
import torch

from training.softmax import KERNELS, GeneralizedSoftmax, build_kernel, sparse_softmax_cross_entropy

OPERATIONS = {
    "loss": lambda layer, hidden: layer.loss(hidden, torch.zeros(hidden.shape[:-1], dtype=torch.long)),
    "target": lambda layer, hidden: layer.target_log_prob(hidden, torch.zeros(hidden.shape[:-1], dtype=torch.long)),
    "log_prob": lambda layer, hidden: layer.log_prob(hidden),
    "forward": lambda layer, hidden: layer(hidden),
    "mixture_weights": lambda layer, hidden: layer.mixture_weights(hidden),
    "entropy": lambda layer, hidden: layer.entropy(hidden),
    "top_k": lambda layer, hidden: layer.top_k(hidden, 3),
    "sample": lambda layer, hidden: layer.sample(hidden),
    "scores": lambda layer, hidden: layer.scores(hidden),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kernels", [*KERNELS, "lin, pow"])
@pytest.mark.parametrize("size", [4, 10])
def test_another_hidden_size_is_refused_with_both_sizes(kernels: str, operation: str, size: int) -> None:
    layer = GeneralizedSoftmax(50, 8, kernels)
    with pytest.raises(ValueError, match=rf"\[\.\.\., 8\].*\[50, 8\].*\[2, {size}\]"):
        OPERATIONS[operation](layer, torch.ones(2, size))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_refuses_vectors_of_another_size(name: str) -> None:
    with pytest.raises(ValueError, match=r"\[50, 8\].*\[2, 12\]"):
        build_kernel(name)(torch.ones(50, 8), torch.ones(2, 12))


@pytest.mark.parametrize("kernels", ["lin", "pow", "lin, pow"])
def test_a_weight_tied_to_a_table_of_another_size_is_refused(kernels: str) -> None:
    layer = GeneralizedSoftmax(50, 8, kernels)
    layer.weight = torch.nn.Embedding(50, 4).weight
    for size in (4, 8):
        with pytest.raises(ValueError, match=r"\[50, 4\].* 8"):
            layer.loss(torch.ones(1, size), torch.tensor([0]))


@pytest.mark.parametrize("kernels", ["lin", "log", "lin, pow"])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
def test_another_type_of_numbers_is_refused_with_both_types(kernels: str, kind: torch.dtype) -> None:
    layer, hidden = GeneralizedSoftmax(50, 8, kernels), torch.ones(2, 8, dtype=kind)
    for operation in (OPERATIONS["loss"], OPERATIONS["log_prob"]):
        with pytest.raises(ValueError, match=rf"{kind}.*torch\.float32.*autocast"):
            operation(layer, hidden)  # type: ignore[no-untyped-call]


def test_autocast_takes_hidden_states_in_its_own_type() -> None:
    layer, hidden = GeneralizedSoftmax(50, 8, "lin, pow"), torch.ones(2, 8, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.loss(hidden, torch.tensor([0, 1])).isfinite()


@pytest.mark.parametrize("kind", [torch.int8, torch.int16, torch.int32, torch.uint8])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_targets_of_all_integer_types(kind: torch.dtype, reduction: str) -> None:
    layer, hidden, target = GeneralizedSoftmax(50, 8, "lin, pow"), torch.randn(3, 8), torch.tensor([4, 49, 0])
    found = layer.loss(hidden, target.to(kind), reduction=reduction)  # type: ignore[arg-type]
    torch.testing.assert_close(found, layer.loss(hidden, target, reduction=reduction))  # type: ignore[arg-type]
    torch.testing.assert_close(layer.target_log_prob(hidden, target.to(kind)), layer.target_log_prob(hidden, target))
    scores = layer.scores(hidden)[0]
    torch.testing.assert_close(
        sparse_softmax_cross_entropy(scores, target.to(kind), 5), sparse_softmax_cross_entropy(scores, target, 5)
    )


def test_other_targets_are_refused() -> None:
    layer, hidden = GeneralizedSoftmax(50, 8), torch.randn(3, 8)
    with pytest.raises(ValueError, match=r"integers.*torch\.bool"):
        layer.loss(hidden, torch.tensor([True, False, True]))
    with pytest.raises(ValueError, match=r"\[0, 50\), not 4 to 50"):
        layer.loss(hidden, torch.tensor([4, 50, 7]))
    with pytest.raises(ValueError, match=r"\[3, 50\], not \[3, 49\]"):
        layer.loss(hidden, torch.full((3, 49), 1 / 49))


@pytest.mark.parametrize(
    "options",
    [{"label_smoothing": 1.0}, {"z_loss": -1.0}, {"temperature": 0.0}, {"reduction": "average"}],
    ids=str,
)
def test_options_of_a_loss_out_of_range(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        GeneralizedSoftmax(50, 8).loss(torch.ones(1, 8), torch.tensor([0]), **options)  # type: ignore[arg-type]


def test_class_weights_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"\[50\], not \[49\]"):
        GeneralizedSoftmax(50, 8).loss(torch.ones(1, 8), torch.tensor([0]), weight=torch.ones(49))
