"""Export of causal language models: graphs, manifest section, verification, quantization, model card."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx

from models.backend import Backend
from models.bundle.manifest import BundleManifest
from models.tasks.causal_language_model import CausalLanguageModelConfig
from training.bundling.folding import FoldedSoftmax
from training.bundling.model_card import Card
from training.bundling.task_export import TOKENIZER, TaskExport
from training.bundling.verify import ExportError
from training.networks.lora import merged
from training.tasks.causal_language_model.following import FOLLOWING
from training.tasks.causal_language_model.graphs import causal_graphs, network_section
from training.tasks.causal_language_model.quantization import int4_graphs, int8_graphs
from training.tasks.causal_language_model.task import CausalLanguageModelTask
from training.tasks.causal_language_model.verification import largest_difference
from training.tasks.language_model.reading import split_texts
from training.tasks.word_sets import word_sets

__all__ = ["CausalLanguageModelExport"]


class CausalLanguageModelExport(TaskExport):
    """Export of a causal language model."""

    torchscript = "causal_language_model.pt"
    quantization = "int8-weights"
    int4 = True
    point = 0.01

    def __init__(self, task: CausalLanguageModelTask) -> None:
        layer = task.model.output_layer
        if layer.has_zeros:
            given = f"sparse_k: {layer.sparse_k}" if layer.sparse_k is not None else f"alpha: {layer.alpha:g}"
            raise ExportError(
                f"output_layer.{given}: tokens would have probability 0, and bundles of causal language models have "
                "finite log-probabilities only; train with a softmax to export it"
            )
        self.task = task
        self.graphs = causal_graphs(merged(task.model.network), FoldedSoftmax(layer))

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self.task.tokenizer.save}

    def config(self) -> Mapping[str, object]:
        recipe, settings, tokenizer = self.task.recipe, self.task.model.network.settings, self.task.tokenizer
        return {
            "network": network_section(type(self.task.model).__name__, settings),
            "tokenizer": TOKENIZER,
            "vocab_size": tokenizer.vocab_size,
            "special_tokens": {
                "unknown": tokenizer.unknown_id,
                "end": tokenizer.end_id,
                "start": tokenizer.start_id,
            },
            "limits": {"max_tokens": min(recipe.longest_piece, recipe.export.max_tokens)},
        }

    def largest_difference(self, backend: Backend) -> float:
        return largest_difference(backend, self.task.model, self.graphs)

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        return int8_graphs(models)

    def quantize_int4(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        return int4_graphs(models)

    def calibrated(self, model: Any, data_dir: Path) -> Mapping[str, object]:
        found = word_sets(model, split_texts(self.task.recipe.data, "dev", data_dir), FOLLOWING)
        if found is None:
            return {}
        sections, self.calibration_files = found
        return {"sets": sections}

    @classmethod
    def card(cls, manifest: BundleManifest[CausalLanguageModelConfig]) -> Card:
        config, network = manifest.config, manifest.config.network
        given = manifest.provenance.recipe["network"]
        tied = "tied" if given.get("tied", True) else "untied"
        pretrained = given.get("pretrained")
        body = {"trained": "trained further", "lora": "adapted (LoRA)", "frozen": "kept"}[given.get("body", "trained")]
        start = f", weights of {Path(pretrained).name} {body}" if pretrained else ""
        return Card(
            unit="tokens",
            network=f"causal Transformer, {network.layers} layers, {network.hidden_size} hidden units, "
            f"{network.heads} heads ({network.key_value_heads} of keys and values), feed-forward "
            f"{network.inner_size}{'' if pretrained else ' (gated)'}, token vectors {tied}{start}",
            outputs=f"Vocabulary: {config.vocab_size} subword tokens of bytes, the end of a text included",
            limits=f"Each text may have up to {config.limits.max_tokens} tokens. Its end is not part of its score. "
            "It knows what its\ncorpus says and repeats the corpus's biases; it is no source of facts.",
            quality="Bits per byte of UTF-8 and perplexity per token, of all tokens and the end of each text, whose "
            f"bytes are not\ncounted. Texts of more than {config.limits.max_tokens} tokens are read in pieces, each "
            "after the start token.",
            columns={"bits_per_byte": "bits per byte", "perplexity": "perplexity"},
            references={"bits_per_byte": None},
            digits=3,
        )
