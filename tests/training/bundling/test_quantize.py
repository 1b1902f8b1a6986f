"""Tests of int8 quantization, of weights alone and by known ranges."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from models.text.tokenization import WordTokenizer
from training.bundling.graphs import ExportGraph
from training.bundling.onnx import save_graphs
from training.bundling.quantize import quantize_int8_static, quantize_int8_weights
from training.networks.language_model import RecurrentLanguageModel
from training.run.directory import RunDirectory
from training.tasks.language_model.graphs import language_model_graphs
from training.tasks.language_model.reading import split_texts

Array = NDArray[np.float32]


@pytest.fixture
def model(tiny_model: RecurrentLanguageModel, traced_once: Callable[[ExportGraph], onnx.ModelProto]) -> onnx.ModelProto:
    """The graph `score` in float32."""
    return traced_once(language_model_graphs(tiny_model)["score"])


def _product(weight: Array) -> onnx.ModelProto:
    """`y = x @ weight`."""
    tensors = [numpy_helper.from_array(weight, "weight")]
    x, y = (
        onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])
        for name, size in zip("xy", weight.shape, strict=True)
    )
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "weight"], ["y"])], "g", [x], [y], tensors)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)


def _run(model: onnx.ModelProto, feed: dict[str, NDArray[np.generic]]) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0])


def _narrow(model: onnx.ModelProto) -> list[TensorProto]:
    """Matrices stored in one byte a number."""
    types = (TensorProto.INT8, TensorProto.UINT8)
    return [tensor for tensor in model.graph.initializer if tensor.data_type in types and len(tensor.dims) == 2]


@pytest.fixture
def feed(tiny_run: RunDirectory, tiny_data_dir: Path) -> dict[str, NDArray[np.generic]]:
    """Inputs of `score` for sentences of the toy grammar, all of 6 tokens."""
    recipe, tokenizer = tiny_run.recipe(), WordTokenizer.from_file(tiny_run.tokenizer)
    texts = tokenizer.encode_batch(split_texts(recipe.data, "test", tiny_data_dir))
    sentences = np.array([[tokenizer.end_id, *ids, tokenizer.end_id] for ids in texts if len(ids) == 6])
    state = np.zeros((recipe.network.num_layers, len(sentences), recipe.network.hidden_size), np.float32)
    lengths = np.full(len(sentences), 7)
    return {
        "tokens": sentences[:, :-1],
        "targets": sentences[:, 1:],
        "lengths": lengths,
        "hidden": state,
        "cell": state,
    }


def test_a_language_model_is_smaller_and_close(
    model: onnx.ModelProto, feed: dict[str, NDArray[np.generic]], tmp_path: Path
) -> None:
    quantized = quantize_int8_weights(model)
    exact, rounded = (_run(each, feed) for each in (model, quantized))
    assert len(exact) > 10
    assert 0 < np.abs(exact - rounded).mean() < 0.1
    assert np.exp(-rounded.mean()) == pytest.approx(np.exp(-exact.mean()), rel=0.1)
    for name, each in (("exact", model), ("rounded", quantized)):
        (tmp_path / name).mkdir()
        save_graphs({name: each}, tmp_path / name)
    sizes = [sum(file.stat().st_size for file in (tmp_path / name).iterdir()) for name in ("exact", "rounded")]
    assert sizes[1] < sizes[0]


def test_weights_alone_make_no_result_depend_on_the_batch(
    model: onnx.ModelProto, feed: dict[str, NDArray[np.generic]]
) -> None:
    quantized = quantize_int8_weights(model)
    rounded = _run(quantized, feed)
    one = {name: array[:, :1] if name in ("hidden", "cell") else array[:1] for name, array in feed.items()}
    np.testing.assert_allclose(_run(quantized, one), rounded[:1], rtol=0, atol=1e-5)


def test_weights_alone_are_multiplied_out_when_the_graph_is_loaded(model: onnx.ModelProto, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    content = quantize_int8_weights(model).SerializeToString()
    onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    assert not _narrow(onnx.load(tmp_path / "loaded.onnx"))


def test_matrices_alone_are_narrow() -> None:
    weight = np.random.default_rng(0).normal(size=(64, 80)).astype(np.float32)
    stored = {tensor.name: tensor.data_type for tensor in quantize_int8_weights(_product(weight)).graph.initializer}
    assert stored == {"weight_int8": TensorProto.INT8, "weight_scales": TensorProto.FLOAT}
    small = _product(np.ones((4, 4), np.float32))
    assert quantize_int8_weights(small) == small


def test_the_model_itself_stays_as_it_is(model: onnx.ModelProto) -> None:
    before = model.SerializeToString(deterministic=True)
    quantize_int8_weights(model)
    assert model.SerializeToString(deterministic=True) == before


def _look_up_and_multiply() -> onnx.ModelProto:
    """`y = (words[ids] + places[ids]) @ weight + bias` as Gather, Add and Gemm."""
    generator = np.random.default_rng(1)
    shapes = {"words": (100, 64), "places": (100, 64), "weight": (80, 64), "bias": (80,)}
    arrays = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    node = onnx.helper.make_node
    nodes = [
        node("Gather", ["words", "ids"], ["word"]),
        node("Gather", ["places", "ids"], ["place"]),
        node("Add", ["word", "place"], ["x"]),
        node("Gemm", ["x", "weight", "bias"], ["y"], transB=1),
    ]
    ids = onnx.helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows"])
    y = onnx.helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 80])
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = onnx.helper.make_graph(nodes, "g", [ids], [y], tensors)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)


def test_known_ranges_give_close_products_that_do_not_depend_on_other_rows() -> None:
    model = _look_up_and_multiply()
    quantized = quantize_int8_static(model, {"x": (-6.0, 6.0)})
    ids = np.arange(100)
    exact, ours = _run(model, {"ids": ids}), _run(quantized, {"ids": ids})
    assert 0 < np.abs(ours - exact).max() < 0.05 * np.abs(exact).max()
    for row in (0, 57, 99):
        np.testing.assert_array_equal(_run(quantized, {"ids": ids[row : row + 1]})[0], ours[row])


def test_values_outside_the_range_are_cut_off() -> None:
    model = _look_up_and_multiply()
    cut = quantize_int8_static(model, {"x": (0.0, 0.0)})
    bias = next(numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == "bias")
    np.testing.assert_allclose(_run(cut, {"ids": np.arange(5)}), np.tile(bias, (5, 1)), atol=1e-3)


def test_tables_that_are_named_stay_as_they_are() -> None:
    model = _look_up_and_multiply()
    all_narrow = quantize_int8_static(model, {"x": (-6.0, 6.0)})
    kept = quantize_int8_static(model, {"x": (-6.0, 6.0)}, keep=("places",))
    assert sorted(tuple(tensor.dims) for tensor in _narrow(all_narrow)) == [(64, 80), (100, 64), (100, 64)]
    assert sorted(tuple(tensor.dims) for tensor in _narrow(kept)) == [(64, 80), (100, 64)]
    assert {tensor.name for tensor in kept.graph.initializer} >= {"places"}
