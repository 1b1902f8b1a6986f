"""Tests of the folded output layer: it computes what the layer computes, from less."""

import itertools

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
