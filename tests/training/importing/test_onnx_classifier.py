"""Tests of imported ONNX classifiers.

Shapes: `B` texts, `T` tokens, `C` classes, `d` hidden size, `V` tokens of the vocabulary.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.store import load_bundle
from models.tasks.text_classification import Classifier
from tests.support.random_classifiers import TOKENIZERS
from tests.training.cli.test_cli import run_cli
from tests.training.importing.conftest import TEXTS, import_directory
from training.bundling.bundle import WrittenBundle
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions

INT, FLOAT, HALF = TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT16
LABELS = {"0": "no", "1": "yes", "2": "perhaps"}


def graph(
    inputs: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids"),
    *,
    kind: int = INT,
    shape: tuple[Any, Any] = ("batch", "sequence"),
    output: str = "logits",
    result: int = FLOAT,
    classes: int = 3,
    opset: int = 17,
) -> onnx.ModelProto:
    """Return a classifier: the mean of the vectors of the tokens that the mask leaves, or the vector of the first."""
    vectors, matrix = (
        np.random.default_rng(seed).normal(size=size).astype(np.float32)
        for seed, size in ((0, (400, 8)), (1, (8, classes)))
    )
    nodes = [helper.make_node("Gather", ["vectors", "input_ids"], ["embedded"])]
    if "token_type_ids" in inputs:  # their vector is that of token 7, so that another value than 0 would be seen
        nodes += [
            helper.make_node("Cast", ["token_type_ids"], ["types"], to=FLOAT),
            helper.make_node("Unsqueeze", ["types", "last"], ["columns"]),
            helper.make_node("Add", ["embedded", "columns"], ["typed"]),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["embedded"], ["typed"]))
    if "attention_mask" in inputs:
        nodes += [
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["weights"]),
            helper.make_node("Mul", ["typed", "weights"], ["kept"]),
            helper.make_node("ReduceSum", ["kept", "middle"], ["sum"], keepdims=0),
            helper.make_node("ReduceSum", ["weights", "middle"], ["count"], keepdims=0),
            helper.make_node("Div", ["sum", "count"], ["vector"]),
        ]
    else:
        nodes.append(helper.make_node("Gather", ["typed", "first"], ["vector"], axis=1))
    nodes += [
        helper.make_node("MatMul", ["vector", "matrix"], ["scores"]),
        helper.make_node("Cast", ["scores"], [output], to=result),
    ]
    weights = {
        "vectors": vectors, "matrix": matrix, "last": np.array([2]), "middle": np.array([1]), "first": np.array(0)
    }  # fmt: skip
    made = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info(name, kind, shape) for name in inputs],
        [helper.make_tensor_value_info(output, result, [shape[0], classes])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def saved(directory: Path, model: onnx.ModelProto, config: dict[str, Any] | None = None) -> Path:
    directory.mkdir(parents=True)
    onnx.save(model, directory / "model.onnx")
    build, _ = TOKENIZERS["BertForSequenceClassification"]
    build().save(str(directory / "tokenizer.json"))
    if config is not None:
        (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


def loaded(imported: WrittenBundle) -> Classifier:
    model = load_bundle(imported.path)
    assert isinstance(model, Classifier)
    return model


@pytest.mark.parametrize(
    "model",
    [
        graph(),
        graph(("input_ids", "attention_mask")),
        graph(("input_ids",)),
        graph(("attention_mask", "input_ids"), kind=TensorProto.INT32, output="scores_of_classes"),
        graph(result=HALF),
    ],
)
def test_results_are_those_of_the_file(model: onnx.ModelProto, tmp_path: Path) -> None:
    directory = saved(tmp_path / "there", model, {"id2label": LABELS})
    ours = loaded(import_directory(directory, tmp_path / "out"))
    session = onnxruntime.InferenceSession(directory / "model.onnx")
    names = {each.name: np.int32 if "int32" in each.type else np.int64 for each in session.get_inputs()}
    results = ours.classify([TEXTS[0]], 3) + ours.classify([text for text in TEXTS if text], 3, truncate=True)
    tokens = np.array([ours.query(TEXTS[0], 3).tokens])
    values = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
    (scores,) = session.run(None, {name: values[name].astype(kind) for name, kind in names.items()})
    expected = np.exp(scores[0].astype(float)) / np.exp(scores[0].astype(float)).sum()
    for result in results[:2]:
        found = {each.label: each.probability for each in result.labels}
        tolerance = 2e-3 if scores.dtype == np.float16 else 1e-5
        np.testing.assert_allclose([found[label] for label in LABELS.values()], expected, atol=tolerance)


def test_labels_and_length_have_defaults(tmp_path: Path) -> None:
    imported = import_directory(saved(tmp_path / "there", graph()), tmp_path / "out")
    assert (imported.path / "labels.txt").read_text(encoding="utf-8") == "0\n1\n2\n"
    config = loaded(imported).config
    assert (config.limits.max_tokens, config.classes.independent) == (512, False)
    source = imported.manifest.provenance.source
    assert source is not None
    assert (source.architecture, sorted(source.files)) == ("ONNX", ["model.onnx", "tokenizer.json"])
    assert source.compared_with.startswith("onnxruntime ")


def test_a_configuration_beside_it_is_read(tmp_path: Path) -> None:
    config = {"id2label": LABELS, "problem_type": "multi_label_classification", "max_position_embeddings": 40, "dim": 8}
    model = loaded(import_directory(saved(tmp_path / "there", graph(), config), tmp_path / "out"))
    assert model.config.limits.max_tokens == 40
    assert (model.config.classes.independent, model.config.classes.threshold) == (True, 0.5)
    assert model.config.network.hidden_size == 8
    (found,) = model.classify([TEXTS[0]], 3)
    assert abs(sum(each.probability for each in found.labels) - 1) > 0.01


def test_int8(tmp_path: Path) -> None:
    imported = import_directory(saved(tmp_path / "there", graph(classes=600)), tmp_path / "out", quantization="int8")
    assert imported.cost is not None
    assert imported.cost.difference > 0
    assert "classify.cuda.onnx" in {file.name for file in imported.path.iterdir()}


def test_int8_that_would_change_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="int8 would change nothing"):
        import_directory(saved(tmp_path / "there", graph()), tmp_path / "out", quantization="int8")


def test_weights_may_lie_in_another_file(tmp_path: Path) -> None:
    directory = saved(tmp_path / "there", graph())
    onnx.save(graph(), directory / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=0)
    source = import_directory(directory, tmp_path / "out").manifest.provenance.source
    assert source is not None
    assert sorted(source.files) == ["model.data", "model.onnx", "tokenizer.json"]
    (directory / "model.data").unlink()
    with pytest.raises(ImportRefused, match=r"has no model\.data"):
        import_directory(directory, tmp_path / "again")


def test_weights_of_other_directories_are_not_read(tmp_path: Path) -> None:
    directory = saved(tmp_path / "there", graph())
    onnx.save(graph(), directory / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=0)
    (directory / "model.data").rename(tmp_path / "secret")
    model = onnx.load(directory / "model.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "../secret" if entry.key == "location" else entry.value
    (directory / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ImportRefused):
        import_directory(directory, tmp_path / "out")


@pytest.mark.parametrize(
    ("model", "config", "message"),
    [
        (graph(("input_ids", "attention_mask", "pixel_values")), {}, "has the inputs input_ids, attention_mask, pixel"),
        (graph(shape=(1, "sequence")), {}, "has a fixed size"),
        (graph(shape=("batch", 128)), {}, "has a fixed size"),
        (graph(kind=FLOAT), {}, "must be a matrix of int64 or int32|is not an ONNX file|does not load"),
        (graph(), {"problem_type": "regression"}, "the graph gives 3 numbers for each text; export it with one"),
        (graph(), {"id2label": {"0": "a", "1": "b"}}, "the graph has 3 classes, id2label in config.json has 2"),
        (graph(opset=12), {}, "operators of version 12; export it with version 13|is not an ONNX file"),
        (graph(result=TensorProto.DOUBLE), {}, "must be a matrix of scores"),
    ],
)
def test_what_cannot_be_imported(model: onnx.ModelProto, config: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match=message):
        import_directory(saved(tmp_path / "there", model, config), tmp_path / "out")


def test_a_file_that_is_no_graph(tmp_path: Path) -> None:
    directory = saved(tmp_path / "there", graph())
    for content in (b"", b"\xff" * 50, b"not onnx"):
        (directory / "model.onnx").write_bytes(content)
        with pytest.raises(ImportRefused, match=r"model\.onnx is not an ONNX file|onnxruntime does not load"):
            import_directory(directory, tmp_path / "out")


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    directory = saved(tmp_path / "there", graph())
    content = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"] |= {f"word{number}": number for number in range(300, 500)}
    (directory / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ImportRefused, match="or is the tokenizer another model's"):
        import_directory(directory, tmp_path / "out")


def test_a_limit(tmp_path: Path) -> None:
    directory = saved(tmp_path / "there", graph())
    imported = import_directory(directory, tmp_path / "out", options=ImportOptions(max_tokens=9))
    assert loaded(imported).config.limits.max_tokens == 9
    with pytest.raises(ImportRefused, match="--max-tokens must be at least 3"):
        import_directory(directory, tmp_path / "out", options=ImportOptions(max_tokens=2))


def test_the_command_takes_a_file_or_its_directory(tmp_path: Path) -> None:
    directory = saved(tmp_path / "there", graph())
    result = run_cli("import", directory / "model.onnx", "--output", tmp_path / "out", "--licence", "unstated")
    assert result.code == 0, result.output
    assert (tmp_path / "out" / "there" / "1" / "manifest.json").exists(), "not model, which says nothing"
    onnx.save(graph(), directory / "other.onnx")
    result = run_cli("import", directory, "--output", tmp_path / "out", "--licence", "unstated")
    assert "has several ONNX files; name the one to import: model.onnx, other.onnx" in result.code
