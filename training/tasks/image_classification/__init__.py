"""Image classification: the class of an image."""

from training.tasks.image_classification.export import ImageClassificationExport
from training.tasks.image_classification.task import ImageClassificationTask

__all__ = ["ImageClassificationTask"]

ImageClassificationTask.exporter = ImageClassificationExport
