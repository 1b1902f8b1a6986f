"""Make a bundle from an ONNX text classifier of another exporter, so that servers can be compared on one model.

    python -m benchmarks.classifier_bundle model.onnx tokenizer.json my-models

The ONNX graph, BERT-like, takes `input_ids` and `attention_mask` `[B, T]` and gives `logits` `[B, C]`; it is left as it
is, with the mask made from lengths before it and the best classes chosen after it. Classes are called "0", "1" and so
on.

Shapes: `B` texts, `T` tokens, `C` classes, `k` classes requested.
"""

import datetime
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import tyro
from onnx import TensorProto, helper, numpy_helper

from models.bundle.manifest import FORMAT_VERSION, MANIFEST
from models.reading import sha256_of
from models.text.tokenization import EncoderTokenizer

__all__ = ["make_bundle"]

_GRAPH, _TOKENIZER, _LABELS = "classify.onnx", "tokenizer.json", "labels.txt"
_INPUTS = {"tokens": ("int64", ("batch", "steps")), "lengths": ("int64", ("batch",)), "k": ("int64", ())}
_OUTPUTS = {"log_probabilities": ("float32", ("batch", "k")), "classes": ("int64", ("batch", "k"))}


def main(
    model: Annotated[Path, tyro.conf.Positional],
    tokenizer: Annotated[Path, tyro.conf.Positional],
    output: Annotated[Path, tyro.conf.Positional],
    name: str = "benchmark",
    max_tokens: int = 256,
) -> None:
    """Write OUTPUT/NAME/1 and print its path.

    Args:
        model: ONNX file.
        tokenizer: File of the library tokenizers.
        output: Directory that will hold the bundle.
        name: Name of the model.
        max_tokens: Longest text, in tokens.
    """
    print(make_bundle(model, tokenizer, output / name / "1", max_tokens=max_tokens))


def make_bundle(model: Path, tokenizer: Path, bundle: Path, *, max_tokens: int) -> Path:
    """Write a bundle of one ONNX file and its tokenizer; the directory is replaced."""
    shutil.rmtree(bundle, ignore_errors=True)
    bundle.mkdir(parents=True)
    graph = onnx.load(model)
    num_classes = graph.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    hidden, positions = _sizes(graph)
    onnx.save(_with_lengths_and_best(graph), bundle / _GRAPH)
    shutil.copy(tokenizer, bundle / _TOKENIZER)
    (bundle / _LABELS).write_text("".join(f"{number}\n" for number in range(num_classes)), encoding="utf-8")
    vocabulary = EncoderTokenizer.from_file(tokenizer)
    manifest = {
        "format_version": FORMAT_VERSION,
        "task": "text-classification",
        "name": bundle.parent.name,
        "version": int(bundle.name),
        "description": "For benchmarks: its labels mean nothing",
        "licence": "unstated",
        "softmax": {"kernels": [{"name": "lin"}]},
        "config": {
            "network": {
                "kind": "bert",
                "hidden_size": hidden,
                "inner_size": 4 * hidden,
                "heads": max(1, hidden // 32),
                "layers": 6,
                "pooling": "mean",
                "positions": positions,
            },
            "classes": {"file": _LABELS, "count": num_classes},
            "tokenizer": _TOKENIZER,
            "vocab_size": vocabulary.vocab_size,
            "special_tokens": {"unknown": vocabulary.unknown_id, "end": vocabulary.end_id},
            "limits": {"max_tokens": min(max_tokens, positions)},
        },
        "graphs": {"classify": {"onnx": _GRAPH, "inputs": _specs(_INPUTS), "outputs": _specs(_OUTPUTS)}},
        "quality": [],
        "provenance": {
            "recipe": {},
            "git_revision": "none",
            "data": [],
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "training_seconds": 0,
        },
        "files": {file: sha256_of(bundle / file) for file in (_GRAPH, _TOKENIZER, _LABELS)},
    }
    (bundle / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return bundle


def _specs(tensors: Mapping[str, tuple[str, tuple[str, ...]]]) -> list[dict[str, object]]:
    return [{"name": name, "dtype": dtype, "shape": list(shape)} for name, (dtype, shape) in tensors.items()]


def _sizes(model: onnx.ModelProto) -> tuple[int, int]:
    """Return hidden size and positions, from the embedding tables: positions are fewer than words."""
    tables = sorted(
        (table.dims[0], table.dims[1])
        for table in model.graph.initializer
        if len(table.dims) == 2 and table.dims[0] >= 128 and "pos" in table.name
    )
    return tables[0][1], tables[0][0]


def _with_lengths_and_best(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph with tokens, lengths and k as inputs, and the top-k classes as outputs."""
    graph = model.graph
    before = [
        _node("Identity", ["tokens"], "input_ids"),
        _node("Shape", ["tokens"], "steps_", start=1, end=2),
        _node("Squeeze", ["steps_"], "steps"),
        _node("Range", ["zero_", "steps", "one_"], "places"),
        _node("Unsqueeze", ["lengths", "last_axis_"], "ends"),
        _node("Less", ["places", "ends"], "inside"),
        _node("Cast", ["inside"], "attention_mask", to=TensorProto.INT64),
    ]
    after = [
        _node("LogSoftmax", ["logits"], "scores", axis=-1),
        _node("Unsqueeze", ["k", "first_axis_"], "count"),
        helper.make_node("TopK", ["scores", "count"], ["log_probabilities", "classes"], axis=-1),
    ]
    nodes = [*before, *graph.node, *after]
    constants: dict[str, int | list[int]] = {"zero_": 0, "one_": 1, "last_axis_": [1], "first_axis_": [0]}
    result = helper.make_graph(
        nodes,
        "classify",
        [_info(name, *spec) for name, spec in _INPUTS.items()],
        [_info(name, *spec) for name, spec in _OUTPUTS.items()],
        [*graph.initializer, *(_constant(name, value) for name, value in constants.items())],
    )
    return helper.make_model(result, opset_imports=model.opset_import, ir_version=model.ir_version)


def _node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), [output], **attributes)


def _constant(name: str, value: int | list[int]) -> TensorProto:
    return numpy_helper.from_array(np.array(value, np.int64), name)


def _info(name: str, dtype: str, shape: Sequence[str]) -> onnx.ValueInfoProto:
    kind = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT}[dtype]
    return helper.make_tensor_value_info(name, kind, list(shape))


if __name__ == "__main__":
    tyro.cli(main)
