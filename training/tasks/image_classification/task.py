"""Training of image classifiers: classes, encoder, batches."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Self, get_args

import torch
from PIL import Image
from torch import Tensor

from models.tasks.image_classification import ImageClassifier as ServedImageClassifier
from training.data.identity import Record
from training.data.image_batching import ImageBatch, ImageBatches
from training.data.inspection import Inspected
from training.data.own_images import OwnImages
from training.data.report import Expected, Texts
from training.data.settings import Split
from training.networks.image_classifier import ImageClassifier
from training.networks.image_encoder import DenseNet, EfficientNetLite0, ImageEncoder, load_efficientnet_lite0
from training.networks.pretrained import IMAGE_ENCODER, image_weights, installed
from training.recipe.own.document import Planned, Wishes
from training.recipe.own.sections import only_file
from training.run.paths import RunPaths
from training.tasks.baselines import Labels
from training.tasks.calibrated_classes import BundlePredictions
from training.tasks.class_calibration import ValidationExamples, fitting_sample
from training.tasks.classification import ClassificationTask, label_file, read_labels
from training.tasks.classification_quality import measure
from training.tasks.image_classification.own_recipe import plan_image_classifier
from training.tasks.image_classification.reading import image_source, read_images
from training.tasks.image_classification.settings import ImageClassificationRecipe, ImageEncoderSettings
from training.tasks.registry import register
from training.tasks.task import RunFiles

__all__ = ["ImageClassificationTask"]

_PROBED_PIXELS = 40_000_000
"""Pixels of all splits up to which the vectors of a pretrained encoder are computed for a baseline."""


@register("image-classification")
class ImageClassificationTask(ClassificationTask[ImageBatch]):
    """Learns the class of an image."""

    recipe_type = ImageClassificationRecipe
    kind = "image-classifier"
    single_process = "batch normalization needs the whole batch"
    recipe: ImageClassificationRecipe
    model: ImageClassifier

    def __init__(
        self, recipe: ImageClassificationRecipe, labels: Sequence[str], data_dir: Path, device: torch.device
    ) -> None:
        self.labels = tuple(labels)
        encoder = _encoder(recipe.network)
        layer = recipe.output_layer.build(len(labels), encoder.hidden_size)
        super().__init__(recipe, data_dir, device, ImageClassifier(encoder, layer, recipe.network.scale))

    @staticmethod
    def build_labels(recipe: ImageClassificationRecipe, data_dir: Path) -> list[str]:
        """Return the names of the classes; own test images are checked too, because training does not read them."""
        source = image_source(recipe.data, recipe.export.max_pixels)
        if recipe.data.files is not None:
            source.images("test", data_dir)
        return source.labels(data_dir)

    @classmethod
    def plan(cls, files: Sequence[Inspected], wishes: Wishes) -> Planned:
        return plan_image_classifier(
            only_file(files),
            wishes.columns,
            wishes.data_dir,
            pretrained=None if wishes.from_scratch else installed(IMAGE_ENCODER),
            epochs=wishes.epochs,
            epoch_steps=wishes.epoch_steps,
        )

    @classmethod
    def prepare(cls, recipe: ImageClassificationRecipe, run: RunPaths, data_dir: Path) -> RunFiles:
        return {run.labels: label_file(cls.build_labels(recipe, data_dir))}

    @classmethod
    def records(cls, recipe: ImageClassificationRecipe, split: str, data_dir: Path) -> list[Record] | None:
        """Return class and SHA-256 of the user's own files; the images of a corpus have registered checksums."""
        source = image_source(recipe.data, recipe.export.max_pixels)
        if not isinstance(source, OwnImages):
            return None
        return source.records(split, data_dir)[: recipe.data.limit_of(split)]

    @classmethod
    def expected(cls, recipe: ImageClassificationRecipe) -> Expected | None:
        return None if recipe.data.files is None else Expected(images=True)

    @classmethod
    def texts(cls, recipe: ImageClassificationRecipe, split: str, data_dir: Path, most: int) -> Texts:
        source = image_source(recipe.data, recipe.export.max_pixels)
        assert isinstance(source, OwnImages)
        files = source.files_of(split, data_dir)[: recipe.data.limit_of(split)][:most]
        return Texts(
            columns={"image": [str(image.path) for _, image in files]},
            labels=[(image.label,) for _, image in files],
            contents=[digest for digest, _ in files],
        )

    @classmethod
    def renewed_files(cls, recipe: ImageClassificationRecipe, run: RunPaths, data_dir: Path) -> RunFiles:
        return cls.prepare(recipe, run, data_dir)

    @classmethod
    def open(cls, recipe: ImageClassificationRecipe, run: RunPaths, data_dir: Path, device: torch.device) -> Self:
        return cls(recipe, read_labels(run), data_dir, device)

    def initialize(self) -> None:
        if self.recipe.network.pretrained is not None:
            pretrained = load_efficientnet_lite0(image_weights(self.recipe.network.pretrained))
            self.model.encoder.load_state_dict(pretrained.state_dict())

    def batches_of(self, split: str, *, training: bool) -> ImageBatches:
        data = self.recipe.data
        images, labels = read_images(data, split, self.data_dir, self.labels, self.recipe.export.max_pixels)
        return ImageBatches(
            images,
            labels,
            batch_images=data.batch_images,
            seed=self.recipe.seed if training else None,
            augment=data.augment and training,
        )

    def classes_of(self, split: str) -> Labels:
        if (records := self.records(self.recipe, split, self.data_dir)) is not None:
            return [classes for classes, _ in records]
        _, classes = read_images(self.recipe.data, split, self.data_dir, self.labels, self.recipe.export.max_pixels)
        return [(self.labels[each],) for each in classes]

    def has_quick_vectors(self) -> bool:
        if self.recipe.network.pretrained is None:
            return False
        source = image_source(self.recipe.data, self.recipe.export.max_pixels)
        pixels = (source.image_size * self.recipe.network.scale) ** 2
        return pixels * sum(len(self.classes_of(split)) for split in get_args(Split)) <= _PROBED_PIXELS

    def vectors(self, batch: ImageBatch) -> Tensor:
        return self.model(batch.images.to(self.device))

    @classmethod
    def calibration_examples(
        cls, model: ServedImageClassifier, recipe: ImageClassificationRecipe, data_dir: Path
    ) -> ValidationExamples | None:
        images, labels = read_images(recipe.data, "dev", data_dir, model.labels, recipe.export.max_pixels)
        if not len(labels):
            return None
        rows = fitting_sample(range(len(labels)), len(model.labels))
        table = model.log_probabilities([_png(images[row]) for row in rows])
        return ValidationExamples.of(table, [(int(labels[row]),) for row in rows], several=False)

    @classmethod
    def measure_bundle(
        cls, model: ServedImageClassifier, recipe: ImageClassificationRecipe, split: str, data_dir: Path
    ) -> dict[str, float]:
        """Return the metrics of a loaded bundle, by the same code that serves it."""
        images, labels = read_images(recipe.data, split, data_dir, model.labels, recipe.export.max_pixels)
        given = [(label,) for label in labels.tolist()]
        found = BundlePredictions.of(
            model, list(images), given, lambda some: model.log_probabilities([_png(image) for image in some])
        )
        return measure(found.ranked, given, several=False, threshold=None).named() | found.metrics()


def _encoder(network: ImageEncoderSettings) -> ImageEncoder:
    if network.encoder == "densenet":
        return DenseNet(growth=network.growth, layers=network.layers, dropout=network.dropout)
    return EfficientNetLite0(dropout=network.dropout, drop_path=network.drop_path)


def _png(pixels: object) -> bytes:
    """Return a file, such as clients send."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")  # type: ignore[arg-type]
    return file.getvalue()
