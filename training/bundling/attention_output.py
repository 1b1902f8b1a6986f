"""The cross-attention of a decoder step as an output of its ONNX graph.

Exported graphs compute attention by ONNX Runtime's operator `MultiHeadAttention`, which returns no weights. The output
is computed from the operator's queries and keys, behind an `If`, since ONNX Runtime computes outputs that are not
requested too.

Shapes: `B` sentences, `K` hypotheses a sentence, `S` source tokens, `d` hidden size, `H` heads.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.bundle.manifest import Graph, TensorSpec

__all__ = ["contract_with_attention", "num_cross_attentions", "with_all_attention", "with_attention"]

_KEYS = re.compile(r"memory_keys_(\d+)")


@dataclass(frozen=True, slots=True)
class _CrossAttention:
    """The values that an operator reads."""

    queries: str
    """`[B, K, d]`"""
    keys: str
    """`[B, H, S, d / H]`"""
    heads: int
    scale: float


class _Nodes:
    """Nodes and constants of a graph that grows."""

    def __init__(self, prefix: str) -> None:
        self._prefix, self._count = prefix, itertools.count()
        self.nodes: list[onnx.NodeProto] = []

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = f"{self._prefix}_{next(self._count)}" if output is None else output
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, value: object, dtype: type) -> str:
        tensor = numpy_helper.from_array(np.array(value, dtype))
        return self.add("Constant", value=tensor)


def _cross_attentions(step: onnx.ModelProto) -> Mapping[int, _CrossAttention]:
    """Return the cross-attention of each layer; raises `ValueError` for a graph that is no decoder step."""
    found = {}
    for node in step.graph.node:
        keys = _KEYS.fullmatch(node.input[1]) if node.op_type == "MultiHeadAttention" else None
        if keys is not None:
            given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
            attention = _CrossAttention(node.input[0], node.input[1], given["num_heads"], given.get("scale", 0.0))
            if not attention.scale:
                raise ValueError("a step's attention has no scale")
            found[int(keys[1])] = attention
    if not found:
        raise ValueError("the graph has no cross-attention to memory_keys_0")
    return found


def num_cross_attentions(step: onnx.ModelProto) -> int:
    """Return the number of decoder layers with cross-attention."""
    return len(_cross_attentions(step))


def _weights(nodes: _Nodes, attention: _CrossAttention, heads: Sequence[int] | None) -> str:
    """Add the weights of some heads, all by default: `[B, heads, K, S]`."""
    split = nodes.constant([0, 0, attention.heads, -1], np.int64)
    queries = nodes.add("Transpose", nodes.add("Reshape", attention.queries, split), perm=[0, 2, 1, 3])
    keys = nodes.add("Transpose", attention.keys, perm=[0, 1, 3, 2])
    if heads is not None:
        chosen = nodes.constant(heads, np.int64)
        queries, keys = (nodes.add("Gather", each, chosen, axis=1) for each in (queries, keys))
    scores = nodes.add("Mul", nodes.add("MatMul", queries, keys), nodes.constant(attention.scale, np.float32))
    width = nodes.add("Gather", nodes.add("Shape", attention.keys), nodes.constant(2, np.int64))
    places = nodes.add("Range", nodes.constant(0, np.int64), width, nodes.constant(1, np.int64))
    lengths = nodes.add("Unsqueeze", "source_lengths", nodes.constant([1, 2, 3], np.int64))
    seen = nodes.add("Less", places, lengths)
    masked = nodes.add("Where", seen, scores, nodes.constant(-1e9, np.float32))
    return nodes.add("Softmax", masked, axis=-1)


def with_attention(step: onnx.ModelProto, heads: Iterable[tuple[int, int]]) -> onnx.ModelProto:
    """Return a step's graph with the input `with_attention` and the output `attention`.

    The output is the mean over some heads, each a layer and a number from 0 on, `[B, K, S]`; where the input, a truth
    value, is false, it is empty and takes no time. Weights are not read: those of the graph may be in a file.
    Raises `ValueError` for a graph that is no decoder step, or has no such head.
    """
    layers = _cross_attentions(step)
    chosen: dict[int, list[int]] = {}
    for layer, head in sorted(set(heads)):
        if layer not in layers or not 0 <= head < layers[layer].heads:
            raise ValueError(f"the graph has no head {head} in layer {layer}")
        chosen.setdefault(layer, []).append(head)
    if not chosen:
        raise ValueError("an attention output needs at least one head")
    nodes = _Nodes("attention_of_heads")
    axis = nodes.constant([1], np.int64)
    sums = [nodes.add("ReduceSum", _weights(nodes, layers[each], chosen[each]), axis, keepdims=0) for each in chosen]
    count = nodes.constant(sum(map(len, chosen.values())), np.float32)
    result = nodes.add("Div", nodes.add("Sum", *sums), count)
    then = helper.make_graph(nodes.nodes, "attention_is_wanted", [], [_value(result)])
    others = _Nodes("no_attention")
    nothing = others.constant(np.zeros((0, 0, 0)), np.float32)
    otherwise = helper.make_graph(others.nodes, "attention_is_not_wanted", [], [_value(nothing)])
    changed = _copy(step)
    changed.graph.node.append(
        helper.make_node("If", ["with_attention"], ["attention"], then_branch=then, else_branch=otherwise)
    )
    changed.graph.input.append(helper.make_tensor_value_info("with_attention", TensorProto.BOOL, []))
    changed.graph.output.append(
        helper.make_tensor_value_info("attention", TensorProto.FLOAT, ["batch", "beam", "attended"])
    )
    return changed


def with_all_attention(step: onnx.ModelProto) -> onnx.ModelProto:
    """Return a step's graph with an output `attention_<layer>` of each layer: `[B, H, K, S]`."""
    changed = _copy(step)
    for layer, attention in sorted(_cross_attentions(step).items()):
        nodes = _Nodes(f"attention_of_layer_{layer}")
        nodes.add("Identity", _weights(nodes, attention, None), output=f"attention_{layer}")
        changed.graph.node.extend(nodes.nodes)
        shape: list[str | int | None] = ["batch", attention.heads, "beam", "source"]
        changed.graph.output.append(helper.make_tensor_value_info(f"attention_{layer}", TensorProto.FLOAT, shape))
    return changed


def contract_with_attention(step: Graph) -> Graph:
    """Return the contract of a step's graph that `with_attention` was applied to."""
    wanted = TensorSpec(name="with_attention", dtype="bool", shape=())
    attention = TensorSpec(name="attention", dtype="float32", shape=("batch", "beam", "attended"))
    return step.model_copy(update={"inputs": (*step.inputs, wanted), "outputs": (*step.outputs, attention)})


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None, None])
