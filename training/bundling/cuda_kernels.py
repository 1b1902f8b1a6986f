"""The operators for which onnxruntime-gpu has CUDA kernels, and the nodes of a graph that have none.

The table `cuda_kernels.json` is written by `python -m benchmarks.cuda_kernels`, from the library itself.
"""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from models.backend.placement import SHAPE_OPERATORS

__all__ = ["TABLE", "value_types", "without_kernel"]

TABLE = Path(__file__).with_name("cuda_kernels.json")

_ONNX = "ai.onnx"
_INTEGERS = {"int64", "int32", "bool"}


def without_kernel(model: onnx.ModelProto) -> list[str]:
    """Return operator, version, types and name of each node that a CUDA session would place on the CPU.

    Operators on integers that only compute shapes are left out: onnxruntime places them on the CPU on purpose. So are
    constants, which it stores as weights when it loads a graph.
    """
    opsets, types = _opsets(model), value_types(model)
    missing = []
    for node in (each for each in model.graph.node if each.op_type != "Constant"):
        schema = _schema(node, opsets)
        bound = {} if schema is None else _bound(schema, node, types)
        if schema is not None and _has_kernel(node, opsets[node.domain or _ONNX], bound):
            continue
        if node.op_type in SHAPE_OPERATORS and {types.get(name, "") for name in node.output} <= _INTEGERS:
            continue
        shown = ", ".join(types.get(name, "?") for name in node.input if name)
        missing.append(f"{node.op_type} {opsets[node.domain or _ONNX]} ({shown}) {node.name or node.output[0]}")
    return missing


def _has_kernel(node: onnx.NodeProto, version: int, bound: Mapping[str, str]) -> bool:
    """Return whether the table has a kernel for an operator of a version with these types of its type variables.

    Outputs that a node does not have leave their variables unbound, and any type will do.
    """
    for first, last, *kernels in _table().get(f"{node.domain or _ONNX}:{node.op_type}", ()):
        if first <= version and (last is None or version <= last):
            for kernel in kernels:
                if all(bound.get(variable, kinds[0]) in kinds for variable, kinds in kernel.items()):
                    return True
    return False


@functools.cache
def _table() -> Mapping[str, Any]:
    operators: Mapping[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))["operators"]
    return operators


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    return {opset.domain or _ONNX: opset.version for opset in model.opset_import}


@functools.cache
def _schemas() -> Mapping[tuple[str, str], Sequence[Any]]:
    found: dict[tuple[str, str], list[Any]] = {}
    for schema in get_all_operator_schema():
        found.setdefault((schema.domain or _ONNX, schema.name), []).append(schema)
    return {key: sorted(schemas, key=lambda schema: schema.since_version) for key, schemas in found.items()}


def _schema(node: onnx.NodeProto, opsets: Mapping[str, int]) -> Any:
    """Return onnxruntime's schema of the operator in the version of the graph, None where there is none."""
    domain = node.domain or _ONNX
    known = [s for s in _schemas().get((domain, node.op_type), ()) if s.since_version <= opsets.get(domain, 0)]
    return known[-1] if known else None


def value_types(model: onnx.ModelProto) -> dict[str, str]:
    """Return the type of each value of a graph, such as `float16`; types follow from those of inputs and weights.

    ONNX's own inference stops at onnxruntime's operators.
    """
    types = {tensor.name: _name(tensor.data_type) for tensor in model.graph.initializer}
    types |= {value.name: _name(value.type.tensor_type.elem_type) for value in model.graph.input}
    opsets = _opsets(model)
    for node in model.graph.node:
        schema = _schema(node, opsets)
        if schema is not None:
            bound = _bound(schema, node, types)
            allowed = {constraint.type_param_str: constraint for constraint in schema.type_constraints}
            for name, formal in _formal(schema.outputs, node.output):
                types[name] = _output_type(node, bound.get(formal.typeStr), formal.typeStr, allowed)
    return types


def _output_type(node: onnx.NodeProto, bound: str | None, declared: str, allowed: Mapping[str, Any]) -> str:
    """Return the type of an output: an attribute's, that of an input of the same variable, or the only one."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if "to" in attributes:
        return _name(attributes["to"].i)
    if bound is not None:
        return bound
    if node.op_type == "ConstantOfShape":
        return _name(attributes["value"].t.data_type) if "value" in attributes else "float"
    if node.op_type == "Constant":
        return _name(attributes["value"].t.data_type) if "value" in attributes else "int64"
    if node.op_type == "DequantizeLinear":
        return "float"
    kinds = allowed[declared].allowed_type_strs if declared in allowed else [declared]
    return str(kinds[0]).removeprefix("tensor(").removesuffix(")")


def _bound(schema: Any, node: onnx.NodeProto, types: Mapping[str, str]) -> dict[str, str]:
    """Return the type of each type variable of an operator, as far as inputs and outputs with known types say it.

    Kernels may name an input or output in place of a variable.
    """
    bound: dict[str, str] = {}
    for name, formal in (*_formal(schema.inputs, node.input), *_formal(schema.outputs, node.output)):
        if name in types:
            bound.setdefault(formal.typeStr, types[name])
            bound.setdefault(formal.name, types[name])
    return bound


def _formal(parameters: Sequence[Any], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the names of given inputs or outputs with their parameters, of which the last may take any number."""
    for position, name in enumerate(names):
        if name and parameters:
            yield name, parameters[min(position, len(parameters) - 1)]


def _name(kind: int) -> str:
    if kind == TensorProto.FLOAT:
        return "float"
    return str(helper.tensor_dtype_to_np_dtype(kind)) if kind != TensorProto.BFLOAT16 else "bfloat16"
