"""Tests of the classification task."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from tests.fixtures.classification import ERRANDS_RECIPE, WORDS, train_classifier
from tests.training.networks.golden import bert
from training.data.text_batching import TextBatch, TextBatches
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.session import open_task, start_run
from training.tasks.ranked_classes import RankedClasses
from training.tasks.text_classification import TextClassificationTask
from training.tasks.text_classification.settings import ClassificationRecipe

CPU = torch.device("cpu")


def _recipe(**sections: Any) -> ClassificationRecipe:
    content = {**ERRANDS_RECIPE}
    for section, fields in sections.items():
        content[section] = {**content[section], **fields} if isinstance(fields, dict) else fields
    recipe = parse_recipe(content)
    assert isinstance(recipe, ClassificationRecipe)
    return recipe


def _task(recipe: ClassificationRecipe, data_dir: Path, path: Path) -> TextClassificationTask:
    run = RunDirectory(path)
    start_run(recipe, run, data_dir)
    torch.manual_seed(0)
    task = open_task(recipe, run, data_dir, CPU)
    assert isinstance(task, TextClassificationTask)
    return task


def _several(path: Path, split: str, count: int) -> None:
    """Texts of one or two classes."""
    names = list(WORDS)
    lines = []
    for index in range(count):
        labels = [names[index % 8], names[(index * 3 + 1) % 8]] if index % 3 == 0 else [names[index % 8]]
        labels = list(dict.fromkeys(labels))
        lines.append(f"{','.join(labels)}\tplease {' and '.join(WORDS[label][index % 2] for label in labels)} {index}")
    (path / f"{split}.tsv").write_text("\n".join(lines), encoding="utf-8")


# ---- learning ---------------------------------------------------------------------------------------------


def test_a_sparse_classifier_learns(errands_task: TextClassificationTask) -> None:
    measurement = errands_task.measure("test")
    found, examples = measurement.metrics, measurement.examples
    assert list(found) == ["accuracy", "macro F1", "top-5 accuracy", "expected calibration error", "out-of-scope AUROC"]
    assert found["accuracy"] > 0.95
    assert found["out-of-scope AUROC"] > 0.6
    assert examples is not None
    assert len(examples.statistics) == len(errands_task.predicted("test")[1])
    assert examples.value == pytest.approx(found["accuracy"])


def all_probabilities(found: RankedClasses) -> NDArray[np.float64]:
    """Return `[N, C]` of so few classes that all are kept."""
    table = np.zeros((len(found), found.count))
    np.put_along_axis(table, found.classes, found.probabilities, 1)
    return table


def test_probabilities_are_the_layers_in_the_order_of_the_split(errands_task: TextClassificationTask) -> None:
    batches = errands_task.batches("test")
    found = all_probabilities(errands_task.predictions(batches)[0])
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-6)
    assert set((found > 0).sum(1).tolist()) == {4}  # sparse_k
    one = next(batches.epoch(0))
    with torch.no_grad():
        expected = errands_task.model.output_layer.log_prob(errands_task.model(one.tokens, one.lengths)).exp()
    np.testing.assert_allclose(found[one.indices.numpy()], expected.numpy(), rtol=1e-5, atol=1e-6)


def test_entmax_learns_too_and_has_its_own_distribution(
    errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    recipe = _recipe(output_layer={"sparse_k": None, "alpha": 1.5})
    task = train_classifier(recipe, tiny_data_dir, RunDirectory(tmp_path / "run"))
    probabilities = all_probabilities(task.predictions(task.batches("test"))[0])
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert (probabilities == 0).any()
    assert task.measure("test").metrics["accuracy"] > 0.95


def test_texts_of_several_classes(tmp_path: Path) -> None:
    for split, count in (("train", 480), ("dev", 48), ("test", 48)):
        _several(tmp_path, split, count)
    files = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
    recipe = _recipe(
        data={"corpus": None, "files": files, "multi_label": True}, output_layer={"sparse_k": None}, loop={"epochs": 12}
    )
    task = train_classifier(recipe, tmp_path, RunDirectory(tmp_path / "run"))
    assert task.metric == "micro F1"
    measurement = task.measure("test")
    found, examples = measurement.metrics, measurement.examples
    assert list(found)[:3] == ["micro F1", "macro F1", "subset accuracy"]
    assert found["micro F1"] > 0.9
    assert examples is not None
    assert len(examples.statistics) == 48
    assert examples.value == pytest.approx(found["micro F1"])
    quality = task.evaluate(task.batches("dev"))
    assert quality.threshold is not None
    assert quality.value == quality.micro_f1


def test_a_class_called_oos_counts_like_any_other(tmp_path: Path) -> None:
    lines = {"train": 40, "dev": 10, "test": 10}
    for split, count in lines.items():
        texts = (("oos\tgood day", "billing\tmy bill please")[number % 2] for number in range(count))
        (tmp_path / f"{split}.tsv").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    files = {split: f"{split}.tsv" for split in lines}
    recipe = _recipe(data={"corpus": None, "files": files}, output_layer={"sparse_k": None}, loop={"epochs": 8})
    task = train_classifier(recipe, tmp_path, RunDirectory(tmp_path / "run"))
    assert task.labels == ("billing", "oos")
    assert task.measure("test").metrics["accuracy"] == 1
    assert task.evaluate(task.batches("dev")).value == 1


def test_texts_of_no_class_as_a_class(tiny_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = _task(_recipe(data={"out_of_scope": True}), tiny_data_dir, tmp_path / "run")
    assert task.classes.labels == (*sorted(WORDS), "oos")
    trained = Counter(label for batch in task.batches("train").epoch(0) for label in batch.targets[:, 0].tolist())
    assert trained[len(WORDS)] == 30
    assert len(task.predictions(task.batches("dev"))[1]) == 60
    # The largest probabilities of a class: 0.6 exceeds those of all 20 texts of no class, 0.3 those of half of them.
    inside, outside = np.zeros((2, 8)), np.zeros((20, 8))
    inside[:, 0], outside[:, 1] = (0.6, 0.3), (0.4, 0.2) * 10
    texts: list[int] = []

    def predictions(batches: TextBatches) -> tuple[Any, Any]:
        texts.extend(index for batch in batches.epoch(0) for index in batch.indices.tolist())
        return RankedClasses.of(outside), [()] * len(outside)

    monkeypatch.setattr(task, "predictions", predictions)
    assert task.metrics("test", RankedClasses.of(inside), [(0,), (1,)], None)["out-of-scope AUROC"] == 0.75
    assert len(texts) == 20


def test_augmentation_is_drawn_anew_for_each_epoch(
    errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    augment = {"typing_errors": 0.5, "out_of_scope_copies": 2, "noise": 30}
    task = _task(_recipe(data={"out_of_scope": True, "augment": augment}), tiny_data_dir, tmp_path / "run")
    batches = task.batches("train")
    epochs = [
        Counter(
            (tuple(row.tolist()), label)
            for batch in batches.epoch(number)
            for row, label in zip(batch.tokens, batch.targets[:, 0].tolist(), strict=True)
        )
        for number in (0, 1, 0)
    ]
    assert epochs[0] == epochs[2] != epochs[1]
    outside = [sum(count for (_, label), count in epoch.items() if label == len(WORDS)) for epoch in epochs]
    assert outside == [90, 90, 90]


# ---- the loss ---------------------------------------------------------------------------------------------


def test_a_text_of_two_classes_counts_for_both(
    errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    task = _task(_recipe(output_layer={"sparse_k": None}), tiny_data_dir, tmp_path / "run")
    task.model.eval()
    batch = TextBatch(
        tokens=torch.tensor([[2, 5, 3], [2, 9, 3]]),
        lengths=torch.tensor([3, 3]),
        targets=torch.tensor([[1, 6], [4, -100]]),
        indices=torch.tensor([0, 1]),
    )
    loss, count = task.loss(batch)
    log_prob = task.model.output_layer.log_prob(task.model(batch.tokens, batch.lengths))
    expected = -(log_prob[0, 1] + log_prob[0, 6] + log_prob[1, 4])
    assert count == 3
    torch.testing.assert_close(loss, expected)


def test_a_batch_without_classes_has_no_loss(
    errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    task = _task(errands_recipe, tiny_data_dir, tmp_path / "run")
    batch = TextBatch(
        tokens=torch.tensor([[2, 5, 3]]),
        lengths=torch.tensor([3]),
        targets=torch.full((1, 1), -100),
        indices=torch.tensor([0]),
    )
    loss, count = task.loss(batch)
    assert (float(loss.detach()), count) == (0.0, 0)


# ---- a pretrained encoder ---------------------------------------------------------------------------------


def test_a_pretrained_encoder_is_where_training_starts_and_need_not_stay(
    errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    first = _task(errands_recipe, tiny_data_dir, tmp_path / "scratch")
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    sizes = {"vocab_size": first.tokenizer.vocab_size, "max_position_embeddings": 24}
    (encoder / "config.json").write_text(json.dumps({**bert.CONFIG, **sizes}), encoding="utf-8")
    first.tokenizer.save(encoder / "tokenizer.json")
    shapes = json.loads(bert.FILE.read_text(encoding="utf-8"))["shapes"]
    shapes["embeddings.word_embeddings.weight"][0] = sizes["vocab_size"]
    shapes["embeddings.position_embeddings.weight"][0] = 24
    tensors = {name: bert.weight(i, torch.Size(shape)) for i, (name, shape) in enumerate(shapes.items())}
    save_file(tensors, encoder / "model.safetensors")
    recipe = _recipe(network={"pretrained": str(encoder)}, loop={"epochs": 1, "learning_rate": 1e-6})
    task = _task(recipe, tiny_data_dir, tmp_path / "run")
    task.initialize()
    torch.testing.assert_close(task.model.encoder.words.weight.detach(), tensors["embeddings.word_embeddings.weight"])
    trained = train_classifier(recipe, tiny_data_dir, RunDirectory(tmp_path / "run"))
    near = tensors["embeddings.word_embeddings.weight"]
    torch.testing.assert_close(trained.model.encoder.words.weight, near, rtol=0, atol=1e-3)
    (encoder / "model.safetensors").unlink()
    (encoder / "config.json").unlink()
    assert isinstance(open_task(recipe, RunDirectory(tmp_path / "run"), tiny_data_dir, CPU), TextClassificationTask)


# ---- what cannot be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"data": {"corpus": "errands", "max_tokens": 600}, "network": {"pretrained": "nowhere"}},
            "'nowhere' is neither",
        ),
        ({"data": {"corpus": "multi30k"}}, "has no label for each text"),
        ({"data": {"corpus": "banking77", "out_of_scope": True}}, "no texts of no class"),
    ],
)
def test_impossible_recipes_are_refused(
    errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path, sections: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        _task(_recipe(**sections), tiny_data_dir, tmp_path / "run")


def test_one_class_is_not_enough(tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text("a\tthis\na\tthat\n", encoding="utf-8")
    files = {"train": "one.tsv", "dev": "one.tsv", "test": "one.tsv"}
    with pytest.raises(ValueError, match="only one class, 'a'"):
        _task(_recipe(data={"corpus": None, "files": files}), tmp_path, tmp_path / "run")


def test_a_class_without_training_texts_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("a\tthis\nb\tthat\n", encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("c\tthose\n", encoding="utf-8")
    files = {"train": "train.tsv", "dev": "dev.tsv", "test": "dev.tsv"}
    recipe = _recipe(data={"corpus": None, "files": files}, output_layer={"sparse_k": None})
    with pytest.raises(ValueError, match="labels that no training text has: c; add texts of them"):
        _task(recipe, tmp_path, tmp_path / "run")


@pytest.mark.parametrize("layer", [{"sparse_k": 3}, {"sparse_k": None, "kernels": "lin, pow"}])
def test_entmax_takes_one_kernel_without_sparse_k(layer: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"alpha: 1\.5 takes one kernel, without sparse_k"):
        _recipe(output_layer={**layer, "alpha": 1.5})


def test_recipes_of_earlier_versions_name_a_loss() -> None:
    assert _recipe(loss="softmax") == _recipe()
    assert _recipe(loss="entmax15", output_layer={"sparse_k": None}).output_layer.alpha == 1.5
    with pytest.raises(ValueError, match="loss"):
        _recipe(loss="hinge")


def test_untrained_probabilities_are_even(
    errands_recipe: ClassificationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    task = _task(_recipe(output_layer={"sparse_k": None}), tiny_data_dir, tmp_path / "run")
    loss, count = task.loss(next(task.batches("train").epoch(0)))
    assert math.isclose(float(loss.detach()) / count, math.log(8), rel_tol=0.5)
