"""Language models: the next word after a text."""

from training.tasks.language_model.export import LanguageModelExport, bundle_perplexity
from training.tasks.language_model.perplexity import Perplexity
from training.tasks.language_model.reading import split_texts
from training.tasks.language_model.settings import DataSettings, LanguageModelRecipe, NetworkSettings
from training.tasks.language_model.task import LanguageModelTask, build_model

__all__ = [
    "DataSettings",
    "LanguageModelExport",
    "LanguageModelRecipe",
    "LanguageModelTask",
    "NetworkSettings",
    "Perplexity",
    "build_model",
    "bundle_perplexity",
    "split_texts",
]
