"""Tensors of Open Inference requests and answers: JSON, and the binary extension.

A binary body is a JSON object followed by the bytes of the tensors that have `binary_data_size`, in their order:
numbers little-endian, elements of BYTES each as their length (unsigned, 32 bits) and their bytes. Source: the "Open
Inference Protocol" and its "Binary Tensor Data Extension".
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from models.backend import Array
from models.operations.validation import named_sentence
from service.http.body import checked_body
from service.http.requests import Text

__all__ = [
    "INLINE_BYTES",
    "InferRequest",
    "RequestedOutput",
    "Tensor",
    "encode_answer",
    "parse_request",
    "tensor_of_bytes",
    "tensor_of_elements",
    "to_bytes",
]

_NUMPY: Mapping[str, str] = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
"""The numpy type of each datatype of numbers."""
_BYTES = "BYTES"
_BINARY_SIZE, _BINARY, _ALL_BINARY = "binary_data_size", "binary_data", "binary_data_output"
_LENGTH_BYTES = 4
INLINE_BYTES = 1 << 16
"""Larger requests are parsed on another thread: their elements take up to a fifth of a second."""
_MOST_DIMENSIONS = 8


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Input(_Strict):
    name: str
    shape: list[Annotated[int, Field(ge=0, lt=1 << 31, strict=True)]]
    datatype: str
    parameters: dict[str, object] = Field(default_factory=dict)
    data: list[object] | None = None


class RequestedOutput(_Strict):
    """An output that a client asks for."""

    name: str
    parameters: dict[str, object] = Field(default_factory=dict)

    @property
    def classes(self) -> int:
        """The number of classes that the classification extension asks for; 0 without it."""
        value = self.parameters.get("classification", 0)
        if type(value) is not int or value < 0:
            raise _malformed(f"output {self.name!r}: classification must be a number of classes")
        return value


class _Body(_Strict):
    id: Text = ""
    parameters: dict[str, object] = Field(default_factory=dict)
    inputs: list[_Input]
    outputs: list[RequestedOutput] | None = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor: its elements in row-major order, an array of numbers or a list of `bytes`."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Array | Sequence[bytes]

    def contents(self) -> list[bytes]:
        """Return the elements of a tensor of BYTES; raises `HTTPException` where it is another."""
        if isinstance(self.values, np.ndarray):
            raise _malformed(f"input {self.name!r} must be of datatype BYTES, not {self.datatype}")
        return list(self.values)

    def texts(self) -> list[str]:
        """Return the elements of a tensor of texts; raises `HTTPException` where they are none."""
        try:
            return [each.decode() for each in self.contents()]
        except UnicodeDecodeError:
            raise _malformed(f"input {self.name!r}: a text is not UTF-8") from None

    def integers(self) -> Array:
        """Return a tensor of whole numbers as `int64`; raises `HTTPException` where it is none."""
        if not isinstance(self.values, np.ndarray) or self.values.dtype.kind not in "iu":
            raise _malformed(f"input {self.name!r} must be of datatype INT64, not {self.datatype}")
        if self.values.dtype.kind == "u" and self.values.size and int(self.values.max()) > np.iinfo(np.int64).max:
            raise _malformed(f"input {self.name!r}: a number is too large")
        return self.values.astype(np.int64).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A checked request."""

    id: str
    parameters: Mapping[str, object]
    inputs: Mapping[str, Tensor]
    outputs: Sequence[RequestedOutput]
    """The outputs that are asked for; none for the default ones."""
    binary: frozenset[str] = field(default_factory=frozenset)
    """Names of the outputs that are sent in binary form."""
    all_binary: bool = False
    """Whether the others are, too, unless they say otherwise."""

    def is_binary(self, name: str) -> bool:
        """Return whether an output is sent in binary form."""
        for output in self.outputs:
            if output.name == name and _BINARY in output.parameters:
                return name in self.binary
        return self.all_binary


def _malformed(detail: str) -> HTTPException:
    return HTTPException(400, detail)


def parse_request(content: bytes, json_length: str | None, max_values: int) -> InferRequest:
    """Parse a body, of which the first `json_length` bytes are JSON, with at most about `max_values` values.

    Without `json_length` all of it is JSON. Raises `HTTPException`: 413 for more values, 400 for wrong ones.
    """
    head, rest = _divided(content, json_length)
    try:
        body = checked_body(_Body, bytes(head), "application/json", max_values)
    except RequestValidationError as error:
        first = error.errors()[0]
        raise _malformed(named_sentence(first, first["loc"][1:] or ("body",))) from None
    inputs: dict[str, Tensor] = {}
    for given in body.inputs:
        if given.name in inputs:
            raise _malformed(f"input {given.name!r} comes twice")
        inputs[given.name], rest = _tensor(given, rest)
    if rest:
        raise _malformed(f"{len(rest)} bytes follow the last tensor")
    outputs = body.outputs or []
    return InferRequest(
        body.id,
        body.parameters,
        inputs,
        outputs,
        frozenset(each.name for each in outputs if _flag(each.parameters, _BINARY)),
        _flag(body.parameters, _ALL_BINARY),
    )


def _divided(content: bytes, json_length: str | None) -> tuple[memoryview, memoryview]:
    view = memoryview(content)
    if json_length is None:
        return view, view[:0]
    if not (json_length.isascii() and json_length.isdigit() and len(json_length) < 20):
        raise _malformed("Inference-Header-Content-Length must be a number of bytes")
    length = int(json_length)
    if length > len(content):
        raise _malformed(f"Inference-Header-Content-Length is {length}, but the body has {len(content)} bytes")
    return view[:length], view[length:]


