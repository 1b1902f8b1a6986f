"""Vectors in fewer bits, without calibration data: float16, int8, and one bit for each dimension.

Shapes: `d` dimensions.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.backend import Array
from models.errors import QueryError
from models.operations.encoding import Precision

__all__ = ["checked_row", "in_precision"]

_SCALE = 127
"""The integer that stands for 1, the largest element of a vector of length 1."""
_OFFSET = 128
"""Subtracted from bytes of bits, so that they are signed, as `quantize_embeddings` of sentence-transformers does."""
_DTYPES: Mapping[Precision, type[Any]] = {
    "float32": np.float32,
    "float16": np.float16,
    "int8": np.int8,
    "binary": np.int8,
    "ubinary": np.uint8,
}


def checked_row(dimensions: int, precision: Precision, *, normalized: bool) -> tuple[int, np.dtype[Any]]:
    """Return the size and the type of a vector of so many dimensions.

    Raises `QueryError` for int8 where vectors do not have length 1, and for bits that fill no whole bytes.
    """
    if precision == "int8" and not normalized:
        raise QueryError(
            "the precision int8 is for vectors of length 1, whose elements are from -1 to 1; see normalize"
        )
    bits = precision in ("binary", "ubinary")
    if bits and dimensions % 8:
        raise QueryError(f"the precision {precision} needs dimensions that are a multiple of 8, not {dimensions}")
    return dimensions // 8 if bits else dimensions, np.dtype(_DTYPES[precision])


def in_precision(vector: Array, precision: Precision) -> Array:
    """Return a vector `[d]` of float32 in a precision, `[d]` or `[d / 8]`.

    int8 has `round(127 x)` of each element `x` of a vector of length 1. Bits say which elements are above 0, the first
    one in the highest bit of the first byte; `binary` has the bytes less 128, `ubinary` the bytes. What float16 cannot
    have becomes its largest number.
    """
    match precision:
        case "float32":
            return vector
        case "float16":
            most = float(np.finfo(np.float16).max)
            halves: Array = np.clip(vector, -most, most).astype(np.float16)
            return halves
        case "int8":
            steps: Array = np.clip(np.rint(vector * _SCALE), -_SCALE, _SCALE).astype(np.int8)
            return steps
    packed: Array = np.packbits(vector > 0)
    return packed if precision == "ubinary" else (packed.astype(np.int16) - _OFFSET).astype(np.int8)
