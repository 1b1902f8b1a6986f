"""Tests of imported ONNX files that give one number: rerankers and regression.

Shapes: `B` texts, `T` tokens.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from models.reading import validate
from models.store import load_bundle
from models.tasks.text_regression import Regressor
from models.text.encoding import EncodedText
from tests.training.importing.conftest import TEXTS, import_directory
from tests.training.importing.test_onnx_classifier import FLOAT, HALF, graph, saved
from training.importing.errors import ImportRefused

QUERY, ANSWERS = "Where is my parcel?", ("I want to cancel my order; please call me.", "one two", "naïve Straße 🙂")


def one_axis(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph whose numbers `[B]` are the columns `[B, 1]` of `model`."""
    nodes = model.graph.node
    nodes[-1].output[0] = "column"
    nodes.append(helper.make_node("Squeeze", ["column", "middle"], ["logits"]))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("logits", FLOAT, ["batch"]))
    return model


def unknown_size(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph that does not state how many scores it gives."""
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "scores"
    return model


def wide(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph whose number is computed by a product with a larger matrix first."""
    product = next(node for node in model.graph.node if node.op_type == "MatMul")
    matrix = np.random.default_rng(2).normal(size=(8, 600)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(matrix, "wide"))
    model.graph.initializer.append(numpy_helper.from_array(matrix.T.copy() / 600, "narrow"))
    place = list(model.graph.node).index(product)
    model.graph.node.insert(place, helper.make_node("MatMul", ["vector", "wide"], ["many"]))
    model.graph.node.insert(place + 1, helper.make_node("MatMul", ["many", "narrow"], ["few"]))
    product.input[0] = "few"
    return model


def loaded(bundle: Path) -> Regressor:
    model = load_bundle(bundle)
    assert isinstance(model, Regressor)
    return model


def numbers(file: Path, encoded: Sequence[EncodedText]) -> list[float]:
    """Return the number of each text or pair, computed alone by onnxruntime."""
    session, found = onnxruntime.InferenceSession(file), []
    for text in encoded:
        tokens = np.array([text.tokens])
        values = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": (np.arange(tokens.shape[1]) >= text.second).astype(np.int64)[None],
        }
        (scores,) = session.run(None, {each.name: values[each.name] for each in session.get_inputs()})
        found.append(scores.item())
    return found


@pytest.mark.parametrize(
    ("model", "tolerance"),
    [
        (graph(classes=1), 1e-5),
        (graph(("input_ids", "attention_mask"), classes=1, output="score"), 1e-5),
        (one_axis(graph(classes=1)), 1e-5),
        (unknown_size(graph(classes=1)), 1e-5),
        (graph(classes=1, result=HALF), 5e-3),
    ],
)
def test_numbers_are_those_of_the_file(model: onnx.ModelProto, tolerance: float, tmp_path: Path) -> None:
    """The configuration is missing, so that the outputs alone say what the model does."""
    directory = saved(tmp_path / "there", model)
    imported = import_directory(directory, tmp_path / "out")
    assert validate(imported.path) == []
    ours = loaded(imported.path)
    pairs = [(QUERY, answer) for answer in ANSWERS]
    queries = ours.queries([text for text in TEXTS if text], truncate=True) + ours.pair_queries(pairs)
    expected = numbers(directory / "model.onnx", [query.encoded for query in queries])
    assert [each.value for each in ours.run(queries)] == pytest.approx(expected, abs=tolerance)
    assert [ours.run([query])[0].value for query in queries] == pytest.approx(expected, abs=tolerance)
    ranks = ours.rerank(QUERY, ANSWERS, activation="none")
    assert [each.score for each in ranks] == pytest.approx(expected[-3:], abs=tolerance)
    source = imported.manifest.provenance.source
    assert source is not None
    assert source.architecture == "ONNX"
    assert source.compared_with.startswith("onnxruntime ")
    assert imported.manifest.softmax is None


def test_types_of_tokens_tell_the_texts_of_a_pair_apart(tmp_path: Path) -> None:
    ours = loaded(import_directory(saved(tmp_path / "there", graph(classes=1)), tmp_path / "out").path)
    assert ours.config.pairs is not None
    assert ours.config.pairs.segments
    without = graph(("input_ids", "attention_mask"), classes=1)
    other = loaded(import_directory(saved(tmp_path / "other", without), tmp_path / "out", name="other").path)
    assert other.config.pairs is not None
    assert not other.config.pairs.segments
    (typed,), (plain,) = (model.rerank(QUERY, ANSWERS[:1], activation="none") for model in (ours, other))
    assert abs(typed.score - plain.score) > 0.01


@pytest.mark.parametrize(
    ("config", "activation"),
    [
        (None, "sigmoid"),
        ({"problem_type": "regression"}, "none"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "none"),
        ({"id2label": {"0": "LABEL_0"}, "max_position_embeddings": 40}, "sigmoid"),
    ],
)
def test_the_score_is_as_the_configuration_says(config: dict[str, Any] | None, activation: str, tmp_path: Path) -> None:
    ours = loaded(import_directory(saved(tmp_path / "there", graph(classes=1), config), tmp_path / "out").path)
    assert ours.config.activation == activation
    assert ours.config.limits.max_tokens == (config or {}).get("max_position_embeddings", 512)


def test_int8(tmp_path: Path) -> None:
    found = import_directory(saved(tmp_path / "there", wide(graph(classes=1))), tmp_path / "out", quantization="int8")
    assert found.cost is not None
    assert found.cost.metric == "correlation with float32"
    assert found.cost.value > 0.9
    assert found.cost.difference > 0
    with pytest.raises(ImportRefused, match="int8 would change nothing"):
        import_directory(
            saved(tmp_path / "small", graph(classes=1)), tmp_path / "out", quantization="int8", name="small"
        )


@pytest.mark.parametrize(
    ("config", "model", "message"),
    [
        ({"id2label": {"0": "a"}}, graph(), "the graph gives 3 numbers for each text; export it with one"),
        (None, unknown_size(graph(classes=1, result=FLOAT, shape=(1, "sequence"))), "has a fixed size"),
    ],
)
def test_what_is_refused(config: dict[str, Any] | None, model: onnx.ModelProto, message: str, tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match=message):
        import_directory(saved(tmp_path / "there", model, config), tmp_path / "out")
