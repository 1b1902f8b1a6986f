"""What imported text classifiers share, whatever computes their reference.

Shapes: `B` texts, `T` tokens, `C` classes, `k` classes asked for.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from models.bundle.contract import SpecialTokens
from models.bundle.manifest import Graph
from models.tasks.text_classification import Classification, Classifier
from models.tasks.zero_shot import Entailment, HypothesisPart
from models.text.encoding import EncodedText, Pairs, TokenPair
from models.text.tokenization import EncoderTokenizer
from training.bundling.bundle import Draft
from training.bundling.model_card import Card
from training.bundling.verify import absolute_difference
from training.importing.encoder import calibration_batches, encoder_tensors, quantized
from training.importing.errors import ImportRefused
from training.importing.importer import Agreement, Importer
from training.importing.samples import sample_pairs
from training.importing.tokenizers import TOKENIZER
from training.tasks.calibrated_classes import CalibratedClasses, calibration_section
from training.tasks.class_calibration import ValidationExamples
from training.tasks.classification import label_file
from training.tasks.classification_export import LABELS, classify_contract

__all__ = ["ClassifierImporter", "checked_labels"]

_THRESHOLD = 0.5
"""Least probability of a predicted class of a multi-label classifier: that of a score above 0."""


class ClassifierImporter(Importer):
    """The import of a text classifier; constructors of subclasses set the attributes."""

    task = "text-classification"
    labels: tuple[str, ...]
    independent: bool
    """Whether each class has a sigmoid of its own."""
    tokenizer: EncoderTokenizer
    special: SpecialTokens
    max_tokens: int
    pairs: Pairs | None = None
    """How the model reads two texts; None where it reads single ones."""
    _calibration = ""
    """The part of the model card about calibrated probabilities."""

    @property
    def contract(self) -> Graph:
        """The contract of the graph."""
        return classify_contract(encoder_tensors(self.pairs), normalizers=self.zero_shot)

    @property
    def zero_shot(self) -> bool:
        """Whether the model is one of premise and hypothesis, so that the graph has the output `normalizers`."""
        return self.pairs is not None and not self.independent and Entailment.of(self.labels) is not None

    @abc.abstractmethod
    def network(self) -> Mapping[str, object]:
        """Return the manifest's description of the encoder."""

    @abc.abstractmethod
    def reference_log_probabilities(self, text: EncodedText) -> NDArray[np.float32]:
        """Return the log-probabilities `[C]` of a text, or of a pair."""

    def reference_scores(self, text: EncodedText) -> NDArray[np.float32]:
        """Return the scores `[C]` of a pair before the softmax; needed where the graph has `normalizers`."""
        raise NotImplementedError

    def config(self) -> Mapping[str, object]:
        threshold = _THRESHOLD if self.independent else None
        return {
            "network": {"kind": "imported", **self.network()},
            "classes": {
                "file": LABELS,
                "count": len(self.labels),
                "threshold": threshold,
                "independent": self.independent,
            },
            "tokenizer": TOKENIZER,
            "vocab_size": self.tokenizer.vocab_size,
            "special_tokens": self.special.model_dump(),
            "limits": {"max_tokens": self.max_tokens},
            "pairs": None if self.pairs is None else self.pairs.model_dump(),
        }

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self.tokenizer.save, LABELS: label_file(self.labels)}

    def largest_difference(self, model: Classifier, bundle: Path, texts: Sequence[str]) -> float:
        del bundle
        queries = model.queries(texts, len(self.labels), truncate=True)
        if self.pairs is not None:
            queries += model.pair_queries(sample_pairs(texts), len(self.labels), truncate=True)
        expected = np.array([self.reference_log_probabilities(query.encoded) for query in queries])
        together = self._table(model.run(queries))
        alone = [self._table(model.run([query])) for query in queries]
        found = np.stack([together, np.concatenate(alone)])
        layer = self.softmax() or {}
        if layer.get("alpha", 1.0) != 1.0:  # where a probability falls to 0, rounding moves its logarithm far
            expected, found = np.exp(expected), np.exp(found)
        difference = float(absolute_difference(expected, found).max())
        return max(difference, self._difference_of_scores(model, texts)) if self.zero_shot else difference

    def _difference_of_scores(self, model: Classifier, texts: Sequence[str]) -> float:
        """Return the largest difference of a score that zero-shot classification reads."""
        encoded = [query.encoded for query in model.pair_queries(sample_pairs(texts), 1, truncate=True)]
        expected = np.array([self.reference_scores(each) for each in encoded])
        parts = [HypothesisPart(TokenPair(each.tokens[: each.second], each.tokens[each.second :])) for each in encoded]
        return float(absolute_difference(expected, np.array(model.run(parts))).max())

    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: Classifier, texts: Sequence[str]
    ) -> Mapping[str, onnx.ModelProto]:
        queries = model.queries(texts, 1, truncate=True)
        batches = ({**inputs, "k": np.array(1)} for inputs in calibration_batches(queries, self.pairs))
        return quantized(models, "classify", batches, "log_probabilities")

    def agreement(self, float32: Classifier, lossy: Classifier, texts: Sequence[str]) -> Agreement:
        one, other = (
            np.exp(self._table(model.classify(texts, len(self.labels), truncate=True))) for model in (float32, lossy)
        )
        return Agreement(
            metric="same best class as float32",
            value=float((one.argmax(1) == other.argmax(1)).mean()),
            difference=float(np.abs(one - other).max()),
        )

    def measure(self, draft: Draft) -> None:
        super().measure(draft)
        samples = self.options.samples
        if not samples.labels:
            return
        model: Classifier = draft.load()
        try:
            examples = ValidationExamples.labelled(model, samples.texts, samples.labels, several=self.independent)
        except ValueError as error:
            raise ImportRefused(f"{samples.name}: {error}") from error
        draft.report(f"calibrating on {len(examples)} texts")
        found = CalibratedClasses.of(examples, len(self.labels))
        draft.section["classes"] = found.section(model.config.classes)
        for name, content in found.files.items():
            (draft.directory / name).write_bytes(content)
        draft.quality += found.held_out_quality(samples.name)

    def model_card(self, manifest: Any) -> str:
        self._calibration = calibration_section(manifest)
        return super().model_card(manifest)

    def card(self) -> Card:
        kind = "independent, each with a sigmoid; predicted are the best and those of probability 0.5 and more"
        return Card(
            network=self.network_line(),
            outputs=f"Classes: {len(self.labels)}, in `{LABELS}`{f', {kind}' if self.independent else ''}\n"
            f"* Vocabulary: {self.tokenizer.vocab_size} tokens",
            limits=f"Each text may have up to {self.max_tokens} tokens. It knows no class but its own. It repeats the "
            "biases of its\ntraining data.",
            calibration=self._calibration,
        )

    @abc.abstractmethod
    def network_line(self) -> str:
        """Return a line of the model card about the network."""

    def _table(self, results: Sequence[Classification]) -> NDArray[np.float64]:
        """Return log-probabilities `[B, C]`, minus infinity for a class that was left out."""
        places = {label: index for index, label in enumerate(self.labels)}
        table = np.full((len(results), len(places)), -np.inf)
        for row, result in enumerate(results):
            for each in result.labels:
                table[row, places[each.label]] = each.log_probability
        return table


def checked_labels(id2label: object, where: str) -> tuple[str, ...]:
    """Return the labels in the order of their numbers; raises `ImportRefused` for labels that a bundle cannot have."""
    if not isinstance(id2label, dict):
        raise ImportRefused(f"id2label in {where} must map numbers to labels; correct it there")
    labels = [id2label.get(str(number)) for number in range(len(id2label))]
    for label in labels:
        if not isinstance(label, str):
            raise ImportRefused(f"id2label in {where} must number its {len(labels)} labels from 0; correct it there")
        if not label or "\n" in label or "\r" in label or label != label.encode(errors="ignore").decode():
            raise ImportRefused(f"{label!r} in {where} cannot be a label, a line of text; rename it there")
    if len(set(labels)) < len(labels):
        raise ImportRefused(f"id2label in {where} has a label twice; rename one there")
    return tuple(map(str, labels))
