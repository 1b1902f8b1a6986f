"""ONNX graphs of a bundle: traced with `torch.onnx.export`, then wired and stored."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxscript.optimizer
import onnxscript.values
import torch
from numpy.typing import NDArray
from onnxscript import opset18

from models.bundle.manifest import Graph
from training.bundling.graphs import ExportGraph
from training.bundling.onnx_tools import check_graph, keep_used_weights, quiet
from training.bundling.weight_file import SHARED_BYTES, WEIGHTS, WeightFile, array_of, save_graphs
from training.networks.lstm import PADDED_LSTM
from training.networks.operators import ATTEND, ATTEND_AFTER, ATTEND_SOME, WRITE_SLOTS

__all__ = ["WEIGHTS", "save_graphs", "to_onnx"]

op: Any = opset18  # typed for scripts, called here on graph values


def _multi_head_attention(*more_outputs: str) -> Any:
    """Return ONNX Runtime's operator as far as it is used here; its schema is not known outside the runtime."""
    tensor, lengths = "tensor(float)", "tensor(int32)"
    inputs = {"query": tensor, "key": tensor, "value": tensor, "bias": tensor, "padding": lengths, "attention": tensor}
    inputs |= {"past_key": tensor, "past_value": tensor}
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    schema = onnx.defs.OpSchema(
        "MultiHeadAttention",
        "com.microsoft",
        1,
        inputs=[onnx.defs.OpSchema.FormalParameter(name, kind, param_option=optional) for name, kind in inputs.items()],
        outputs=[onnx.defs.OpSchema.FormalParameter(name, tensor) for name in ("output", *more_outputs)],
        attributes=[
            onnx.defs.OpSchema.Attribute("num_heads", onnx.defs.OpSchema.AttrType.INT),
            onnx.defs.OpSchema.Attribute("scale", onnx.defs.OpSchema.AttrType.FLOAT),
        ],
    )
    return onnxscript.values.Op(onnxscript.values.Opset("com.microsoft", 1), "MultiHeadAttention", schema)


multi_head_attention: Callable[..., ir.Value] = _multi_head_attention()
# ONNX Runtime computes wrong numbers where past keys come in and present ones do not go out.
multi_head_attention_after: Callable[..., tuple[ir.Value, ir.Value, ir.Value]] = _multi_head_attention(
    "present_key", "present_value"
)

_NO_LIMIT = 1 << 40
_FOLDED_BYTES = 1 << 20
"""Size up to which the exporter folds by itself, or more."""


def to_onnx(graph: ExportGraph, weights: WeightFile | None = None) -> onnx.ModelProto:
    """Return a graph as an ONNX model whose inputs and outputs are those of its contract.

    Its weights are written to `weights`, or else are in the model, which then cannot be serialized above 2 GiB.
    """
    axes: dict[str, torch.export.Dim] = {}
    for tensor in graph.contract.inputs:
        axes |= {axis: torch.export.Dim(axis) for axis in tensor.shape if isinstance(axis, str)}
    dynamic = tuple(
        {i: axes[axis] for i, axis in enumerate(tensor.shape) if isinstance(axis, str)}
        for tensor in graph.contract.inputs
    )
    # torch's cache of shapes costs more than it saves where dimensions are symbolic.
    with quiet(), torch._dynamo.config.patch(fake_tensor_cache_enabled=False):
        program = torch.onnx.export(
            graph.module.eval(),
            graph.examples,
            dynamo=True,
            dynamic_shapes=_by_parameter(graph.module, dynamic),
            input_names=[tensor.name for tensor in graph.contract.inputs],
            output_names=[tensor.name for tensor in graph.contract.outputs],
            verbose=False,
            external_data=False,
            custom_translation_table={
                PADDED_LSTM: _lstm,
                ATTEND: _attend,
                ATTEND_AFTER: _attend_after,
                ATTEND_SOME: _attend_some,
                WRITE_SLOTS: _write_slots,
            },
        )
        assert program is not None
        _multiply_by_held_weights(program.model)
        # The exporter folds small constants only; reordered gates and transposed matrices are large.
        onnxscript.optimizer.fold_constants(program.model, input_size_limit=_NO_LIMIT, output_size_limit=_NO_LIMIT)
        onnxscript.optimizer.remove_unused_nodes(program.model)
        if weights is not None:
            _move_weights(program.model, weights)
    model = program.model_proto
    _undo_folded_transposes(model)
    _declare_outputs(model, graph.contract)
    _strip_traces(model)
    check_graph(model)
    return model


