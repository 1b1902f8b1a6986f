"""Causal language models: Transformers that predict the next subword token."""

from training.tasks.causal_language_model.export import CausalLanguageModelExport
from training.tasks.causal_language_model.task import CausalLanguageModelTask

__all__ = ["CausalLanguageModelTask"]

CausalLanguageModelTask.exporter = CausalLanguageModelExport
