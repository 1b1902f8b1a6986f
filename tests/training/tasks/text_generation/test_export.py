"""Tests of exported text generators."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from models import Generator
from models.store import load_bundle
from tests.fixtures.generation import NOTES_RECIPE, train_generator
from training.bundling.bundle import WrittenBundle
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.tasks.text_generation import TextGenerationTask
from training.tasks.text_generation.quality import bundle_generation
from training.tasks.text_generation.reading import read_source_targets


def test_graphs_are_those_of_the_model(notes_export: WrittenBundle) -> None:
    assert set(notes_export.differences) == {"onnx", "torchscript"}
    assert max(notes_export.differences.values()) < 1e-5


def test_the_manifest_says_what_there_is(notes_export: WrittenBundle) -> None:
    manifest = notes_export.manifest
    assert manifest.task == "text-generation"
    assert manifest.config.network.kind == "unilm"
    assert (manifest.config.limits.max_tokens, manifest.config.limits.max_output_tokens) == (16, 8)
    assert manifest.softmax.sparse_k == 6
    test = [(quality.metric, quality.value) for quality in manifest.quality if quality.split == "test"]
    assert test[0][0] == "ROUGE-L"
    assert test[0][1] > 90


def test_the_card_has_the_numbers(notes_export: WrittenBundle) -> None:
    card = (notes_export.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    for quality in notes_export.manifest.quality:
        assert f" {quality.value:.2f} " in card
    assert "BERT encoder that also writes (UniLM), 2 layers, 32 hidden units" in card
    assert "Texts of up to 16 word pieces are read, and up to 8 are written." in card


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")
@pytest.mark.parametrize("backend", ["onnx", "torchscript"])
def test_the_bundle_writes_what_the_model_writes(
    backend: str, notes_export: WrittenBundle, notes_task: TextGenerationTask
) -> None:
    model = load_bundle(notes_export.path, backend=backend)
    assert isinstance(model, Generator)
    texts = read_source_targets(notes_task.recipe.data, "test", notes_task.data_dir)
    expected = notes_task.evaluate(notes_task.batches("test"))
    assert bundle_generation(model, texts, beam_size=1) == pytest.approx(expected.measurement.metrics)
    written = model.generate([text.source for text in texts], beam_size=1)
    assert [each.outputs[0].text for each in written] == expected.outputs


def test_int8_writes_nearly_the_same_whatever_stands_beside(notes_dir: Path, tmp_path: Path) -> None:
    content = {
        **NOTES_RECIPE,
        # Wide enough for matrices that are quantized at all.
        "network": {**NOTES_RECIPE["network"], "hidden_size": 64, "inner_size": 128, "vocab_size": 200, "layers": 1},
        "loop": {**NOTES_RECIPE["loop"], "learning_rate": 3e-3},
        "export": {"quantization": "int8", "torchscript": False},
    }
    run = RunDirectory(tmp_path / "run")
    train_generator(parse_recipe(content), notes_dir, run)
    exported = export_run(run, tmp_path / "bundles", notes_dir)
    step = onnx.load(exported.path / "step.onnx")
    assert sum(node.op_type == "MatMulIntegerToFloat" for node in step.graph.node) >= 5
    assert {tensor.data_type for tensor in step.graph.initializer if tensor.name == "encoder.positions"} == {1}
    assert exported.manifest.quantization is not None
    assert exported.manifest.quantization.float32_value > 90
    assert abs(exported.manifest.quantization.value - exported.manifest.quantization.float32_value) <= 5
    model = load_bundle(exported.path)
    assert isinstance(model, Generator)
    texts = ["so we saw old fox then", "there was red gnu", "we saw big ape and now then there"]
    alone = [model.generate([text])[0].outputs[0] for text in texts]
    together = [each.outputs[0] for each in model.generate(texts)]
    assert [each.text for each in alone] == [each.text for each in together]
    np.testing.assert_allclose([each.score for each in alone], [each.score for each in together], rtol=1e-3)


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")
def test_mask_tokens_are_in_the_graphs(masked_export: WrittenBundle, masked_task: TextGenerationTask) -> None:
    """The TorchScript graphs are float32, those of ONNX int8."""
    assert set(masked_export.differences) == {"onnx", "torchscript"}
    assert max(masked_export.differences.values()) < 1e-5
    texts = read_source_targets(masked_task.recipe.data, "test", masked_task.data_dir)
    sources = [text.source for text in texts]
    expected = masked_task.evaluate(masked_task.batches("test")).outputs
    for backend in ("torchscript", "onnx"):
        model = load_bundle(masked_export.path, backend=backend)
        assert isinstance(model, Generator)
        together = [each.outputs[0].text for each in model.generate(sources, beam_size=1)]
        assert together == [model.generate([source], beam_size=1)[0].outputs[0].text for source in sources]
        assert sum(ours == theirs for ours, theirs in zip(together, expected, strict=True)) >= len(texts) - 2
    step = onnx.load(masked_export.path / "step.onnx")
    assert sum(node.op_type == "MatMulIntegerToFloat" for node in step.graph.node) >= 5


def test_the_smallest_limits_are_exported(notes_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.tsv").write_text("".join(f"a {i}\tb c\n" for i in range(40)), encoding="utf-8")
    content = {
        **NOTES_RECIPE,
        "data": {**NOTES_RECIPE["data"], "max_tokens": 8, "max_output_tokens": 4},
        "network": {**NOTES_RECIPE["network"], "layers": 1},
        "loop": {**NOTES_RECIPE["loop"], "epochs": 1},
        "export": {"torchscript": False},
    }
    run = RunDirectory(tmp_path / "run")
    train_generator(parse_recipe(content), tmp_path, run)
    assert export_run(run, tmp_path / "bundles", tmp_path).differences["onnx"] < 1e-4
