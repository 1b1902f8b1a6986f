"""Weights of graphs in a file, so that a graph is as small as its nodes, however large the model is.

A serialized graph must be smaller than 2 GiB, and each copy of one would be a copy of all weights. Weights of a graph
are therefore kept in a file from when it is exported, and read from there, by mapping it, one at a time.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.external_data_helper import ExternalDataInfo, set_external_data, uses_external_data

from training.bundling.onnx_tools import without_weights

__all__ = ["SHARED_BYTES", "WEIGHTS", "WeightFile", "array_of", "save_graphs"]

WEIGHTS = "weights.bin"
"""File that holds the weights of all graphs of a bundle, each once."""
SHARED_BYTES = 4096
"""Smaller weights stay inside their graph."""
_PAGE = 4096
_CHUNK = 1 << 24
"""Bytes that are hashed and written at a time."""

Array = NDArray[np.generic]


class WeightFile:
    """A new file of weights, each of which is stored once and begins at a page, so that it can be mapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets: dict[bytes, int] = {}
        """By the SHA-256 of the weights."""
        path.write_bytes(b"")

    def add(self, array: Array) -> int:
        """Return the offset of the elements of an array, after they are written unless the file has them."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        parts = [content[first : first + _CHUNK] for first in range(0, len(content), _CHUNK)]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        found = self._offsets.get(digest.digest())
        if found is not None:
            return found
        with self.path.open("ab") as file:
            file.write(b"\0" * (-file.tell() % _PAGE))
            offset = self._offsets[digest.digest()] = file.tell()
            for part in parts:
                file.write(part)
        return offset

    def refer(self, tensor: onnx.TensorProto, array: Array, location: str) -> None:
        """Make a tensor that has name, type and shape refer to the elements of an array in this file."""
        offset = self.add(array)
        tensor.raw_data = b""
        set_external_data(tensor, location, offset, array.nbytes)
        tensor.ClearField("raw_data")


def array_of(tensor: onnx.TensorProto) -> NDArray[Any]:
    """Return the elements of a weight; those in a file are mapped, and can't be changed."""
    if not uses_external_data(tensor):
        return numpy_helper.to_array(tensor)
    place = ExternalDataInfo(tensor)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return np.memmap(place.location, dtype, "r", place.offset or 0, tuple(tensor.dims))


def save_graphs(models: Mapping[str, onnx.ModelProto], directory: Path) -> list[str]:
    """Write `<name>.onnx` for each model and `weights.bin`, which holds equal weights once; return the file names.

    The models themselves stay as they are.
    """
    weights = WeightFile(directory / WEIGHTS)
    for name, original in models.items():
        model = without_weights(original)
        for tensor in original.graph.initializer:
            stored, array = model.graph.initializer.add(), array_of(tensor)
            if array.nbytes < SHARED_BYTES:
                stored.CopyFrom(tensor)
                continue
            stored.name, stored.data_type = tensor.name, tensor.data_type
            stored.dims.extend(tensor.dims)
            weights.refer(stored, array, WEIGHTS)
        onnx.save_model(model, directory / f"{name}.onnx")
    return [*(f"{name}.onnx" for name in models), WEIGHTS]
