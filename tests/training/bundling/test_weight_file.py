"""Weights of graphs in a file."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from training.bundling.attention import Projections
from training.bundling.graphs import ExportGraph, contract
from training.bundling.onnx import WEIGHTS, save_graphs, to_onnx
from training.bundling.weight_file import WeightFile, array_of
from training.networks.transformer import Attention


@pytest.fixture
def weights(tmp_path: Path) -> WeightFile:
    return WeightFile(tmp_path / "exported")


def test_equal_weights_are_stored_once_and_begin_at_pages(weights: WeightFile) -> None:
    """1,025 floats are 4,100 bytes, so that the next page begins at 8,192."""
    ones, twos = (np.full((5, 205), value, np.float32) for value in (1, 2))
    assert [weights.add(each) for each in (ones, twos, ones.copy(), twos.T)] == [0, 8192, 0, 8192]
    content = weights.path.read_bytes()
    assert content[:4100] == ones.tobytes()
    assert content[8192:] == twos.tobytes()


def test_elements_are_written_in_the_order_of_rows(weights: WeightFile) -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=(3, 2))
    weights.refer(tensor, matrix.T, str(weights.path))
    np.testing.assert_array_equal(array_of(tensor), [[0, 3], [1, 4], [2, 5]])
    assert not tensor.HasField("raw_data")


@pytest.mark.parametrize("array", [np.float16([1.5, -2.0]), np.array(7, np.int64), np.zeros((0, 3), np.float32)])
def test_weights_inside_a_graph_are_read_as_well(array: np.ndarray) -> None:
    np.testing.assert_array_equal(array_of(numpy_helper.from_array(array, "w")), array)


class _Tied(nn.Module):
    """Word vectors that are the output layer too, of products without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(64, 512, generator=torch.Generator().manual_seed(0)))
        self.inner = nn.Linear(512, 8).requires_grad_(False)

    def forward(self, tokens: Tensor) -> tuple[Tensor]:
        vectors = nn.functional.embedding(tokens, self.vectors)
        return ((vectors + self.inner(vectors).sum(1, keepdim=True)) @ self.vectors.t(),)


def test_a_graph_refers_to_the_file_and_computes_the_same(weights: WeightFile, tmp_path: Path) -> None:
    """The tied matrix, 131,072 bytes, is stored once: the product reads it as the table of word vectors is stored."""
    described = contract({"tokens": ("int64", ("count",))}, {"scores": ("float32", ("count", 64))})
    graph = ExportGraph(_Tied(), described, (torch.tensor([3, 1, 2]),))
    model = to_onnx(graph, weights)
    assert all(not tensor.raw_data for tensor in model.graph.initializer if np.prod(tensor.dims) >= 1024)
    assert weights.path.stat().st_size == 131072 + 16384
    save_graphs({"graph": model}, tmp_path)
    assert (tmp_path / WEIGHTS).stat().st_size == 131072 + 16384
    session = onnxruntime.InferenceSession(str(tmp_path / "graph.onnx"), providers=["CPUExecutionProvider"])
    tokens = torch.tensor([5, 9, 63, 0])
    (found,) = session.run(None, {"tokens": tokens.numpy()})
    np.testing.assert_allclose(found, graph.module(tokens)[0].detach(), atol=1e-3)


def test_projections_of_a_graph_are_those_of_the_network() -> None:
    """They take no memory of their own, but for queries that are scaled."""
    attention = Attention(32, 4)
    exported, stored = Projections(attention), attention.key_value.weight
    assert exported.key.weight.data_ptr() == stored.data_ptr()
    assert exported.value.weight.data_ptr() == stored[32:].data_ptr()
    assert exported.query.weight.data_ptr() != attention.query.weight.data_ptr()
    torch.testing.assert_close(exported.query.weight, attention.query.weight * 8**-0.5)