def _by_parameter(module: torch.nn.Module, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return one value for each parameter of `forward`, where a last `*parameter` takes the rest."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    if parameters[-1].kind != inspect.Parameter.VAR_POSITIONAL or len(values) < len(parameters):
        return values
    return *values[: len(parameters) - 1], values[len(parameters) - 1 :]


def _lstm(
    inputs: ir.Value, lengths: ir.Value, hidden: ir.Value, cell: ir.Value, weights: Sequence[ir.Value]
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Translate `padded_lstm` to ONNX LSTM operators, whose `sequence_lens` stops each sequence at its last step.

    Weights `[4 d, d]` and biases `[4 d]` come in torch's gate order (input, forget, cell, output) and leave in
    ONNX's (input, output, forget, cell).
    """
    steps = op.Cast(lengths, to=ir.DataType.INT32)
    values = op.Transpose(inputs, perm=[1, 0, 2])
    last_hidden, last_cell = [], []
    assert weights[1].shape is not None
    size = _known(weights[1].shape[1])
    for layer in range(len(weights) // 4):
        *matrices, bias_input, bias_hidden = (_onnx_gates(w) for w in weights[4 * layer : 4 * layer + 4])
        outputs, state, memory = op.LSTM(
            values,
            *(op.Unsqueeze(matrix, [0]) for matrix in matrices),
            op.Unsqueeze(op.Concat(bias_input, bias_hidden, axis=0), [0]),
            steps,
            op.Slice(hidden, [layer], [layer + 1], [0]),
            op.Slice(cell, [layer], [layer + 1], [0]),
            hidden_size=size,
        )
        values = op.Squeeze(outputs, [1])
        last_hidden.append(state)
        last_cell.append(memory)
    return op.Transpose(values, perm=[1, 0, 2]), op.Concat(*last_hidden, axis=0), op.Concat(*last_cell, axis=0)


def _write_slots(cache: ir.Value, update: ir.Value, indices: ir.Value) -> ir.Value:
    """Translate `write_slots` to the operator that ONNX Runtime computes in place if both sides are one buffer."""
    written: ir.Value = op.ScatterND(cache, indices, update)
    return written


def _attend(query: ir.Value, keys: ir.Value, values: ir.Value, lengths: ir.Value, heads: int) -> ir.Value:
    """Translate `attend` to ONNX Runtime's operator, which splits the heads and joins them again itself."""
    steps = op.Cast(lengths, to=ir.DataType.INT32)
    return multi_head_attention(query, keys, values, None, steps, num_heads=heads, scale=1.0)


def _attend_some(query: ir.Value, keys: ir.Value, values: ir.Value, bias: ir.Value, heads: int) -> ir.Value:
    return multi_head_attention(query, keys, values, None, None, bias, num_heads=heads, scale=1.0)


def _attend_after(
    query: ir.Value,
    keys: ir.Value,
    values: ir.Value,
    past_keys: ir.Value,
    past_values: ir.Value,
    bias: ir.Value,
    heads: int,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Translate `attend_after`."""
    given = query, keys, values, None, None, bias, past_keys, past_values
    return multi_head_attention_after(*given, num_heads=heads, scale=1.0)


def _onnx_gates(weight: ir.Value) -> Any:
    assert weight.shape is not None
    size = _known(weight.shape[0]) // 4
    gate_input, gate_forget, gate_cell, gate_output = (
        op.Slice(weight, [gate * size], [(gate + 1) * size], [0]) for gate in range(4)
    )
    return op.Concat(gate_input, gate_output, gate_forget, gate_cell, axis=0)


def _known(dimension: int | ir.SymbolicDim) -> int:
    assert isinstance(dimension, int)
    return dimension


def _multiply_by_held_weights(model: ir.Model) -> None:
    """Replace `x @ W.T` by Gemm with W itself, where the graph has another use for the stored weight W.

    The exporter would fold `weight.t()` into a second copy of the projection matrix, the largest weight there is.
    """
    large = {value.name: _storage(value) for value in _large_weights(model)}
    others = {
        large[value.name]: value
        for value in _large_weights(model)
        if any(use.node.op_type != "Transpose" for use in value.uses())
    }
    for node in model.graph:
        weight = node.inputs[0] if node.op_type == "Transpose" else None
        held = None if weight is None or weight.name not in large else others.get(large[weight.name])
        if held is None:
            continue
        for product, place in list(node.outputs[0].uses()):
            if product.op_type == "MatMul" and place == 1:
                product.op_type = "Gemm"
                product.replace_input_with(1, held)
                product.attributes["transB"] = ir.AttrInt64("transB", 1)


def _large_weights(model: ir.Model) -> Iterator[ir.Value]:
    for value in model.graph.initializers.values():
        if value.const_value is not None and value.const_value.nbytes >= SHARED_BYTES:
            yield value


def _storage(weight: ir.Value) -> object:
    """Return a value that is equal for two weights in one place of the memory."""
    assert weight.const_value is not None
    interface = weight.const_value.numpy().__array_interface__
    return interface["data"][0], interface["shape"], interface["strides"], interface["typestr"]


def _move_weights(model: ir.Model, weights: WeightFile) -> None:
    """Write the weights of a model to a file, to which it refers then."""
    for value in _large_weights(model):
        tensor = value.const_value
        assert tensor is not None
        assert value.name is not None
        array = tensor.numpy()
        offset, shape = weights.add(array), ir.Shape(array.shape)
        value.const_value = ir.ExternalTensor(
            str(weights.path), offset, tensor.nbytes, tensor.dtype, shape=shape, name=value.name
        )


def _undo_folded_transposes(model: onnx.ModelProto) -> None:
    """Do the same for small weights, whose transposes the exporter has folded already."""
    arrays = {tensor.name: array_of(tensor) for tensor in model.graph.initializer if len(tensor.dims) == 2}
    arrays = {name: array for name, array in arrays.items() if SHARED_BYTES <= array.nbytes <= _FOLDED_BYTES}
    originals = {name: original for name in arrays if (original := _transpose_of(name, arrays)) is not None}
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in originals:
            node.op_type = "Gemm"
            node.input[1] = originals[node.input[1]]
            node.attribute.append(onnx.helper.make_attribute("transB", 1))
    keep_used_weights(model)


def _transpose_of(name: str, arrays: Mapping[str, NDArray[np.generic]]) -> str | None:
    array, order = arrays[name], list(arrays)
    for other in order[: order.index(name)]:
        candidate = arrays[other]
        # A row is compared first: networks have many matrices of one shape.
        if (
            candidate.shape == array.shape[::-1]
            and np.array_equal(candidate[:, 0], array[0])
            and np.array_equal(candidate.T, array)
        ):
            return other
    return None


def _declare_outputs(model: onnx.ModelProto, contract: Graph) -> None:
    """Give outputs the contract's shapes; drop the exporter's inferred shapes, some of which are wrong."""
    del model.graph.value_info[:]
    del model.graph.output[:]
    for tensor in contract.outputs:
        dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
        model.graph.output.append(onnx.helper.make_tensor_value_info(tensor.name, dtype, tensor.shape))


def _strip_traces(model: onnx.ModelProto) -> None:
    """Removes the Python stack traces that the exporter leaves on every node, with the paths in them."""
    for item in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.initializer):
        del item.metadata_props[:]
        item.doc_string = ""