def _flag(parameters: Mapping[str, object], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise _malformed(f"parameter {name} must be true or false")
    return value


def _tensor(given: _Input, rest: memoryview) -> tuple[Tensor, memoryview]:
    """Return a tensor, and the bytes after it."""
    size = given.parameters.get(_BINARY_SIZE)
    if (given.data is None) == (size is None):
        raise _malformed(f"input {given.name!r} must have either data or binary_data_size")
    if given.data is not None:
        return tensor_of_elements(given.name, given.datatype, given.shape, _from_json(given)), rest
    if type(size) is not int or not 0 <= size <= len(rest):
        raise _malformed(f"input {given.name!r}: binary_data_size {size!r} does not fit the body")
    return tensor_of_bytes(given.name, given.datatype, given.shape, rest[:size]), rest[size:]


def tensor_of_bytes(name: str, datatype: str, shape: Sequence[int], content: memoryview) -> Tensor:
    """Return a tensor of its bytes; raises `HTTPException` where they do not fit its datatype and shape."""
    _check(name, datatype, shape)
    return _counted(name, datatype, shape, _from_bytes(name, datatype, content))


def tensor_of_elements(name: str, datatype: str, shape: Sequence[int], elements: Sequence[Any]) -> Tensor:
    """Return a tensor of its elements, texts as bytes; raises `HTTPException` where they do not fit."""
    _check(name, datatype, shape)
    if datatype == _BYTES:
        if not all(isinstance(each, bytes) for each in elements):
            raise _malformed(f"input {name!r}: elements of BYTES must be strings")
        return _counted(name, datatype, shape, list(elements))
    kind = np.dtype(_NUMPY[datatype])
    allowed: tuple[type, ...] = {"b": (bool,), "f": (int, float)}.get(kind.kind, (int,))
    if not all(type(each) in allowed for each in elements):
        raise _malformed(f"input {name!r}: elements do not fit datatype {datatype}")
    try:
        with np.errstate(over="ignore"):
            values = np.array(elements, kind)
    except OverflowError:
        raise _malformed(f"input {name!r}: a number does not fit datatype {datatype}") from None
    return _counted(name, datatype, shape, values)


def _check(name: str, datatype: str, shape: Sequence[int]) -> None:
    if datatype != _BYTES and datatype not in _NUMPY:
        raise _malformed(f"input {name!r}: unknown datatype {datatype!r}")
    if len(shape) > _MOST_DIMENSIONS:
        raise _malformed(f"input {name!r} has more than {_MOST_DIMENSIONS} dimensions")
    if any(size < 0 for size in shape):
        raise _malformed(f"input {name!r} has a negative dimension")


def _counted(name: str, datatype: str, shape: Sequence[int], values: Array | Sequence[bytes]) -> Tensor:
    if len(values) != math.prod(shape):
        raise _malformed(f"input {name!r} has {len(values)} elements, and its shape says {math.prod(shape)}")
    return Tensor(name, datatype, tuple(shape), values)


def _from_json(given: _Input) -> list[object]:
    """Return the elements of nested lists, texts as bytes."""
    elements = list(_flattened(given.data or [], 0))
    if given.datatype != _BYTES:
        return elements
    try:
        return [each.encode() if isinstance(each, str) else each for each in elements]
    except UnicodeEncodeError:
        raise _malformed(f"input {given.name!r}: half of a surrogate pair is no character") from None


def _flattened(data: Sequence[object], depth: int) -> Iterable[Any]:
    if depth == _MOST_DIMENSIONS:
        raise _malformed(f"data is nested more than {_MOST_DIMENSIONS} times")
    for each in data:
        if isinstance(each, list):
            yield from _flattened(each, depth + 1)
        else:
            yield each


def _from_bytes(name: str, datatype: str, content: memoryview) -> Array | list[bytes]:
    if datatype == _BYTES:
        return _elements(name, content)
    kind = np.dtype(_NUMPY[datatype])
    if len(content) % kind.itemsize:
        raise _malformed(f"input {name!r}: {len(content)} bytes are no whole elements of {datatype}")
    return np.frombuffer(content, kind)


def _elements(name: str, content: memoryview) -> list[bytes]:
    found, place = [], 0
    while place < len(content):
        start = place + _LENGTH_BYTES
        place = start + int.from_bytes(content[place:start], "little")
        if place > len(content) or start > len(content):
            raise _malformed(f"input {name!r}: an element of BYTES ends behind the tensor")
        found.append(bytes(content[start:place]))
    return found


def encode_answer(
    head: Mapping[str, object], tensors: Sequence[Tensor], request: InferRequest
) -> tuple[bytes, int | None]:
    """Return the body of an answer, and the length of its JSON part where tensors in binary form follow."""
    outputs, parts = [], []
    for tensor in tensors:
        shown: dict[str, object] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        if request.is_binary(tensor.name):
            parts.append(to_bytes(tensor))
            shown["parameters"] = {_BINARY_SIZE: len(parts[-1])}
        else:
            shown["data"] = _to_json(tensor)
        outputs.append(shown)
    text = json.dumps({**head, "outputs": outputs}, ensure_ascii=False, allow_nan=False).encode()
    return b"".join((text, *parts)), len(text) if parts else None


def _to_json(tensor: Tensor) -> list[object]:
    """Return the elements; JSON has no infinity, for which the largest number of the datatype stands."""
    if not isinstance(tensor.values, np.ndarray):
        return [each.decode() for each in tensor.values]
    return list(np.nan_to_num(tensor.values).tolist())


def to_bytes(tensor: Tensor) -> bytes:
    """Return the elements in the binary form."""
    if isinstance(tensor.values, np.ndarray):
        return bytes(tensor.values.astype(_NUMPY[tensor.datatype]).tobytes())
    return b"".join(part for each in tensor.values for part in (len(each).to_bytes(_LENGTH_BYTES, "little"), each))
