"""What the export of a language model does differently from that of other tasks."""

import math
from collections.abc import Mapping

import onnx

from models.backend import Backend
from models.tasks.language_model import LanguageModel
from models.bundle.manifest import Manifest
from models.bundle.store import Model
from training.export.graphs import language_model_graphs
from training.export.quantize import quantize_int8
from training.export.verify import largest_difference
from training.tasks.language_model import LanguageModelTask, Perplexity, split_texts

__all__ = ["LanguageModelExport", "bundle_perplexity"]


class LanguageModelExport:
    """Graphs, manifest fields and quality of a language model."""

    torchscript = "language_model.pt"
    quantization = "int8-dynamic"

    def __init__(self, task: LanguageModelTask) -> None:
        self.task = task
        self.tokenizer = task.tokenizer
        self.graphs = language_model_graphs(task.model)

    def files(self) -> Mapping[str, str]:
        return {}

    def description(self) -> Mapping[str, object]:
        layers, size = self.task.model.network.state_shape
        return {"network": {"kind": "lstm", "hidden_size": size, "num_layers": layers}}

    def largest_difference(self, backend: Backend, manifest: Manifest) -> float:
        return largest_difference(backend, manifest, self.task.model)

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        return {name: quantize_int8(model) for name, model in models.items()}

    def measure(self, model: Model, split: str, corpus: str | None = None) -> Mapping[str, float]:
        assert isinstance(model, LanguageModel)
        data = self.task.recipe.data
        if corpus is not None:
            data = data.model_copy(update={"corpus": corpus, "files": None})
        result = bundle_perplexity(model, split_texts(data, split, self.task.data_dir))
        if self.task.model.output_layer.sparse_k is None:
            values = {"perplexity": result.value}
        else:  # its perplexity is infinite with the first word that it gives no probability
            values = {"coverage": result.coverage, "perplexity_of_covered": result.of_possible}
        return {metric: value for metric, value in values.items() if math.isfinite(value)}


def bundle_perplexity(model: LanguageModel, texts: list[str]) -> Perplexity:
    """Perplexity of a loaded bundle through the same code that serves it."""
    return Perplexity.of(token.log_probability for score in model.score(texts) for token in score.tokens)
