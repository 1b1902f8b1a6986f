"""What the export of ONNX graphs and their quantization share."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

import onnx

__all__ = ["keep_used_weights", "quiet"]


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
