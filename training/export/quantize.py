"""Dynamic int8 quantization: weights stored as int8, activations quantized as they come."""

import logging
import tempfile
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

__all__ = ["quantize_int8"]


def quantize_int8(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with int8 matrix products, LSTM weights and word vectors (ONNX Runtime's dynamic quantization).

    Matrices have one scale per output channel. Measure the result: kernels of distances are more sensitive to
    rounded weights than inner products, since a distance is a small difference of large numbers.
    """
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it advises a pre-processing that dynamic quantization does not need
    try:
        with tempfile.TemporaryDirectory() as directory:
            result = Path(directory) / "int8.onnx"
            quantize_dynamic(
                model,
                result,
                op_types_to_quantize=["MatMul", "Gemm", "LSTM", "Gather"],
                per_channel=True,
                weight_type=QuantType.QInt8,
            )
            return onnx.load(result)
    finally:
        logger.setLevel(level)
