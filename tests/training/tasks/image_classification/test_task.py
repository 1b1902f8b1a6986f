"""Tests of the classification of images: corpus, batches, learning, export."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.store import load_bundle
from models.tasks.image_classification import ImageClassifier
from tests.fixtures.images import LABELS, SHAPES_RECIPE, SIZE
from tests.support.calibration import assert_of_the_output_layer
from training.bundling.bundle import WrittenBundle
from training.bundling.verify import ExportError
from training.data.image_corpora import ImageCorpus
from training.networks.image_classifier import ImageClassifier as Network
from training.networks.image_encoder import DenseNet, EfficientNetLite0
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.loop import Trainer
from training.run.session import open_task, start_run
from training.softmax import GeneralizedSoftmax
from training.tasks.image_classification import ImageClassificationTask
from training.tasks.image_classification.export import ImageClassificationExport
from training.tasks.image_classification.settings import ImageClassificationRecipe


def _recipe(**sections: Any) -> ImageClassificationRecipe:
    content = {**SHAPES_RECIPE}
    for section, fields in sections.items():
        content[section] = {**content[section], **fields}
    recipe = parse_recipe(content)
    assert isinstance(recipe, ImageClassificationRecipe)
    return recipe


def test_a_small_network_learns(shapes_task: ImageClassificationTask) -> None:
    found = shapes_task.measure("test").metrics
    assert list(found) == ["accuracy", "macro F1", "top-5 accuracy", "expected calibration error"]
    assert found["accuracy"] > 0.9


def test_the_bundle_is_as_good_as_the_model(
    shapes_export: WrittenBundle, shapes_task: ImageClassificationTask, tiny_data_dir: Path
) -> None:
    assert max(shapes_export.differences.values()) < 1e-5
    model = load_bundle(shapes_export.path)
    assert isinstance(model, ImageClassifier)
    found = ImageClassificationTask.measure_bundle(model, shapes_task.recipe, "test", tiny_data_dir)
    assert_of_the_output_layer(found, shapes_task.measure("test").metrics)
    manifest = shapes_export.manifest
    assert manifest.config.limits.model_dump() == {"max_pixels": 10_000}
    assert "tokenizer.json" not in manifest.files
    assert model.labels == tuple(LABELS)
    card = (shapes_export.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "images brought to 16 x 16" in card
    assert "10000 pixels" in card


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")
def test_a_small_network_learns_cosines_with_a_margin(
    shapes_corpus: ImageCorpus, tiny_data_dir: Path, tmp_path: Path
) -> None:
    recipe = _recipe(output_layer={"kernels": "cos", "sparse_k": None, "cosine_margin": 0.1})
    run = RunDirectory(tmp_path / "run")
    start_run(recipe, run, tiny_data_dir)
    torch.manual_seed(0)
    task = open_task(recipe, run, tiny_data_dir, torch.device("cpu"))
    assert isinstance(task, ImageClassificationTask)
    Trainer(task, run, recipe.loop).fit(lambda line: None)
    found = task.measure("test").metrics
    assert found["accuracy"] > 0.9
    exported = export_run(run, tmp_path / "bundles", tiny_data_dir)
    assert [kernel.name for kernel in exported.manifest.softmax.kernels] == ["cos"]
    model = load_bundle(exported.path)
    assert isinstance(model, ImageClassifier)
    assert_of_the_output_layer(ImageClassificationTask.measure_bundle(model, recipe, "test", tiny_data_dir), found)


def test_pixels_are_normalized_and_enlarged() -> None:
    torch.manual_seed(0)
    encoder = DenseNet(growth=4, layers=(1,)).eval()
    images = torch.full((1, 4, 4, 3), 255, dtype=torch.uint8)
    white = torch.tensor([(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225])
    for scale in (1, 3):
        network = Network(encoder, GeneralizedSoftmax(2, encoder.hidden_size), scale).eval()
        expected = encoder(white[None, :, None, None].expand(1, 3, 4 * scale, 4 * scale))
        torch.testing.assert_close(network(images), expected)


def test_imagenet_weights_are_where_training_starts(
    shapes_recipe: ImageClassificationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    from tests.training.networks.test_image_encoder import _published

    torch.save(_published(), tmp_path / "lite0.pth")
    network = {"encoder": "efficientnet-lite0", "pretrained": str(tmp_path / "lite0.pth"), "scale": 2}
    run = RunDirectory(tmp_path / "run")
    recipe = _recipe(network=network)
    start_run(recipe, run, tiny_data_dir)
    task = open_task(recipe, run, tiny_data_dir, torch.device("cpu"))
    assert isinstance(task, ImageClassificationTask)
    task.initialize()
    assert isinstance(task.model.encoder, EfficientNetLite0)
    assert torch.equal(task.model.encoder.stem.conv.weight.detach(), _published()["_conv_stem.weight"])
    loss, count = task.loss(next(iter(task.batches("train").epoch(0))))
    assert count == 32
    assert torch.isfinite(loss)


def test_training_images_are_measured_as_they_are(shapes_task: ImageClassificationTask) -> None:
    first, _ = shapes_task.predicted("train")
    assert np.array_equal(first.probabilities, shapes_task.predicted("train")[0].probabilities)
    plain = shapes_task.batches_of("train", training=False)
    assert [index for batch in plain.epoch(3) for index in batch.indices.tolist()] == list(range(360))


def test_what_cannot_be_exported_is_refused(shapes_task: ImageClassificationTask) -> None:
    def changed(recipe: ImageClassificationRecipe) -> ImageClassificationTask:
        return ImageClassificationTask(recipe, shapes_task.labels, shapes_task.data_dir, shapes_task.device)

    with pytest.raises(ExportError, match="other classes"):
        ImageClassificationExport(changed(_recipe(export={"also_test_on": ["cifar100"]})))


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_integers_are_refused(
    quantization: str, shapes_run: RunDirectory, shapes_task: ImageClassificationTask, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match="models of image-classification are exported in float32"):
        export_run(shapes_run, tmp_path, shapes_task.data_dir, overrides=[f"export.quantization={quantization}"])
    assert list(tmp_path.iterdir()) == []


def test_weights_of_another_network_are_refused() -> None:
    with pytest.raises(ValueError, match="there are no weights of densenet"):
        _recipe(network={"pretrained": "efficientnet-lite0"})


def test_the_corpus_is_read_as_it_was_written(shapes_task: ImageClassificationTask) -> None:
    sizes = {split: len(list(shapes_task.batches(split).epoch(0))) for split in ("train", "dev", "test")}
    assert sizes == {"train": 12, "dev": 2, "test": 2}  # of 360, 40 and 50 images
    batch = next(iter(shapes_task.batches("test").epoch(0)))
    assert batch.images.shape == (32, SIZE, SIZE, 3)
    brightest = batch.images.flatten(1, 2).float().quantile(0.9, dim=1)
    colours = [LABELS[number] for (number,) in batch.targets.tolist()]
    for colour, (red, green, blue) in zip(colours, brightest.tolist(), strict=True):
        bright = {name for name, value in (("red", red), ("green", green), ("blue", blue)) if value > 150}
        assert bright == ({"red", "green", "blue"} if colour == "white" else {colour})
