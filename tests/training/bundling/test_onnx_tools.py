"""Tests of what exporters and quantizers share: what they print, and models of large weights."""

import logging
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from training.bundling.onnx import save_graphs
from training.bundling.onnx_tools import check_graph, quiet, without_weights


def test_advice_and_warnings_are_discarded_while_quiet_alone(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with quiet():
        print("progress")
        logging.getLogger().warning("advice")
        warnings.warn("internal", stacklevel=1)
    assert (capsys.readouterr().out, caplog.text) == ("", "")
    logging.getLogger().warning("after")
    assert "after" in caplog.text


def _model(product: str = "MatMul") -> onnx.ModelProto:
    vectors, outputs = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in "xy")
    weight = numpy_helper.from_array(np.random.default_rng(0).random((64, 64), np.float32), "w")
    small = numpy_helper.from_array(np.ones(64, np.float32), "b")
    nodes = [helper.make_node(product, ["x", "w"], ["z"]), helper.make_node("Add", ["z", "b"], ["y"])]
    graph = helper.make_graph(nodes, "g", [vectors], [outputs], [weight, small])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)], producer_name="p")


def test_a_copy_without_weights_has_all_else() -> None:
    model = _model()
    copy = without_weights(model)
    assert not copy.graph.initializer
    copy.graph.initializer.extend(model.graph.initializer)
    assert copy == model


def test_graphs_of_larger_models_than_a_message_may_be_are_checked_and_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The checker refuses messages of 2 GiB: here the bound is below the size of the weights, which are no part."""
    model = _model()
    monkeypatch.setattr(onnx.checker, "MAXIMUM_PROTOBUF", 2048)
    with pytest.raises(ValueError, match="too large"):
        onnx.checker.check_model(model)
    check_graph(model)
    with pytest.raises(onnx.checker.ValidationError):
        check_graph(_model("NoOperator"))
    save_graphs({"one": model, "other": model}, tmp_path)
    assert (tmp_path / "one.onnx").stat().st_size < 2048
    assert (tmp_path / "weights.bin").stat().st_size == 64 * 64 * 4
    for name in ("one", "other"):
        read = onnx.load(tmp_path / f"{name}.onnx")
        for found, expected in zip(read.graph.initializer, model.graph.initializer, strict=True):
            np.testing.assert_array_equal(numpy_helper.to_array(found), numpy_helper.to_array(expected))
