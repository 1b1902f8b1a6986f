"""Dynamic int8 quantization: weights stored as int8, activations quantized as they come."""

import logging
import tempfile
from pathlib import Path

import onnx
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

__all__ = ["quantize_int8"]


def quantize_int8(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with int8 matrix products, LSTM weights and word vectors (ONNX Runtime's dynamic quantization).

    Matrices have one scale per output channel. Measure the result: kernels of distances are more sensitive to
    rounded weights than inner products, since a distance is a small difference of large numbers.
    """
    plain = _without_gemm(model)
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it advises a pre-processing that dynamic quantization does not need
    try:
        with tempfile.TemporaryDirectory() as directory:
            result = Path(directory) / "int8.onnx"
            quantize_dynamic(
                plain,
                result,
                op_types_to_quantize=["MatMul", "LSTM", "Gather"],
                per_channel=True,
                weight_type=QuantType.QInt8,
            )
            return onnx.load(result)
    finally:
        logger.setLevel(level)


def _without_gemm(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which products with a transposed weight are plain ones, the only kind that gets a scale per column."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    weights = {tensor.name: tensor for tensor in copy.graph.initializer}
    for node in copy.graph.node:
        if node.op_type != "Gemm" or len(node.input) > 2:
            continue
        name = f"{node.input[1]}_transposed"
        if name not in weights:
            transposed = numpy_helper.to_array(weights[node.input[1]]).T.copy()
            weights[name] = numpy_helper.from_array(transposed, name)
            copy.graph.initializer.append(weights[name])
        node.op_type = "MatMul"
        node.input[1] = name
        del node.attribute[:]
    return copy
