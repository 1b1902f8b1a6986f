"""Tests of exported classifiers."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from models import Classifier
from models.store import load_bundle
from service.offline.model_list import print_bundle
from tests.fixtures.classification import ERRANDS_RECIPE, train_classifier
from tests.fixtures.deberta import write_sentence_pieces
from tests.fixtures.optional_tools import needs
from tests.support.calibration import assert_of_the_output_layer
from training.bundling.bundle import WrittenBundle
from training.data.corpora import get_corpus
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.tasks.text_classification import TextClassificationTask
from training.tasks.text_classification.settings import ClassificationRecipe


def test_graphs_are_those_of_the_model(errands_export: WrittenBundle) -> None:
    assert set(errands_export.differences) == {"onnx", "torchscript"}
    assert max(errands_export.differences.values()) < 1e-5


def test_the_manifest_says_what_there_is(errands_export: WrittenBundle) -> None:
    manifest = errands_export.manifest
    assert manifest.task == "text-classification"
    assert (manifest.config.classes.count, manifest.config.classes.threshold) == (8, None)
    assert manifest.config.limits.max_tokens == 24  # the positions of the encoder
    assert manifest.softmax.sparse_k == 4
    metrics = [quality.metric for quality in manifest.quality if quality.split == "test"]
    separation = ["out-of-scope AUROC", "out-of-scope detected", "in-scope rejected"]
    calibration = ["Brier score", "log-loss"]
    if manifest.config.classes.calibration is not None:
        calibration += [f"{name}, uncalibrated" for name in ("expected calibration error", *calibration)]
    assert metrics == [
        "accuracy",
        "macro F1",
        "top-5 accuracy",
        "expected calibration error",
        *separation,
        *calibration,
    ]


def test_the_card_has_the_numbers(errands_export: WrittenBundle) -> None:
    card = (errands_export.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    for quality in errands_export.manifest.quality:
        assert f"{quality.value:.4f}" in card
    assert "* Classes: 8, in `labels.txt`\n* Vocabulary: " in card
    assert "sparse-softmax over the 4 best" in card


def test_the_bundle_is_as_good_as_the_model(
    errands_export: WrittenBundle, errands_task: TextClassificationTask, tiny_data_dir: Path
) -> None:
    model = load_bundle(errands_export.path)
    assert isinstance(model, Classifier)
    found = TextClassificationTask.measure_bundle(model, errands_task.recipe, "test", tiny_data_dir)
    expected = errands_task.measure("test").metrics
    assert list(found)[: len(expected) + 2] == [*expected, "out-of-scope detected", "in-scope rejected"]
    assert_of_the_output_layer(found, expected)


def test_the_threshold_of_scope_is_that_of_the_validation_split(
    errands_export: WrittenBundle, errands_task: TextClassificationTask, tiny_data_dir: Path
) -> None:
    model = load_bundle(errands_export.path)
    assert isinstance(model, Classifier)
    rule = model.config.classes.out_of_scope
    assert rule is not None
    found = TextClassificationTask.measure_bundle(model, errands_task.recipe, "dev", tiny_data_dir)
    assert (found["out-of-scope detected"], found["in-scope rejected"]) == (rule.detected, rule.rejected)
    assert [each.out_of_scope for each in model.classify(["", " \n"])] == [True, True]
    texts = [text for _, text in get_corpus("errands").records("dev", tiny_data_dir)]
    rejected = [each.out_of_scope for each in model.classify(texts)]
    assert np.mean(rejected) == pytest.approx(rule.rejected, abs=1e-4)


def test_texts_of_no_class_are_trained_on_but_not_listed(
    errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    content = errands_recipe.model_dump()
    content["data"] |= {"out_of_scope": True, "augment": {"typing_errors": 0.2, "noise": 20}}
    content["loop"] |= {"epochs": 2}
    run = RunDirectory(tmp_path / "run")
    recipe = parse_recipe(content)
    assert isinstance(recipe, ClassificationRecipe)
    train_classifier(recipe, tiny_data_dir, run)
    exported = export_run(run, tmp_path / "bundles", tiny_data_dir, overrides=["export.torchscript=false"])
    model = load_bundle(exported.path)
    assert isinstance(model, Classifier)
    assert (exported.path / "labels.txt").read_text().splitlines()[-1] == "oos"
    assert "oos" not in model.labels
    (found,) = model.classify(["zzzz"], 9)
    assert len(found.labels) <= len(model.labels) == 8
    assert "oos" not in [each.label for each in found.labels]
    assert sum(each.probability for each in found.labels) < 1


def test_int8_answers_alike_whatever_stands_beside(
    errands_run: RunDirectory, tiny_data_dir: Path, tmp_path: Path
) -> None:
    recipe = errands_run.recipe().model_dump()
    recipe["export"] |= {"quantization": "int8", "torchscript": False}
    run = RunDirectory(shutil.copytree(errands_run.path, tmp_path / "errands"))
    (run.path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    exported = export_run(run, tmp_path / "bundles", tiny_data_dir)
    assert exported.manifest.quantization is not None
    assert exported.manifest.quantization.kind == "int8-static"
    assert abs(exported.manifest.quantization.value - exported.manifest.quantization.float32_value) <= 0.05
    model = load_bundle(exported.path)
    assert isinstance(model, Classifier)
    texts = ["walk", "please please please sing", "i would like to cook now and then"]
    alone = [model.classify([text], 1)[0].labels[0] for text in texts]
    together = [result.labels[0] for result in model.classify(texts, 1)]
    assert [each.label for each in alone] == [each.label for each in together]
    np.testing.assert_allclose([each.probability for each in alone], [each.probability for each in together], rtol=1e-3)


def test_a_threshold_is_found_on_the_development_set(tmp_path: Path) -> None:
    lines = ["a,b\tone and two", "a\tone", "b\ttwo", "c\tthree"] * 12
    (tmp_path / "texts.tsv").write_text("\n".join(lines), encoding="utf-8")
    content = {
        **ERRANDS_RECIPE,
        "data": {"files": {"train": "texts.tsv", "dev": "texts.tsv", "test": "texts.tsv"}, "multi_label": True},
        "output_layer": {"kernels": "pow"},
        "loop": {"epochs": 6, "learning_rate": 1e-2, "warmup_steps": 5, "precision": "float32"},
        "export": {"torchscript": False},
    }
    recipe = parse_recipe(content)
    assert isinstance(recipe, ClassificationRecipe)
    run = RunDirectory(tmp_path / "run")
    task = train_classifier(recipe, tmp_path, run)
    exported = export_run(run, tmp_path / "bundles", tmp_path)
    best = task.evaluate(task.batches("dev"))
    classes, first = exported.manifest.config.classes, exported.manifest.quality[0]
    assert (classes.threshold == best.threshold) == (classes.calibration is None)
    assert (first.metric, first.value) == ("micro F1", pytest.approx(best.micro_f1, abs=0.03))
    assert exported.manifest.quality[0].value > 0.9


@needs("transformers")
@pytest.mark.parametrize("family", ["Roberta", "DistilBert"])
def test_a_bundle_of_another_encoder_answers_as_the_model(
    family: str, errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    from tests.support.random_classifiers import make_classifier

    encoder = make_classifier(tmp_path / "encoder", f"{family}ForSequenceClassification", num_hidden_layers=1)
    content = errands_recipe.model_dump() | {"network": {"pretrained": str(encoder)}}
    content["loop"] |= {"epochs": 1}
    recipe = parse_recipe(content)
    assert isinstance(recipe, ClassificationRecipe)
    run = RunDirectory(tmp_path / "run")
    task = train_classifier(recipe, tiny_data_dir, run)
    exported = export_run(run, tmp_path / "bundles", tiny_data_dir, overrides=["export.torchscript=false"])
    expected = task.measure("test").metrics
    model = load_bundle(exported.path)
    found = TextClassificationTask.measure_bundle(model, recipe, "test", tiny_data_dir)
    assert_of_the_output_layer(found, expected)
    assert exported.manifest.config.special_tokens.start == (0 if family == "Roberta" else None)


@needs("transformers")
@pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")
def test_an_int8_bundle_of_a_deberta_directory_without_safetensors_and_tokenizer_file(
    errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    from tests.support.random_classifiers import make_classifier

    encoder, sizes = tmp_path / "encoder", {"num_hidden_layers": 1, "vocab_size": 420}
    make_classifier(encoder, "DebertaV2ForSequenceClassification", deviation=0.05, **sizes)
    weights = load_file(encoder / "model.safetensors")
    torch.save({name: tensor.half() for name, tensor in weights.items()}, encoder / "pytorch_model.bin")
    write_sentence_pieces(encoder / "spm.model", 410, byte_fallback=True)
    for name in ("model.safetensors", "tokenizer.json"):
        (encoder / name).unlink()
    content = errands_recipe.model_dump() | {"network": {"pretrained": str(encoder)}}
    content["loop"] |= {"epochs": 2, "learning_rate": 3e-3}
    content["export"] |= {"quantization": "int8"}
    recipe = parse_recipe(content)
    assert isinstance(recipe, ClassificationRecipe)
    run = RunDirectory(tmp_path / "run")
    train_classifier(recipe, tiny_data_dir, run)
    shutil.rmtree(encoder)
    exported = export_run(run, tmp_path / "bundles", tiny_data_dir)
    assert set(exported.differences) == {"onnx", "torchscript"}
    assert max(exported.differences.values()) < 1e-5
    assert exported.manifest.config.network.kind == "deberta"
    quantization = exported.manifest.quantization
    assert quantization is not None
    assert quantization.float32_value > 0.5
    assert abs(quantization.value - quantization.float32_value) <= 0.05
    card = (exported.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "DeBERTa encoder, 1 layers, 64 hidden units" in card
    model = load_bundle(exported.path)
    assert isinstance(model, Classifier)
    texts = ["walk", "please please please sing", "i would like to cook now and then"]
    alone, together = [model.classify([text])[0] for text in texts], model.classify(texts)
    for one, other in zip(alone, together, strict=True):
        assert [each.label for each in one.labels] == [each.label for each in other.labels]


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")
def test_cosines_trained_with_a_margin_are_exported_and_served_without(
    errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = errands_recipe.model_dump()
    content["output_layer"] |= {"sparse_k": None, "kernels": [{"name": "cos", "learnable": True}]}
    content["output_layer"] |= {"angular_margin": 0.2, "cosine_margin": 0.05}
    content["loop"] |= {"epochs": 2}
    recipe = parse_recipe(content)
    assert isinstance(recipe, ClassificationRecipe)
    run = RunDirectory(tmp_path / "run")
    task = train_classifier(recipe, tiny_data_dir, run)
    (kernel,) = task.model.output_layer.components()
    exported = export_run(run, tmp_path / "bundles", tiny_data_dir)
    assert set(exported.differences) == {"onnx", "torchscript"}
    (described,) = exported.manifest.softmax.kernels
    assert described.name == "cos"
    assert described.hyperparameters == pytest.approx(kernel.hyperparameters, rel=1e-6)
    title = f"(scale = {kernel.hyperparameters['scale']:g})"
    assert f"`cos` {title}" in (exported.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert print_bundle(exported.path) == 0
    assert f"cos {title}" in capsys.readouterr().out
    model = load_bundle(exported.path)
    assert isinstance(model, Classifier)
    found = TextClassificationTask.measure_bundle(model, recipe, "test", tiny_data_dir)
    assert_of_the_output_layer(found, task.measure("test").metrics)


def test_entmax_is_exported_and_served_with_zeros(
    errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    content = errands_recipe.model_dump()
    content["output_layer"] |= {"sparse_k": None, "alpha": 1.5}
    content["export"] |= {"torchscript": False}
    content["loop"] |= {"epochs": 2}
    recipe = parse_recipe(content)
    assert isinstance(recipe, ClassificationRecipe)
    run = RunDirectory(tmp_path / "run")
    task = train_classifier(recipe, tiny_data_dir, run)
    exported = export_run(run, tmp_path / "bundles", tiny_data_dir)
    assert set(exported.differences) == {"onnx"}
    assert exported.manifest.softmax.alpha == 1.5
    assert "entmax (alpha = 1.5)" in (exported.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    model = load_bundle(exported.path)
    assert isinstance(model, Classifier)
    found = TextClassificationTask.measure_bundle(model, recipe, "test", tiny_data_dir)
    expected = task.measure("test").metrics
    assert_of_the_output_layer(found, expected)
    (result,) = model.classify(["walk"], 8)
    assert sum(each.probability for each in result.labels) == pytest.approx(1, abs=1e-5)
