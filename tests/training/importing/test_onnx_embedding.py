"""Tests of imported ONNX files of text embeddings.

Shapes: `B` texts, `T` tokens, `d` dimensions.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from models.reading import validate
from models.store import load_bundle
from models.tasks.text_embedding import Embedder
from tests.support.random_classifiers import TOKENIZERS
from tests.training.cli.test_cli import run_cli
from tests.training.importing.conftest import TEXTS, import_directory
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
HIDDEN, VECTORS = "last_hidden_state", "sentence_embedding"
MODULES = [
    {"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
]
NORMALIZED = [*MODULES, {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}]


def graph(*outputs: str, dimensions: int = 8, kind: int = FLOAT, padding: float = 1000) -> onnx.ModelProto:
    """Return a model whose hidden states depend on a token and the mean of those that the mask leaves.

    Its vectors are the sums of hidden states of the first token and the mean. `padding` is each
    element of the vector of token 0.
    """
    random = np.random.default_rng(0)
    weights = {
        "vectors": random.normal(size=(400, 8)).astype(np.float32),
        "matrix": random.normal(size=(8, dimensions)).astype(np.float32),
        "last": np.array([2]),
        "middle": np.array([1]),
        "first": np.array(0),
    }
    weights["vectors"][0] = padding
    nodes = [
        helper.make_node("Gather", ["vectors", "input_ids"], ["embedded"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["weights"]),
        helper.make_node("Mul", ["embedded", "weights"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "middle"], ["sum"], keepdims=1),
        helper.make_node("ReduceSum", ["weights", "middle"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("Add", ["embedded", "mean"], ["together"]),
        helper.make_node("MatMul", ["together", "matrix"], ["hidden"]),
        helper.make_node("Gather", ["hidden", "first"], ["vector"], axis=1),
    ]
    shapes = {VECTORS: ("vector", ["batch", dimensions])}
    results = []
    for name in outputs:
        found, shape = shapes.get(name, ("hidden", ["batch", "sequence", dimensions]))
        nodes.append(helper.make_node("Cast", [found], [name], to=kind))
        results.append(helper.make_tensor_value_info(name, kind, shape))
    made = helper.make_graph(
        nodes,
        "embedder",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
            for name in ("input_ids", "attention_mask")
        ],
        results,
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def saved(directory: Path, model: onnx.ModelProto, *, place: str = "", **files: object) -> Path:
    """Write a model's directory; `files` are contents by names without `.json`, with `__` for a slash."""
    (directory / place).mkdir(parents=True)
    onnx.save(model, directory / place / "model.onnx")
    build, _ = TOKENIZERS["BertForSequenceClassification"]
    build().save(str(directory / "tokenizer.json"))
    for name, content in files.items():
        path = directory / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    return directory


def loaded(bundle: Path) -> Embedder:
    model = load_bundle(bundle)
    assert isinstance(model, Embedder)
    return model


def results(file: Path, ours: Embedder, output: str, texts: tuple[str, ...] = TEXTS) -> list[NDArray[np.float32]]:
    """Return an output for each text, computed alone by onnxruntime."""
    session, found = onnxruntime.InferenceSession(file), []
    for query in ours.queries(texts, truncate=True):
        tokens = np.array([query.encoded.tokens])
        (values,) = session.run([output], {"input_ids": tokens, "attention_mask": np.ones_like(tokens)})
        found.append(values[0].astype(np.float32))
    return found


def check(ours: Embedder, expected: list[NDArray[np.float32]], tolerance: float = 1e-5) -> None:
    """Compare raw vectors, in a batch and alone."""
    together = ours.embed(TEXTS, normalize=False, truncate=True)
    np.testing.assert_allclose(together, np.stack(expected), atol=tolerance)
    alone = [ours.embed([text], normalize=False, truncate=True)[0] for text in TEXTS]
    np.testing.assert_allclose(np.stack(alone), np.stack(expected), atol=tolerance)


@pytest.mark.parametrize(
    ("outputs", "kind", "tolerance"),
    [((VECTORS,), FLOAT, 1e-5), (("token_embeddings", VECTORS), FLOAT, 1e-5), ((VECTORS,), HALF, 1e-2)],
)
def test_vectors_are_those_of_the_file(outputs: tuple[str, ...], kind: int, tolerance: float, tmp_path: Path) -> None:
    directory = saved(tmp_path / "there", graph(*outputs, kind=kind))
    imported = import_directory(directory, tmp_path / "out")
    assert validate(imported.path) == []
    ours = loaded(imported.path)
    assert (ours.config.dimensions, ours.config.normalized, ours.config.limits.max_tokens) == (8, False, 512)
    check(ours, results(directory / "model.onnx", ours, VECTORS), tolerance)
    source = imported.manifest.provenance.source
    assert source is not None
    assert (source.architecture, sorted(source.files)) == ("ONNX", ["model.onnx", "tokenizer.json"])


