"""Text generation: a text from a text, such as the subject of an e-mail."""

from training.tasks.text_generation.export import TextGenerationExport
from training.tasks.text_generation.task import TextGenerationTask

__all__ = ["TextGenerationTask"]

TextGenerationTask.exporter = TextGenerationExport
