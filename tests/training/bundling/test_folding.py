"""Tests of the folded output layer: it computes what the layer computes, from less."""

import itertools
from typing import Any

import pytest
import torch

from training.bundling.folding import FoldedSoftmax
from training.softmax import KERNELS, GeneralizedSoftmax

V, D = 30, 8


def _pair(kernels: str, **options: object) -> tuple[GeneralizedSoftmax, FoldedSoftmax]:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, kernels, **options).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer, FoldedSoftmax(layer)


@torch.no_grad()
@pytest.mark.parametrize(
    ("kernels", "options"),
    [
        *itertools.product(
            [*KERNELS, "lin,log", "2*pow,ssg", "mixbig"],
            [{}, {"untied": "full"}, {"untied": 2}, {"sparse_k": 4}, {"bias": True}],
        ),
        *((name, {"alpha": 1.5}) for name in KERNELS),
    ],
    ids=str,
)
def test_folded_log_probabilities_equal_the_layers(kernels: str, options: dict[str, object]) -> None:
    layer, folded = _pair(kernels, **options)
    hidden, target = torch.randn(5, D, dtype=torch.float64), torch.tensor([0, 3, 29, 7, 7])
    torch.testing.assert_close(folded.log_prob(hidden), layer.log_prob(hidden), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        folded.target_log_prob(hidden, target), layer.target_log_prob(hidden, target), rtol=1e-9, atol=1e-9
    )
    torch.testing.assert_close(folded.mixture_weights(hidden), layer.mixture_weights(hidden))


@torch.no_grad()
@pytest.mark.parametrize(
    ("kernels", "options"),
    [*itertools.product(["lin", "pow", "2*lin", "lin,log,pow"], [{}, {"sparse_k": 4}, {"bias": True}])],
    ids=str,
)
@pytest.mark.parametrize("k", [1, 10, V])
def test_the_best_classes_are_those_of_all_log_probabilities(kernels: str, options: dict[str, object], k: int) -> None:
    layer, folded = _pair(kernels, **options)
    hidden = torch.randn(50, D, dtype=torch.float64)
    values, classes = folded.top_k(hidden, torch.tensor(k))
    expected = layer.log_prob(hidden).topk(k)
    torch.testing.assert_close(values, expected.values, rtol=1e-9, atol=1e-9)
    found = values > -torch.inf
    assert torch.equal(classes[found], expected.indices[found])


@torch.no_grad()
def test_classes_of_a_mixture_are_ranked_though_their_probabilities_are_0_in_float32() -> None:
    layer, _ = _pair("2*lin")
    layer.weight.mul_(100)
    folded, hidden = FoldedSoftmax(layer.float()), torch.randn(20, D)
    values, classes = folded.top_k(hidden, torch.tensor(10))
    assert (values < -150).any()
    exact = layer.double().log_prob(hidden.double())
    torch.testing.assert_close(values.double(), exact.gather(1, classes), rtol=1e-5, atol=1e-3)
    likely = exact.topk(10).values > -60
    assert torch.equal(classes[likely], exact.topk(10).indices[likely])
    assert (values.diff() <= 0).all()


@torch.no_grad()
def test_a_class_that_the_bias_excludes_is_ranked_last() -> None:
    layer, folded = _pair("lin,log", bias=True)
    assert layer.bias is not None
    layer.bias[3] = -torch.inf
    values, classes = folded.top_k(torch.randn(5, D, dtype=torch.float64), torch.tensor(V))
    assert (classes[:, -1] == 3).all()
    assert (values[:, -1] == -torch.inf).all()
    assert values[:, :-1].isfinite().all()


@torch.no_grad()
def test_pow_with_p_2_is_an_affine_layer() -> None:
    layer, folded = _pair("pow")
    hidden = torch.randn(5, D, dtype=torch.float64)
    expected = 2 * hidden @ layer.weight.t() - (layer.weight**2).sum(-1)
    torch.testing.assert_close(folded.scores(hidden)[0], expected)


@torch.no_grad()
@pytest.mark.parametrize("untied", [None, 2])
@pytest.mark.parametrize(("kernels", "rows"), [("lin,log", 2), ("2*mog", 8), ("mixbig", 12)])
def test_components_share_one_matrix_product_unless_untied_in_full(
    kernels: str, rows: int, untied: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folded = _pair(kernels, untied=untied)
    calls: list[int] = []

    def counting(vectors: list[torch.Tensor], weight: torch.Tensor) -> list[torch.Tensor]:
        calls.append(len(vectors))
        return [vector @ weight.t() for vector in vectors]

    monkeypatch.setattr("training.bundling.folding._shared_products", counting)
    folded.scores(torch.randn(1, D, dtype=torch.float64))
    assert calls == [rows]


@torch.no_grad()
def test_low_rank_corrections_are_stored_as_such() -> None:
    """In addition to per-class statistics, nothing of the size of the projection matrix is added."""
    layer, folded = _pair("lin,log,pow", untied=2)
    own = {id(parameter) for parameter in layer.parameters()}
    assert all(parameter.ndim == 1 for parameter in folded.parameters() if id(parameter) not in own)


@pytest.mark.parametrize("options", [{}, {"sparse_k": 3}, {"bias": True}, {"softcap": 2.0}], ids=str)
@pytest.mark.parametrize("kernels", ["lin", "rbf"])
def test_the_normalizer_is_scores_less_log_probabilities(kernels: str, options: dict[str, Any]) -> None:
    layer = GeneralizedSoftmax(9, 4, kernels, **options)
    folded, hidden = FoldedSoftmax(layer), torch.randn(5, 4)
    values, classes, normalizers = folded.top_k_with_normalizer(hidden, torch.tensor(3))
    assert folded.has_normalizer
    torch.testing.assert_close((values, classes), folded.top_k(hidden, torch.tensor(3)))
    scores = folded.scores(hidden)[0].gather(1, classes)
    torch.testing.assert_close(values + normalizers[:, None], scores)


@pytest.mark.parametrize("layer", [GeneralizedSoftmax(9, 4, "lin, log"), GeneralizedSoftmax(9, 4, "lin", alpha=1.5)])
def test_mixtures_and_entmax_have_no_normalizer(layer: GeneralizedSoftmax) -> None:
    assert not FoldedSoftmax(layer).has_normalizer
