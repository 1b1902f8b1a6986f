"""Import of SetFit: a directory of sentence-transformers with a logistic regression on the vectors of texts.

Shapes: `B` texts, `C` classes, `d` dimensions.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from models.tasks.text_classification import Classifier
from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.bundling.weight_file import WeightFile
from training.importing.classifier import ClassifierImporter, checked_labels
from training.importing.embedding import SentenceEncoder
from training.importing.encoder_graph import TopClasses, log_probabilities
from training.importing.errors import SAVED_AGAIN, ImportRefused
from training.importing.importer import SETFIT, SETFIT_HEAD, ImportOptions, register
from training.importing.linear_heads import LinearHead, read_linear_head
from training.importing.source import SourceDirectory

__all__ = ["SetFitImporter"]

_CONFIG = "config_setfit.json"


@register(SETFIT)
class SetFitImporter(ClassifierImporter):
    """The import of a text classifier that SetFit trained."""

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        if options.pooling is not None:
            raise ImportRefused("--pooling is for encoders without modules.json; leave it out")
        self._sentences = sentences = SentenceEncoder(source, options)
        stated = source.json(_CONFIG, optional=True)
        head = read_linear_head(source.file(SETFIT_HEAD))
        if head.coefficients.shape[1] != sentences.dimensions:
            raise ImportRefused(
                f"{SETFIT_HEAD} reads {head.coefficients.shape[1]} dimensions, not {sentences.dimensions}; "
                f"{SAVED_AGAIN}"
            )
        self.independent = head.independent
        self.labels = _labels(stated.get("labels"), head)
        self.tokenizer = sentences.tokenizer
        self.special, self.max_tokens = sentences.encoder.special, sentences.encoder.max_tokens
        normalized = sentences.modules.normalized or stated.get("normalize_embeddings") is True
        self._head = _ClassifiedVectors(sentences.head, head, normalized=normalized).eval()

    def architecture(self) -> str:
        return SETFIT

    def network(self) -> Mapping[str, object]:
        return self._sentences.encoder.network

    def network_line(self) -> str:
        return f"{self._sentences.encoder.network_line}; {self._sentences.modules.line}; logistic regression (SetFit)"

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        head = nn.ModuleList([self._head, TopClasses(independent=self.independent)])
        return {"classify": self._sentences.encoder.graph(weights, _InTurn(head), self.contract, [torch.tensor(1)])}

    def largest_difference(self, model: Classifier, bundle: Path, texts: Sequence[str]) -> float:
        self._sentences.encoder.compare_tokens(self.tokenizer, texts)
        return super().largest_difference(model, bundle, texts)

    @torch.no_grad()
    def reference_log_probabilities(self, text: EncodedText) -> NDArray[np.float32]:
        output = self._head(self._sentences.encoder.reference(text), torch.tensor([len(text.tokens)]))
        found: NDArray[np.float32] = log_probabilities(output.logits, independent=self.independent)[0].numpy()
        return found


class _ClassifiedVectors(nn.Module):
    """Scores of classes by the vectors of texts."""

    def __init__(self, vectors: nn.Module, head: LinearHead, *, normalized: bool) -> None:
        super().__init__()
        self._vectors, self._normalized = vectors, normalized
        self.classes = nn.Linear(head.coefficients.shape[1], len(head.classes)).requires_grad_(False)
        self.classes.weight.copy_(torch.tensor(head.coefficients))
        self.classes.bias.copy_(torch.tensor(head.intercepts))

    def forward(self, output: Any, lengths: Tensor) -> SimpleNamespace:
        """Output of transformers, lengths `[B]` -> an object with `logits` `[B, C]`."""
        vectors = self._vectors(output, lengths)
        if self._normalized:
            vectors = functional.normalize(vectors, dim=-1)
        return SimpleNamespace(logits=self.classes(vectors))


class _InTurn(nn.Module):
    """Scores, and then the best classes by them."""

    def __init__(self, steps: nn.ModuleList) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, output: Any, lengths: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        """k `[]` -> log-probabilities and numbers of the k best classes, `[B, k]`."""
        scores, best = self.steps
        found: tuple[Tensor, ...] = best(scores(output, lengths), lengths, k)
        return found


def _labels(stated: object, head: LinearHead) -> tuple[str, ...]:
    """Return the labels that the configuration states for the numbers of the head's classes, or these themselves."""
    count = len(head.classes)
    names = list(head.classes)
    if stated is not None:
        if not isinstance(stated, list):
            raise ImportRefused(f"labels in {_CONFIG} must be a list; correct it there")
        if all(each.isdecimal() and int(each) < len(stated) for each in head.classes):
            names = [stated[int(each)] for each in head.classes]
        elif len(stated) != count:
            raise ImportRefused(f"{_CONFIG} has {len(stated)} labels, the head {count} classes; name each there")
    return checked_labels({str(number): name for number, name in enumerate(names)}, _CONFIG)
