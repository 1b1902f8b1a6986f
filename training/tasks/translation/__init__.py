"""Translation: sentences from one language into another."""

from training.tasks.translation.export import TranslationExport, bundle_bleu
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.settings import PairSettings, TransformerSettings, TranslationRecipe
from training.tasks.translation.task import TranslationQuality, TranslationTask, build_model

__all__ = [
    "PairSettings",
    "TransformerSettings",
    "TranslationExport",
    "TranslationQuality",
    "TranslationRecipe",
    "TranslationTask",
    "build_model",
    "bundle_bleu",
    "split_pairs",
]
