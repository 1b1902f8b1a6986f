"""Tests of the k best classes as ONNX graphs compute them: the same as those of all log-probabilities."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from training.bundling.folding import FoldedSoftmax
from training.bundling.graphs import ExportGraph, contract
from training.bundling.onnx import to_onnx
from training.softmax import GeneralizedSoftmax

V, D = 300, 8


class _Best(nn.Module):
    def __init__(self, layer: GeneralizedSoftmax) -> None:
        super().__init__()
        self.output_layer = FoldedSoftmax(layer)

    def forward(self, hidden: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.output_layer.top_k(hidden, k)


@pytest.mark.parametrize(
    "options",
    [{"kernels": "lin"}, {"kernels": "lin,pow"}, {"kernels": "lin", "sparse_k": 5}, {"kernels": "lin", "alpha": 1.5}],
    ids=str,
)
def test_the_best_classes_of_a_graph(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, **options).requires_grad_(False).eval()
    graph = contract(
        {"hidden": ("float32", ("batch", D)), "k": ("int64", ())},
        {"log_probabilities": ("float32", ("batch", "k")), "classes": ("int64", ("batch", "k"))},
    )
    model = to_onnx(ExportGraph(_Best(layer), graph, (torch.randn(3, D), torch.tensor(2))))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count, k in ((1, 1), (5, 10), (2, V)):
        hidden = 3 * torch.randn(count, D)
        values, classes = session.run(None, {"hidden": hidden.numpy(), "k": np.array(k)})
        expected = layer.log_prob(hidden)
        np.testing.assert_allclose(values, expected.topk(k).values, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(values, expected.gather(1, torch.from_numpy(classes)), rtol=1e-4, atol=1e-5)
        assert all(len(set(row)) == k for row in classes.tolist())


def test_equal_scores_of_a_sparse_layer_are_ranked_by_the_lower_class() -> None:
    layer = GeneralizedSoftmax(V, D, "lin", sparse_k=5).requires_grad_(False).eval()
    layer.weight.zero_()
    graph = contract(
        {"hidden": ("float32", ("batch", D)), "k": ("int64", ())},
        {"log_probabilities": ("float32", ("batch", "k")), "classes": ("int64", ("batch", "k"))},
    )
    model = to_onnx(ExportGraph(_Best(layer), graph, (torch.randn(3, D), torch.tensor(2))))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    values, classes = session.run(None, {"hidden": np.ones((1, D), np.float32), "k": np.array(8)})
    assert classes[0, :5].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(np.exp(values[0]), [0.2] * 5 + [0] * 3, atol=1e-6)
