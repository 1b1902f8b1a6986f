"""Tests of the task token-classification: it learns, and its bundle tags as the model does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from models.store import load_bundle
from models.tasks.token_classification import Tagger
from tests.fixtures.tagged_names import names_recipe, train_tagger
from training.bundling.bundle import WrittenBundle
from training.data.batching import IGNORED
from training.data.inspection import inspect_file
from training.recipe.loading import parse_recipe
from training.recipe.own.document import Wishes
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.session import open_task, start_run
from training.tasks.data_report import examine
from training.tasks.token_classification import TokenClassificationTask
from training.tasks.token_classification.reading import TaggedSentence, read_tagged
from training.tasks.token_classification.task import bundle_tags


def test_names_that_were_in_no_training_sentence_are_found(names_task: TokenClassificationTask) -> None:
    measurement = names_task.measure("test")
    assert list(measurement.metrics) == ["F1", "precision", "recall", "token accuracy"]
    assert measurement.metrics["F1"] > 0.9
    assert measurement.examples is not None
    assert measurement.examples.value == pytest.approx(measurement.metrics["F1"])
    assert [line.split(":")[0] for line in names_task.report("test")[4:]] == ["LOC", "PER"]
    baseline = names_task.baselines()["most frequent tag of each word"]
    assert baseline("train") > 0.9
    assert baseline("test") < 0.2


def test_the_loss_is_that_of_the_first_tokens(names_task: TokenClassificationTask) -> None:
    batches = names_task.batches("dev")
    batch = next(batches.epoch(0))
    loss, count = names_task.loss(batch)
    assert count == sum(len(batches.sentences[index].words) for index in batch.indices.tolist())
    hidden = names_task.model(batch.tokens, batch.lengths)
    rows = names_task.model.output_layer.log_prob(hidden)
    kept = batch.targets != IGNORED
    expected = -rows[kept].gather(1, batch.targets[kept][:, None]).sum()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    "layer",
    [
        {"kernels": "lin,pow"},
        {"kernels": "lin", "sparse_k": 3},
        {"alpha": 1.5},
        {"kernels": "cos", "angular_margin": 0.1},
        {"kernels": "vmf"},
    ],
    ids=str,
)
def test_other_output_layers_learn_too(layer: dict[str, Any], names_dir: Path, tmp_path: Path) -> None:
    recipe = names_recipe(output_layer=layer, loop={"epochs": 6}, export={"torchscript": False})
    run = RunDirectory(tmp_path / "names")
    task = train_tagger(recipe, names_dir, run)
    assert task.measure("test").metrics["F1"] > 0.8
    exported = export_run(run, tmp_path / "bundles", names_dir)
    assert exported.differences["onnx"] < 1e-4


def test_the_bundle_tags_as_the_model(
    names_export: WrittenBundle, names_task: TokenClassificationTask, names_dir: Path
) -> None:
    assert names_export.manifest.task == "token-classification"
    assert set(names_export.differences) == {"onnx", "torchscript"}
    assert max(names_export.differences.values()) < 1e-5
    model = load_bundle(names_export.path)
    assert isinstance(model, Tagger)
    assert model.labels == names_task.labels == ("B-LOC", "B-PER", "I-LOC", "O")
    recipe = names_task.recipe
    found = TokenClassificationTask.measure_bundle(model, recipe, "test", names_dir)
    np.testing.assert_allclose(list(found.values()), list(names_task.measure("test").metrics.values()), atol=1e-4)
    assert bundle_tags(model, read_tagged(recipe.data, "test", names_dir)) == names_task.predictions(
        names_task.batches("test")
    )
    card = (names_export.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "Tags: 4, in `labels.txt`" in card
    assert f"{found['F1']:.4f}" in card


def test_the_operation_tag_serves_the_bundle(names_export: WrittenBundle) -> None:
    model = load_bundle(names_export.path)
    assert isinstance(model, Tagger)
    person, place = "kaluten" + "son", "kaluten" + "burg"
    text = f"{person} lives in mount {place} ."
    (found,) = model.tag([text], "first")
    assert [(each.label, each.text) for each in found.entities] == [("PER", person), ("LOC", f"mount {place}")]
    assert all(0 < each.score <= 1 for each in found.entities)


def test_int8_weights(names_run: RunDirectory, names_dir: Path, tmp_path: Path) -> None:
    overrides = ["export.torchscript=false", "export.quantization=int8"]
    exported = export_run(names_run, tmp_path / "bundles", names_dir, overrides=overrides)
    assert exported.manifest.quantization is not None
    assert exported.manifest.quantization.kind == "int8-static"
    assert abs(exported.manifest.quantization.value - exported.manifest.quantization.float32_value) <= 0.05


def test_words_that_are_cut_off_count_as_outside(names_export: WrittenBundle) -> None:
    model = load_bundle(names_export.path)
    assert isinstance(model, Tagger)
    words = ("rain", "in", "kalutenburg") * 20
    (found,) = bundle_tags(model, [TaggedSentence(words, ("O",) * 60)])
    assert len(found) == 60
    assert found[2] == "B-LOC"
    assert found[-1] == "O"


def test_tags_that_no_training_sentence_has_are_refused(names_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("a\tB-X\nb\tO\n", encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("a\tB-Y\n", encoding="utf-8")
    files = {"train": "train.tsv", "dev": "dev.tsv", "test": "train.tsv"}
    with pytest.raises(ValueError, match="tags of dev that no training sentence has: B-Y"):
        start_run(names_recipe(data={"files": files}), RunDirectory(tmp_path / "run"), tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"corpus": "clinc150", "files": None}, "no corpus of the registry has tags"),
        ({"files": {"train": "a.tsv", "columns": {"label": "2"}}}, "there is no 'label' here"),
    ],
)
def test_recipes_that_cannot_be_are_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises((ValidationError, ValueError), match=message):
        names_recipe(data=data)


def test_a_run_goes_on_with_another_type(
    names_run: RunDirectory, names_task: TokenClassificationTask, names_dir: Path, tmp_path: Path
) -> None:
    more = (names_dir / "train.tsv").read_text(encoding="utf-8") + "\n\nrain\tO\non\tO\nmonday\tB-DATE\n"
    for split in ("dev", "test"):
        (tmp_path / f"{split}.tsv").write_bytes((names_dir / f"{split}.tsv").read_bytes())
    (tmp_path / "train.tsv").write_text(more, encoding="utf-8")
    run = RunDirectory(tmp_path / "run")
    start_run(names_recipe(), run, tmp_path)
    task = open_task(names_recipe(), run, tmp_path, torch.device("cpu"))
    assert isinstance(task, TokenClassificationTask)
    assert task.labels == ("B-DATE", "B-LOC", "B-PER", "I-LOC", "O")
    before = names_task.model.state_dict()
    fresh = task.model.output_layer.weight[0].clone()
    kept = {name: value for name, value in before.items() if value.shape == task.model.state_dict()[name].shape}
    others = {name: value for name, value in task.model.state_dict().items() if name not in kept}
    task.adopt({**others, **kept, "output_layer.weight": before["output_layer.weight"]}, names_run)
    assert torch.equal(task.model.output_layer.weight[1:], before["output_layer.weight"])
    assert torch.equal(task.model.output_layer.weight[0], fresh)


def test_the_data_report_counts_entities(names_dir: Path) -> None:
    report = examine(names_recipe(), names_dir, quick=True)
    assert set(report.classes) == {"LOC", "PER"}
    assert not [each for each in report.findings if each.kind == "left-out"]


def test_a_recipe_is_made_for_a_file(names_dir: Path) -> None:
    plan = TokenClassificationTask.plan([inspect_file(names_dir / "train.tsv")], Wishes(from_scratch=True))
    plan.choose("name", "names")
    recipe = parse_recipe(plan.content)
    assert recipe.task == "token-classification"
    assert "2 types: LOC, PER" in plan.found[0]
    with pytest.raises(ValueError, match="there is no 'label' here"):
        TokenClassificationTask.plan([inspect_file(names_dir / "train.tsv")], Wishes(columns={"label": "1"}))
