"""Compute the matrices that weights in blocks stand for, one number at a time by ONNX Runtime's description."""

import numpy as np
from numpy.typing import NDArray

from training.bundling.block_quantization import BLOCK, Bits, quantized_blocks

__all__ = ["dequantized", "rounded"]

Floats = NDArray[np.float32]
Integers = NDArray[np.uint8]


def rounded(matrix: Floats, bits: Bits, block: int = BLOCK) -> Floats:
    """Return a matrix `[N, K]` as it is after quantization."""
    integers, scales, zeros = quantized_blocks(matrix, bits, block)
    return dequantized(integers, scales, zeros)[:, : matrix.shape[1]]


def dequantized(integers: Integers, scales: Floats, zeros: Integers | None) -> Floats:
    """Return the matrix `[N, b s]` of integers in blocks `[N, b, bytes]`, scales `[N, b]` and packed zeros.

    Integers have 4 bits with zeros, and 8 without.
    """
    outputs, blocks, _ = integers.shape
    values = integers if zeros is None else _halves(integers)
    offsets = np.full((outputs, blocks), 128) if zeros is None else _halves(zeros)[:, :blocks]
    found: Floats = ((values.astype(np.float64) - offsets[..., None]) * scales[..., None]).astype(np.float32)
    return found.reshape(outputs, -1)


def _halves(packed: Integers) -> Integers:
    """Return the lower and the upper half of each byte: `[..., n]` -> `[..., 2 n]`."""
    return np.stack([packed % 16, packed // 16], axis=-1).reshape(*packed.shape[:-1], -1)
