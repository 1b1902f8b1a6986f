"""Image classification: the class of an image."""

from training.tasks.image_classification.export import ImageClassificationExport
from training.tasks.image_classification.settings import (
    ImageClassificationRecipe,
    ImageEncoderSettings,
    ImageSettings,
)
from training.tasks.image_classification.task import ImageClassificationTask

__all__ = [
    "ImageClassificationExport",
    "ImageClassificationRecipe",
    "ImageClassificationTask",
    "ImageEncoderSettings",
    "ImageSettings",
]
