import logging
from types import SimpleNamespace

import onnxruntime
import pytest

from models.backend.placement import SHAPE_OPERATORS, PlacedNode, check_placement, fallen_back, placed_nodes
from models.errors import UnsupportedDeviceError

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
NODES = [
    PlacedNode(CUDA, "MatMul", "scores"),
    PlacedNode(CPU, "Concat", "shape"),
    PlacedNode(CPU, "com.microsoft.MatMulIntegerToFloat", ""),
    PlacedNode(CPU, "TopK", "best"),
]


def test_nodes_on_the_cpu_are_found_except_shape_operators():
    assert fallen_back(NODES) == NODES[2:]
    assert fallen_back(NODES, allowed={"TopK", "com.microsoft.MatMulIntegerToFloat"}) == [NODES[1]]
    assert fallen_back(NODES[:2]) == []


def test_an_error_names_operators_and_nodes():
    with pytest.raises(UnsupportedDeviceError) as caught:
        check_placement("step.onnx", "cuda:1", NODES, allow_cpu_fallback=False)
    message = str(caught.value)
    assert message.startswith("step.onnx: cuda:1 has no kernel for ")
    assert "com.microsoft.MatMulIntegerToFloat (unnamed), TopK (best)" in message
    assert "--allow-cpu-fallback" in message
    assert "Concat" not in message


def test_many_are_counted():
    nodes = [PlacedNode(CPU, "TopK", f"n{number}") for number in range(25)]
    with pytest.raises(UnsupportedDeviceError, match=r"for TopK \(n0 and 24 more\); "):
        check_placement("g", "cuda", nodes, allow_cpu_fallback=False)


def test_what_is_allowed_is_logged(caplog):
    with caplog.at_level(logging.WARNING, "softserve"):
        check_placement("g", "cuda", NODES, allow_cpu_fallback=True)
    assert "TopK (best)" in caplog.text


def test_nothing_is_said_where_nothing_fell_back(caplog):
    check_placement("g", "cuda", NODES[:2], allow_cpu_fallback=False)
    assert not caplog.text


def test_placement_is_read_from_a_session(bundled):
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = onnxruntime.InferenceSession(str(bundled / "score.onnx"), options, providers=[CPU])
    nodes = list(placed_nodes(session))
    assert {node.provider for node in nodes} == {CPU}
    assert {"LSTM", "Concat"} <= {node.operator for node in nodes}
    fallen = {node.operator for node in fallen_back(nodes)}
    assert "LSTM" in fallen
    assert not fallen & SHAPE_OPERATORS


def test_operators_of_other_domains_are_named_in_full():
    node = SimpleNamespace(domain="com.microsoft", op_type="FusedMatMul", name="n")
    part = SimpleNamespace(ep_name=CUDA, get_nodes=lambda: [node])
    session = SimpleNamespace(get_provider_graph_assignment_info=lambda: [part])
    assert list(placed_nodes(session)) == [PlacedNode(CUDA, "com.microsoft.FusedMatMul", "n")]
