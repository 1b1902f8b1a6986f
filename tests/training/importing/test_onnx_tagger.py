"""Tests of imported ONNX files of token classification.

Shapes: `B` texts, `T` tokens, `C` labels, `d` hidden size.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.reading import validate
from models.store import load_bundle
from models.tasks.token_classification import Tagger
from tests.support.random_classifiers import TOKENIZERS
from tests.training.importing.conftest import TEXTS, import_directory
from training.importing.errors import ImportRefused

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
CONFIG: dict[str, Any] = {
    "architectures": ["BertForTokenClassification"],
    "id2label": dict(enumerate(LABELS)),
    "max_position_embeddings": 40,
}


def graph(labels: int = 5) -> onnx.ModelProto:
    """Return a model whose scores are of a token's vector and the mean of those that the mask leaves."""
    random = np.random.default_rng(0)
    weights = {
        "vectors": random.normal(size=(400, 8)).astype(np.float32),
        "matrix": random.normal(size=(8, labels)).astype(np.float32),
        "last": np.array([2]),
        "middle": np.array([1]),
    }
    nodes = [
        helper.make_node("Gather", ["vectors", "input_ids"], ["embedded"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["weights"]),
        helper.make_node("Mul", ["embedded", "weights"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "middle"], ["sum"], keepdims=1),
        helper.make_node("ReduceSum", ["weights", "middle"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("Add", ["embedded", "mean"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "matrix"], ["logits"]),
    ]
    made = helper.make_graph(
        nodes,
        "tagger",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", labels])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def saved(directory: Path, config: dict[str, Any] | None = None, labels: int = 5) -> Path:
    directory.mkdir(parents=True)
    onnx.save(graph(labels), directory / "model.onnx")
    build, _ = TOKENIZERS["BertForSequenceClassification"]
    build().save(str(directory / "tokenizer.json"))
    if config is not None:
        (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


def test_labels_are_those_of_the_file(tmp_path: Path) -> None:
    directory = saved(tmp_path / "there", CONFIG)
    imported = import_directory(directory, tmp_path / "out")
    assert validate(imported.path) == []
    ours = load_bundle(imported.path)
    assert isinstance(ours, Tagger)
    assert (ours.labels, ours.longest_input) == (LABELS, 40)
    session = onnxruntime.InferenceSession(directory / "model.onnx")
    encoded = [query.windows[0].encoded for query in ours.queries([text for text in TEXTS if text], truncate=True)]
    for text, found in zip(encoded, ours.log_probabilities(encoded), strict=True):
        tokens = np.array([text.tokens])
        (scores,) = session.run(None, {"input_ids": tokens, "attention_mask": np.ones_like(tokens)})
        np.testing.assert_allclose(found, scores[0] - np.logaddexp.reduce(scores[0], -1, keepdims=True), atol=1e-5)
    source = imported.manifest.provenance.source
    assert source is not None
    assert source.architecture == "ONNX"


def test_int8(tmp_path: Path) -> None:
    labels = {"id2label": {number: f"label {number}" for number in range(600)}}
    directory = saved(tmp_path / "there", CONFIG | labels, 600)
    imported = import_directory(directory, tmp_path / "out", quantization="int8")
    assert imported.cost is not None
    assert imported.cost.difference > 0
    assert 0.5 < imported.cost.value <= 1


def test_int8_that_would_change_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="int8 would change nothing"):
        import_directory(saved(tmp_path / "there", CONFIG), tmp_path / "out", quantization="int8")


@pytest.mark.parametrize(
    ("config", "labels", "message"),
    [
        (None, 5, r"must be a matrix of scores, \[texts, classes\]; of a model that labels tokens, architectures in"),
        ({**CONFIG, "architectures": ["BertModel"]}, 5, "must name a class ...ForTokenClassification"),
        (CONFIG, 4, "the model has 4 labels, id2label in config.json has 5"),
        (CONFIG, 1, "the model has 1 labels"),
    ],
)
def test_what_is_refused(config: dict[str, Any] | None, labels: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match=message):
        import_directory(saved(tmp_path / "there", config, labels), tmp_path / "out")
