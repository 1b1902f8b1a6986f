"""Tests of exported text generators."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from models import Generator
from models.store import load_bundle
from training.checkpoint import RunDirectory
from training.data.rewritten_texts import read_rewritten
from training.export.bundle import Exported, export_run
from training.export.text_generation import bundle_generation
from training.tasks.text_generation import TextGenerationTask


def test_graphs_are_those_of_the_model(notes_export: Exported) -> None:
    assert set(notes_export.differences) == {"onnx", "torchscript"}
    assert max(notes_export.differences.values()) < 1e-5


def test_the_manifest_says_what_there_is(notes_export: Exported) -> None:
    manifest = notes_export.manifest
    assert manifest.task == "text-generation"
    assert manifest.network.kind == "unilm"
    assert (manifest.limits.max_tokens, manifest.limits.max_output_tokens) == (16, 8)
    assert manifest.softmax.sparse_k == 6
    test = [(quality.metric, quality.value) for quality in manifest.quality if quality.split == "test"]
    assert test[0][0] == "ROUGE-L"
    assert test[0][1] > 90


def test_the_card_has_the_numbers(notes_export: Exported) -> None:
    card = (notes_export.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    for quality in notes_export.manifest.quality:
        assert f" {quality.value:.2f} " in card
    assert "BERT encoder that also writes (UniLM), 2 layers, 32 hidden units" in card
    assert "Texts of up to 16 word pieces are read, and up to 8 are written." in card


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")
@pytest.mark.parametrize("backend", ["onnx", "torchscript"])
def test_the_bundle_writes_what_the_model_writes(
    backend: str, notes_export: Exported, notes_task: TextGenerationTask
) -> None:
    model = load_bundle(notes_export.path, backend=backend)
    assert isinstance(model, Generator)
    texts = read_rewritten(notes_task.recipe.data, "test", notes_task.data_dir)
    expected = notes_task.evaluate(notes_task.batches("test"))
    assert bundle_generation(model, texts, beam_size=1) == pytest.approx(expected.metrics)
    written = model.generate([text.source for text in texts], beam_size=1)
    assert [each.outputs[0].text for each in written] == expected.outputs


def test_int8_writes_the_same(notes_run: RunDirectory, notes_dir: Path, tmp_path: Path) -> None:
    recipe = notes_run.recipe().model_dump()
    recipe["export"] |= {"quantization": "int8", "torchscript": False}
    run = RunDirectory(shutil.copytree(notes_run.path, tmp_path / "notes"))
    (run.path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    exported = export_run(run, tmp_path / "bundles", notes_dir)
    assert exported.manifest.quantization is not None
    assert abs(exported.manifest.quantization.value - exported.manifest.quantization.float32_value) <= 2
    model = load_bundle(exported.path)
    assert isinstance(model, Generator)
    texts = ["so we saw old fox then", "there was red gnu", "we saw big ape and now then there"]
    alone = [model.generate([text])[0].outputs[0] for text in texts]
    together = [each.outputs[0] for each in model.generate(texts)]
    assert [each.text for each in alone] == [each.text for each in together]
    np.testing.assert_allclose([each.score for each in alone], [each.score for each in together], rtol=1e-3)
