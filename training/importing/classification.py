"""Import of encoders for sequence classification, of any architecture of transformers.

Shapes: `T` tokens, `C` classes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from models.tasks.text_classification import Classifier
from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.bundling.weight_file import WeightFile
from training.importing.classifier import ClassifierImporter, checked_labels
from training.importing.encoder import Encoder, labels_of
from training.importing.encoder_graph import TopClasses, log_probabilities
from training.importing.errors import ImportRefused
from training.importing.importer import SEQUENCE_CLASSIFIER, ImportOptions, register
from training.importing.source import CONFIG, SourceDirectory

__all__ = ["SequenceClassifierImporter"]

_KINDS = ("single_label_classification", "multi_label_classification")


@register(SEQUENCE_CLASSIFIER)
class SequenceClassifierImporter(ClassifierImporter):
    """The import of a classifier of transformers whose attention sees all tokens."""

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self.independent = _is_multi_label(source.config.get("problem_type"), labels_of(source))
        self._encoder = encoder = Encoder(source, options)
        self.labels = _labels(source, encoder.config.num_labels)
        self.tokenizer, self.special, self.max_tokens = encoder.tokenizer, encoder.special, encoder.max_tokens
        self.pairs = encoder.pairs

    def network(self) -> Mapping[str, object]:
        return self._encoder.network

    def network_line(self) -> str:
        return self._encoder.network_line

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        head = TopClasses(independent=self.independent, normalizers=self.zero_shot)
        return {"classify": self._encoder.graph(weights, head, self.contract, [torch.tensor(1)])}

    def largest_difference(self, model: Classifier, bundle: Path, texts: Sequence[str]) -> float:
        self._encoder.compare_tokens(self.tokenizer, texts)
        return super().largest_difference(model, bundle, texts)

    def reference_log_probabilities(self, text: EncodedText) -> NDArray[np.float32]:
        logits = self._encoder.reference(text).logits
        found: NDArray[np.float32] = log_probabilities(logits, independent=self.independent)[0].numpy()
        return found

    def reference_scores(self, text: EncodedText) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._encoder.reference(text).logits[0].numpy()
        return found


def _is_multi_label(problem_type: object, labels: int) -> bool:
    """Return whether each class has a sigmoid of its own; raises `ImportRefused` for an unknown kind of problem."""
    if problem_type is not None and problem_type not in _KINDS:
        raise ImportRefused(
            f"problem_type {problem_type!r} in {CONFIG} is not known; state {' or '.join(_KINDS)} there"
        )
    if labels < 2:
        raise ImportRefused(
            f"the model has one class: without problem_type in {CONFIG} it is imported as a model of one number"
        )
    return problem_type == "multi_label_classification"


def _labels(source: SourceDirectory, count: int) -> tuple[str, ...]:
    """Return the labels, those of transformers where the configuration has none."""
    found = source.config.get("id2label") or {str(number): f"LABEL_{number}" for number in range(count)}
    return checked_labels(found, CONFIG)
