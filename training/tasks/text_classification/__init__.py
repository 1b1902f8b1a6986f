"""Text classification: the class, or the classes, of a text."""

from training.tasks.text_classification.task import TextClassificationTask

__all__ = ["TextClassificationTask"]
