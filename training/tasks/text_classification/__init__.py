"""Text classification: the class, or the classes, of a text."""

from training.tasks.text_classification.export import TextClassificationExport
from training.tasks.text_classification.settings import ClassificationRecipe, LabelledSettings, TextEncoderSettings
from training.tasks.text_classification.task import Classes, TextClassificationTask

__all__ = [
    "Classes",
    "ClassificationRecipe",
    "LabelledSettings",
    "TextClassificationExport",
    "TextClassificationTask",
    "TextEncoderSettings",
]
