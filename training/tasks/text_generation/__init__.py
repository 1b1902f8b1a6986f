"""Text generation: a text from a text, such as the subject of an e-mail."""

from training.tasks.text_generation.export import TextGenerationExport, bundle_generation
from training.tasks.text_generation.reading import SourceTargets, read_source_targets
from training.tasks.text_generation.settings import GenerationRecipe, GenerationSettings
from training.tasks.text_generation.task import GenerationQuality, TextGenerationTask

__all__ = [
    "GenerationQuality",
    "GenerationRecipe",
    "GenerationSettings",
    "SourceTargets",
    "TextGenerationExport",
    "TextGenerationTask",
    "bundle_generation",
    "read_source_targets",
]
