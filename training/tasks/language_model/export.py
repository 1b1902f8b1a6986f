"""Export of language models: graphs, manifest section, verification, int8 weights, measurement, model card.

Shapes: `B` sequences, `T` time steps.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx

from models.backend import Backend
from models.bundle.manifest import BundleManifest
from models.tasks.language_model import LanguageModelConfig
from training.bundling.model_card import Card
from training.bundling.quantize import quantize_int8_weights
from training.bundling.task_export import TOKENIZER, TaskExport, vocabulary_section
from training.tasks.language_model.following import FOLLOWING
from training.tasks.language_model.graphs import language_model_graphs
from training.tasks.language_model.reading import split_texts
from training.tasks.language_model.task import LanguageModelTask
from training.tasks.language_model.verification import largest_difference
from training.tasks.word_sets import word_sets

__all__ = ["LanguageModelExport"]


class LanguageModelExport(TaskExport):
    """Export of a language model."""

    torchscript = "language_model.pt"
    quantization = "int8-weights"

    def __init__(self, task: LanguageModelTask) -> None:
        self.task = task
        self.graphs = language_model_graphs(task.model, task.tokenizer.unknown_id)

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self.task.tokenizer.save}

    def config(self) -> Mapping[str, object]:
        layers, size = self.task.model.network.state_shape
        return {
            "network": {"kind": "lstm", "hidden_size": size, "num_layers": layers},
            **vocabulary_section(self.task.tokenizer),
            "limits": {"max_tokens": self.task.recipe.export.max_tokens},
        }

    def largest_difference(self, backend: Backend) -> float:
        return largest_difference(backend, self.task.model, self.graphs)

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        return {name: quantize_int8_weights(model) for name, model in models.items()}

    def calibrated(self, model: Any, data_dir: Path) -> Mapping[str, object]:
        found = word_sets(model, split_texts(self.task.recipe.data, "dev", data_dir), FOLLOWING)
        if found is None:
            return {}
        sections, self.calibration_files = found
        return {"sets": sections}

    @classmethod
    def card(cls, manifest: BundleManifest[LanguageModelConfig]) -> Card:
        config, network = manifest.config, manifest.config.network
        quality = "Perplexity per token, sentence ends included, `<unk>` counted like any word."
        columns = {"perplexity": "perplexity"}
        if manifest.output_layer.has_zeros:
            quality += (
                " Coverage is the share of tokens whose probability is not 0, and perplexity that of those alone:"
                " over all tokens it is infinite where coverage is below 1."
            )
            columns = {"coverage": "coverage", "perplexity_of_covered": "perplexity of covered tokens"}
        return Card(
            unit="words",
            network=f"{network.num_layers}-layer LSTM, {network.hidden_size} hidden units, word vectors "
            f"{'tied' if manifest.provenance.recipe['network'].get('tied', True) else 'untied'}",
            outputs=f"Vocabulary: {config.vocab_size} words, `<unk>` and the sentence end `</s>` included",
            limits=f"Texts of up to {config.limits.max_tokens} tokens are accepted. It knows what its corpus\n"
            "says and repeats the corpus's biases; it is no source of facts.",
            quality=quality,
            columns=columns,
            references={"perplexity": None, "coverage": 1.0, "perplexity_of_covered": None},
        )
