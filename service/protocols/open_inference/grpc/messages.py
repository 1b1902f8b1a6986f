"""Requests and answers of Open Inference as protobuf messages."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException

from service.protocols.open_inference.grpc import open_inference_pb2 as messages
from service.protocols.open_inference.tensors import (
    InferRequest,
    RequestedOutput,
    Tensor,
    tensor_of_bytes,
    tensor_of_elements,
    to_bytes,
)

__all__ = ["Message", "infer_request", "infer_response"]

Message = Any
"""A message of protocol buffers: its fields are made at run time."""

_CONTENTS: Mapping[str, str] = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The member of `InferTensorContents` with the elements of each datatype; FP16 has none."""


def infer_request(message: Message) -> InferRequest:
    """Return a `ModelInferRequest` as a checked request; raises `HTTPException` for whatever is wrong with it."""
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise HTTPException(400, f"there are {len(message.inputs)} inputs and {len(raw)} raw_input_contents")
    inputs: dict[str, Tensor] = {}
    for place, given in enumerate(message.inputs):
        if given.name in inputs:
            raise HTTPException(400, f"input {given.name!r} comes twice")
        if raw:
            if given.HasField("contents"):
                raise HTTPException(400, f"input {given.name!r} must have either contents or raw_input_contents")
            tensor = tensor_of_bytes(given.name, given.datatype, given.shape, memoryview(raw[place]))
        else:
            tensor = tensor_of_elements(given.name, given.datatype, given.shape, _elements(given))
        inputs[given.name] = tensor
    outputs = [RequestedOutput(name=each.name, parameters=_parameters(each.parameters)) for each in message.outputs]
    return InferRequest(message.id, _parameters(message.parameters), inputs, outputs)


def _elements(given: Message) -> Sequence[object]:
    """Return the typed elements of an input; those of another datatype must be empty."""
    name = _CONTENTS.get(given.datatype, "")
    for field, values in given.contents.ListFields():
        if field.name == name:
            return list(values)
        raise HTTPException(400, f"input {given.name!r} of datatype {given.datatype} has {field.name}")
    return []


def _parameters(parameters: Mapping[str, object]) -> dict[str, object]:
    return {name: _value(each) for name, each in parameters.items()}


def _value(parameter: Message) -> object:
    name = parameter.WhichOneof("parameter_choice")
    return None if name is None else getattr(parameter, name)


def infer_response(name: str, version: str, request: InferRequest, tensors: Sequence[Tensor]) -> Any:
    """Return a `ModelInferResponse`, its tensors as raw bytes."""
    response = messages.ModelInferResponse(model_name=name, model_version=version, id=request.id)
    for tensor in tensors:
        response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        response.raw_output_contents.append(to_bytes(tensor))
    return response
