"""Text classification: the class, or the classes, of a text."""

from training.tasks.text_classification.export import TextClassificationExport
from training.tasks.text_classification.task import TextClassificationTask

__all__ = ["TextClassificationTask"]

TextClassificationTask.exporter = TextClassificationExport
