"""Translation: sentences from one language into another."""

from training.tasks.translation.export import TranslationExport
from training.tasks.translation.task import TranslationTask

__all__ = ["TranslationTask"]

TranslationTask.exporter = TranslationExport
