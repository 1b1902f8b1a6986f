"""Import of text classifiers of transformers that have no importer of their own: torch exports the module as it is.

Shapes: `B` texts, `T` tokens, `C` classes.
"""

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.bundling.bundle import BundleGraph
from training.bundling.graphs import ExportGraph, random_sequences
from training.bundling.onnx import to_onnx
from training.importing.classification import classifier_config, classifier_labels, is_multi_label, load_classifier
from training.importing.classifier import ClassifierImporter
from training.importing.encoder_graph import log_probabilities, top_classes
from training.importing.errors import ImportRefused
from training.importing.importer import OTHER_CLASSIFIER, ImportOptions, need, register
from training.importing.source import CONFIG, SourceDirectory
from training.importing.tokenizers import compare_tokens, encoder_tokenizer, reference_tokenizer

__all__ = ["OtherClassifierImporter"]

_LONGEST = 512
"""Longest text where neither the configuration nor the tokenizer says how long texts may be."""
_INSTEAD = (
    "train a classifier on an encoder instead (network.pretrained of a recipe, docs/tutorials/classifier.md), or add "
    "an importer by the entry points softserve.training.importing"
)


@register(OTHER_CLASSIFIER)
class OtherClassifierImporter(ClassifierImporter):
    """The import of any encoder for sequence classification, whose graph is that of torch's exporter."""

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self._architecture = source.architecture
        _check_config(source)
        model_class = _model_class(source)
        config = classifier_config(model_class, source)
        self.independent = is_multi_label(source.config.get("problem_type"), config.num_labels)
        self.labels = classifier_labels(source, config.num_labels)
        self._reference_tokenizer = reference_tokenizer(source)
        self.tokenizer, self.special = encoder_tokenizer(self._reference_tokenizer.backend_tokenizer)
        if self.tokenizer.vocab_size > config.vocab_size:
            raise ImportRefused(
                f"the tokenizer has {self.tokenizer.vocab_size} tokens, more than vocab_size of {CONFIG}, "
                f"{config.vocab_size}"
            )
        self._model = load_classifier(model_class, config, source)
        self.max_tokens = self._longest(config, self._reference_tokenizer.model_max_length, options.max_tokens)

    def _longest(self, config: Any, stated: object, wanted: int | None) -> int:
        """Return the longest text: the wanted, or that of configuration and tokenizer which the model computes."""
        positions = getattr(config, "max_position_embeddings", None)
        sizes = [each for each in (positions, stated) if isinstance(each, int) and 3 <= each <= 1 << 17]
        longest = wanted or min(sizes, default=_LONGEST)
        padding = getattr(config, "pad_token_id", None)
        offset = padding + 1 if isinstance(padding, int) else 0  # of positions that are numbered after the padding's
        for each in [longest] if wanted else [longest, longest - offset]:
            if each > 2 and self._computes(each):
                return each
        raise ImportRefused(
            f"{self._architecture} fails on a text of {longest} tokens; --max-tokens sets another length"
        )

    def _computes(self, length: int) -> bool:
        start, end = self.special.start, self.special.end
        try:
            self.reference_log_probabilities([end if start is None else start, *[end] * (length - 1)])
        except (IndexError, RuntimeError, ValueError):
            return False
        return True

    def network(self) -> Mapping[str, object]:
        sizes = dict.fromkeys(("hidden_size", "inner_size", "layers", "heads"))
        return {"architecture": self._architecture, **sizes, "positions": self.max_tokens}

    def network_line(self) -> str:
        return f"`{self._architecture}` of transformers, exported by torch as it is"

    def graphs(self) -> Mapping[str, BundleGraph]:
        generator = torch.Generator().manual_seed(0)
        examples = random_sequences(self.tokenizer.vocab_size, 3, min(7, self.max_tokens), generator)
        module = _Classify(self._model, independent=self.independent).eval()
        try:
            model = to_onnx(ExportGraph(module, self.contract, (*examples, torch.tensor(1))))
        except Exception as error:  # torch's exporter raises exceptions of many kinds
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ImportRefused(f"torch cannot export {self._architecture} to ONNX ({reason}); {_INSTEAD}") from error
        return {"classify": BundleGraph(self.contract, model)}

    def largest_difference(self, model: Any, bundle: Any, texts: Sequence[str]) -> float:
        compare_tokens(self.tokenizer, self._reference_tokenizer, texts)
        return super().largest_difference(model, bundle, texts)

    @torch.no_grad()
    def reference_log_probabilities(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        mask = torch.ones(1, len(tokens), dtype=torch.long)
        logits = self._model(input_ids=torch.tensor([tokens]), attention_mask=mask).logits
        found: NDArray[np.float32] = log_probabilities(logits, independent=self.independent)[0].numpy()
        return found


class _Classify(nn.Module):
    """Computes the most probable classes of each text."""

    def __init__(self, model: nn.Module, *, independent: bool) -> None:
        super().__init__()
        self.model, self._independent = model, independent

    def forward(self, tokens: Tensor, lengths: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """tokens `[B, T]`, lengths `[B]`, k `[]` -> log-probabilities and numbers of the k best classes, `[B, k]`."""
        mask = (torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]).long()
        logits = self.model(input_ids=tokens, attention_mask=mask).logits
        return top_classes(logits, k, independent=self._independent)


def _check_config(source: SourceDirectory) -> None:
    """Raise `ImportRefused` where `config.json` alone says that the model cannot be imported."""
    config, name = source.config, source.architecture
    labels = config.get("id2label")
    is_multi_label(config.get("problem_type"), len(labels) if isinstance(labels, dict) else config.get("num_labels", 2))
    if "auto_map" in config:
        raise ImportRefused(f"{CONFIG} names code of the directory for {name}, which is not run; {_INSTEAD}")
    if config.get("is_encoder_decoder") or config.get("is_decoder"):
        raise ImportRefused(f"{name} classifies by a decoder, whose padding the service does not know; {_INSTEAD}")


def _model_class(source: SourceDirectory) -> Any:
    """Return the class that `config.json` names; raises `ImportRefused` for unknown classes and causal models."""
    transformers, name = need("transformers"), source.architecture
    model_class = getattr(transformers, name, None)
    if model_class is None or not hasattr(model_class, "config_class"):
        version = importlib.metadata.version("transformers")
        raise ImportRefused(f"transformers {version} has no class {name}; {_INSTEAD}")
    kinds = need("transformers.models.auto.modeling_auto")
    kind = model_class.config_class.model_type
    if kind in kinds.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in kinds.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise ImportRefused(f"{name} is a causal model, which classifies by the last token of a text; {_INSTEAD}")
    return model_class
