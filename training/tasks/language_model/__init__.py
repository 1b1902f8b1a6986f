"""Language models: the next word after a text."""

from training.tasks.language_model.export import LanguageModelExport
from training.tasks.language_model.task import LanguageModelTask

__all__ = ["LanguageModelTask"]

LanguageModelTask.exporter = LanguageModelExport