@pytest.mark.parametrize("output", [HIDDEN, "token_embeddings"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_hidden_states_are_pooled(output: str, pooling: str, tmp_path: Path) -> None:
    directory = saved(tmp_path / "there", graph(output, "pooler_output"))
    with pytest.raises(ImportRefused, match=r"has no modules\.json, .*: give --pooling mean or cls"):
        import_directory(directory, tmp_path / "out")
    ours = loaded(import_directory(directory, tmp_path / "out", options=ImportOptions(pooling=pooling)).path)
    hidden = results(directory / "model.onnx", ours, output)
    check(ours, [each[0] if pooling == "cls" else each.mean(0) for each in hidden])


def test_modules_say_how_vectors_are_made(tmp_path: Path) -> None:
    directory = saved(
        tmp_path / "there",
        graph(HIDDEN),
        modules=NORMALIZED,
        **{"1_Pooling__config": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}},
        sentence_bert_config={"max_seq_length": 20, "do_lower_case": True},
        config_sentence_transformers={"prompts": {"query": "one "}, "default_prompt_name": "query"},
    )
    ours = loaded(import_directory(directory, tmp_path / "out").path)
    assert (ours.config.limits.max_tokens, ours.config.dimensions) == (20, 16)
    assert (ours.config.default_prompt, ours.config.normalized) == ("query", True)
    hidden = results(directory / "model.onnx", ours, HIDDEN, ("Order",))
    vector = np.concatenate([hidden[0][0], hidden[0].mean(0)])
    np.testing.assert_allclose(ours.embed(["Order"])[0], vector / np.linalg.norm(vector), atol=1e-5)
    np.testing.assert_allclose(ours.embed(["one ORDER"], prompt=""), ours.embed(["order"]), atol=1e-5)


def test_the_pooling_of_modules_is_in_the_graph_of_vectors(tmp_path: Path) -> None:
    dense = {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}
    directory = saved(tmp_path / "there", graph(VECTORS), modules=[*MODULES, dense, NORMALIZED[-1]])
    ours = loaded(import_directory(directory, tmp_path / "out").path)
    assert ours.config.normalized
    assert ours.config.pooling == "pooling: by the given graph"
    check(ours, results(directory / "model.onnx", ours, VECTORS))


def test_the_graph_may_lie_in_a_directory_of_its_own(tmp_path: Path) -> None:
    model = graph(HIDDEN)
    directory = saved(
        tmp_path / "My Model", model, place="onnx", modules=MODULES, **{"1_Pooling__config": {"pooling_mode": "mean"}}
    )
    file = directory / "onnx" / "model.onnx"
    onnx.save(model, file, save_as_external_data=True, location="model.data", size_threshold=1000)
    for number, given in enumerate((directory, file), 1):
        result = run_cli("import", given, "--output", tmp_path / "out", "--licence", "unstated", "--version", number)
        assert result.code == 0, result.output
        ours = loaded(tmp_path / "out" / "my-model" / str(number))
        check(ours, [each.mean(0) for each in results(file, ours, HIDDEN)])
        source = ours.manifest.provenance.source
        assert source is not None
        assert {"onnx/model.data", "onnx/model.onnx", "modules.json"} <= set(source.files)


def test_int8(tmp_path: Path) -> None:
    directory = saved(tmp_path / "there", graph(VECTORS, dimensions=600, padding=1))
    imported = import_directory(directory, tmp_path / "out", quantization="int8")
    assert imported.cost is not None
    assert imported.cost.metric == "correlation of similarities with float32"
    assert imported.cost.value > 0.9
    assert imported.cost.difference > 0


DENSE: dict[str, Any] = {"activation_function": "torch.nn.modules.activation.Tanh"}


@pytest.mark.parametrize(
    ("outputs", "pooling", "files", "message"),
    [
        ((HIDDEN,), "max", {}, "pooling max: of ONNX files with hidden states, cls and mean can be imported"),
        ((VECTORS,), "mean", {}, "--pooling is for hidden states, and the graph gives vectors"),
        ((HIDDEN,), "mean", {"modules": MODULES}, r"--pooling is for encoders without modules\.json"),
        (
            (HIDDEN,),
            None,
            {"modules": MODULES, "1_Pooling__config": {"pooling_mode": "lasttoken"}},
            "pooling lasttoken: of ONNX files",
        ),
        (
            ("first", "second"),
            None,
            {},
            "has the outputs first, second, none of them one of logits, sentence_embedding",
        ),
        (("output",), None, {}, "hidden states of a model of embeddings must be named last_hidden_state or token_emb"),
    ],
)
def test_what_is_refused(
    outputs: tuple[str, ...], pooling: str | None, files: dict[str, object], message: str, tmp_path: Path
) -> None:
    directory = saved(tmp_path / "there", graph(*outputs), **files)
    with pytest.raises(ImportRefused, match=message):
        import_directory(directory, tmp_path / "out", options=ImportOptions(pooling=pooling))
    assert not (tmp_path / "out" / "it").exists()


def test_dense_layers_are_refused(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    dense = {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}
    files = {"1_Pooling__config": {"pooling_mode": "mean"}, "2_Dense__config": DENSE}
    directory = saved(tmp_path / "there", graph(HIDDEN), modules=[*MODULES, dense], **files)
    save_file({"linear.weight": torch.zeros(4, 8)}, directory / "2_Dense" / "model.safetensors")
    with pytest.raises(ImportRefused, match="dense layers after hidden states of ONNX files cannot be imported"):
        import_directory(directory, tmp_path / "out")
