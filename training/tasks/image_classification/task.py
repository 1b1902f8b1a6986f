"""The classification of images: its data and network."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from training.data.image_batching import ImageBatch, ImageBatches
from training.data.labelled_images import image_source, read_images
from training.networks.image_classifier import ImageClassifier
from training.networks.image_encoder import DenseNet, EfficientNetLite0, ImageEncoder, load_efficientnet_lite0
from training.networks.pretrained import image_weights
from training.networks.settings import ImageEncoderSettings
from training.recipe import ImageClassificationRecipe
from training.tasks.classification import ClassificationTask

__all__ = ["ImageClassificationTask"]


class ImageClassificationTask(ClassificationTask[ImageBatch]):
    """Tells of which class an image is."""

    recipe: ImageClassificationRecipe

    def __init__(
        self, recipe: ImageClassificationRecipe, labels: Sequence[str], data_dir: Path, device: torch.device
    ) -> None:
        self.recipe = recipe
        self.labels = tuple(labels)
        self.data_dir = data_dir
        self.device = device
        encoder = _encoder(recipe.network)
        layer = recipe.output_layer.build(len(labels), encoder.hidden_size)
        self.model: ImageClassifier = ImageClassifier(encoder, layer, recipe.network.scale).to(device)

    @staticmethod
    def build_labels(recipe: ImageClassificationRecipe, data_dir: Path) -> list[str]:
        """Return the names of the classes; own test images are checked too, because training does not read them."""
        source = image_source(recipe.data, recipe.export.max_pixels)
        if recipe.data.files is not None:
            source.images("test", data_dir)
        return source.labels(data_dir)

    def initialize(self) -> None:
        """Takes over ImageNet weights, where the recipe asks for them."""
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

    def vectors(self, batch: ImageBatch) -> Tensor:
        vectors: Tensor = self.model(batch.images.to(self.device))
        return vectors


def _encoder(network: ImageEncoderSettings) -> ImageEncoder:
    if network.encoder == "densenet":
        return DenseNet(growth=network.growth, layers=network.layers, dropout=network.dropout)
    return EfficientNetLite0(dropout=network.dropout, drop_path=network.drop_path)
