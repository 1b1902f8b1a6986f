"""Tests of activations as sums of two numbers of 8 bits."""

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from training.bundling.cuda_kernels import without_kernel
from training.bundling.split_activations import ActivationSplitter

Array = NDArray[np.float32]


def _split(x: Array, block: int) -> tuple[Array, Array]:
    splitter = ActivationSplitter()
    nodes = list(splitter.nodes("x", x.shape[-1], block))
    assert not list(splitter.nodes("x", x.shape[-1], block)), "once is enough"
    parts = splitter.parts("x")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", *parts)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], list(splitter.weights.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    assert not without_kernel(model), "GPUs compute the parts"
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    high, low = session.run(list(parts), {"x": x})
    return np.asarray(high), np.asarray(low)


def test_a_block_by_hand() -> None:
    """The largest number is 127 steps of 0.5; the other block has zeros only."""
    x = np.array([[63.5, 0.7, -20.1, 0.2, 0.0, 0.0, 0.0, 0.0]], np.float32)
    high, low = _split(x, 4)
    np.testing.assert_allclose(high, [[63.5, 0.5, -20, 0, 0, 0, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(low, [[0, 0.2, -0.1, 0.2, 0, 0, 0, 0]], atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 64), (2, 3, 70), (0, 64)])
def test_the_sum_is_the_activation(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    high, low = _split(x, 32)
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -shape[-1] % 32)])
    np.testing.assert_allclose(high + low, padded, rtol=1e-6, atol=1e-7)
    blocks, steps = padded.reshape(-1, 32), np.abs(padded.reshape(-1, 32)).max(-1, keepdims=True) / 127
    np.testing.assert_allclose(high.reshape(blocks.shape), np.round(blocks / steps) * steps, rtol=1e-5)
    assert (np.abs(low.reshape(blocks.shape)) <= 0.5001 * steps).all()
