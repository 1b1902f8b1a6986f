"""What the export of ONNX graphs and their quantization share."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

import onnx
from google.protobuf.message import Message

__all__ = ["check_graph", "keep_used_weights", "need_runtime_operators", "quiet", "without_weights"]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard the progress, advice and warnings about their own internals that exporters and quantizers print."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def keep_used_weights(model: onnx.ModelProto) -> None:
    """Remove the weights that no node of a model reads."""
    used = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def need_runtime_operators(model: onnx.ModelProto) -> None:
    """Add ONNX Runtime's own operators to those that a model imports, unless it does."""
    if all(opset.domain != "com.microsoft" for opset in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model that lacks its initializers, which may be too large to be copied or serialized."""
    copy = onnx.ModelProto()
    _copy_fields(model, copy, without="graph")
    _copy_fields(model.graph, copy.graph, without="initializer")
    return copy


def _copy_fields(source: Message, target: Message, without: str) -> None:
    for field, value in source.ListFields():
        if field.name == without:
            continue
        if isinstance(value, Message):
            getattr(target, field.name).CopyFrom(value)
        elif isinstance(value, (str, bytes, int)):
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).extend(value)


def check_graph(model: onnx.ModelProto) -> None:
    """Check the graph of a model whatever the size of its weights; raises `onnx.checker.ValidationError`.

    The checker reads a serialized model, which must be smaller than 2 GiB: here the weights are inputs.
    """
    copy = without_weights(model)
    inputs = {each.name for each in copy.graph.input}
    copy.graph.input.extend(
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
        if tensor.name not in inputs
    )
    onnx.checker.check_model(copy)
