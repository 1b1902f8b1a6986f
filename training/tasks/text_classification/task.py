"""Training of text classifiers: classes, encoder, batches, metrics."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.tasks.text_classification import Classifier
from models.text.tokenization import EncoderTokenizer
from training.data.batching import Batches, RedrawnBatches
from training.data.identity import Record
from training.data.inspection import Inspected
from training.data.report import Expected, Texts
from training.data.settings import Split
from training.data.text_batching import TextBatch, TextBatches
from training.networks.pretrained import ENGLISH_ENCODER, installed
from training.networks.text_classifier import TextClassifier
from training.networks.text_encoder import EncoderConfig, TextEncoder
from training.recipe.own.document import Planned, Wishes
from training.recipe.own.sections import only_file
from training.run.paths import RunPaths
from training.tasks.baselines import Labels, micro_f1, text_classifier
from training.tasks.calibrated_classes import BundlePredictions, bundle_classes
from training.tasks.class_calibration import ValidationExamples, fitting_sample
from training.tasks.classification import ClassificationTask, label_file, read_labels
from training.tasks.classification_quality import (
    OUT_OF_SCOPE,
    ScopeScores,
    examples_of,
    measured,
    scope_threshold,
)
from training.tasks.encoders import chosen_encoder, encoder_files, load_pretrained, read_encoder
from training.tasks.examples import Examples
from training.tasks.ranked_classes import RankedClasses
from training.tasks.registry import register
from training.tasks.task import RunFiles
from training.tasks.text_classification.own_recipe import plan_classifier
from training.tasks.text_classification.reading import (
    LabelledText,
    TrainingTexts,
    check_training_labels,
    label_ids,
    out_of_scope_texts,
    read_labelled,
)
from training.tasks.text_classification.settings import ClassificationRecipe

__all__ = ["Classes", "TextClassificationTask"]

_PROBED_TOKENS = 400_000
"""Tokens of all splits up to which the vectors of a pretrained encoder are computed for a baseline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Classes:
    """The classes of a run, and the tokenizer and sizes of its encoder."""

    tokenizer: EncoderTokenizer
    labels: tuple[str, ...]
    encoder: EncoderConfig


@register("text-classification")
class TextClassificationTask(ClassificationTask[TextBatch]):
    """Learns the class, or the classes, of a text."""

    recipe_type = ClassificationRecipe
    kind = "classifier"
    recipe: ClassificationRecipe
    model: TextClassifier

    def __init__(self, recipe: ClassificationRecipe, classes: Classes, data_dir: Path, device: torch.device) -> None:
        self.classes = classes
        self.labels = classes.labels
        self.tokenizer = classes.tokenizer
        self.several = recipe.data.multi_label
        self.unlisted = recipe.data.out_of_scope
        self.metric = self.metric_of(recipe)
        network = recipe.network
        config = network.with_dropout(classes.encoder)
        layer = recipe.output_layer.build(len(classes.labels), config.hidden_size)
        super().__init__(recipe, data_dir, device, TextClassifier(TextEncoder(config), layer, network.pooling))

    @staticmethod
    def build_classes(recipe: ClassificationRecipe, data_dir: Path) -> Classes:
        """Return the labels of the training split, and tokenizer and sizes of the pretrained encoder, or new ones.

        Raises `ValueError` for a single class, for classes without a training text, and for an encoder that
        does not have the tokens of its tokenizer or the positions that texts need.
        """
        labels = TextClassificationTask.build_labels(recipe, data_dir)
        texts = read_labelled(recipe.data, "train", data_dir)
        tokenizer, config = chosen_encoder(
            recipe.network, (each.text for each in texts), recipe.data.max_tokens, "data.max_tokens"
        )
        return Classes(tokenizer=tokenizer, labels=labels, encoder=config)

    @staticmethod
    def build_labels(recipe: ClassificationRecipe, data_dir: Path) -> tuple[str, ...]:
        """Return the labels of the training texts.

        Raises `ValueError` for a single class, and for classes without a training text.
        """
        if recipe.data.out_of_scope:
            for split in ("train", "dev"):
                out_of_scope_texts(recipe.data, split, data_dir)
        labels = sorted({label for text in read_labelled(recipe.data, "train", data_dir) for label in text.labels})
        if recipe.data.out_of_scope:
            labels = [*(label for label in labels if label != OUT_OF_SCOPE), OUT_OF_SCOPE]
        if len(labels) < 2:
            raise ValueError(f"there is only one class, {labels[0]!r}")
        for split in ("dev", "test"):
            check_training_labels(read_labelled(recipe.data, split, data_dir), labels, recipe.data)
        return tuple(labels)

    @classmethod
    def plan(cls, files: Sequence[Inspected], wishes: Wishes) -> Planned:
        return plan_classifier(
            only_file(files),
            wishes.columns,
            pretrained=None if wishes.from_scratch else installed(ENGLISH_ENCODER),
            epochs=wishes.epochs,
            epoch_steps=wishes.epoch_steps,
        )

    @classmethod
    def metric_of(cls, recipe: ClassificationRecipe) -> str:
        return "micro F1" if recipe.data.multi_label else "accuracy"

    @classmethod
    def prepare(cls, recipe: ClassificationRecipe, run: RunPaths, data_dir: Path) -> RunFiles:
        classes = cls.build_classes(recipe, data_dir)
        return {run.labels: label_file(classes.labels), **encoder_files(run, classes.tokenizer, classes.encoder)}

    @classmethod
    def records(cls, recipe: ClassificationRecipe, split: str, data_dir: Path) -> Iterator[Record]:
        yield from ((each.labels, each.text) for each in read_labelled(recipe.data, split, data_dir))
        if recipe.data.out_of_scope:
            yield from (((OUT_OF_SCOPE,), text) for text in out_of_scope_texts(recipe.data, split, data_dir))

    @classmethod
    def expected(cls, recipe: ClassificationRecipe) -> Expected:
        return Expected(max_tokens=recipe.data.max_tokens)

    @classmethod
    def texts(cls, recipe: ClassificationRecipe, split: str, data_dir: Path, most: int) -> Texts:
        labelled = read_labelled(recipe.data, split, data_dir)[:most]
        return Texts(columns={"text": [each.text for each in labelled]}, labels=[each.labels for each in labelled])

    @classmethod
    def renewed_files(cls, recipe: ClassificationRecipe, run: RunPaths, data_dir: Path) -> RunFiles:
        return {run.labels: label_file(cls.build_labels(recipe, data_dir))}

    @classmethod
    def open(cls, recipe: ClassificationRecipe, run: RunPaths, data_dir: Path, device: torch.device) -> Self:
        tokenizer, encoder = read_encoder(run)
        return cls(recipe, Classes(tokenizer=tokenizer, labels=read_labels(run), encoder=encoder), data_dir, device)

    def initialize(self) -> None:
        load_pretrained(self.model.encoder, self.recipe.network)

    def batches_of(self, split: str, *, training: bool) -> Batches[TextBatch]:
        if not training:
            return self._labelled(read_labelled(self.recipe.data, split, self.data_dir))
        if split != "train":
            raise ValueError(f"there is no training on {split!r}")
        seed = self.recipe.seed
        texts = TrainingTexts(self.recipe.data, self.data_dir, seed)
        if self.recipe.data.augment is None:
            return self._labelled(texts.epoch(0), seed)
        return RedrawnBatches(lambda epoch: self._labelled(texts.epoch(epoch), seed))

    def baselines(self) -> dict[str, Callable[[str], float]]:
        """Return those of every classifier, and logistic regression on TF-IDF, or what stands for it."""
        texts = read_labelled(self.recipe.data, "train", self.data_dir)
        name, predict = text_classifier([each.text for each in texts], [each.labels for each in texts])

        def linear(split: str) -> float:
            given = read_labelled(self.recipe.data, split, self.data_dir)
            return micro_f1([each.labels for each in given], predict([each.text for each in given]))

        return {name: linear, **super().baselines()}

    def classes_of(self, split: str) -> Labels:
        return [each.labels for each in read_labelled(self.recipe.data, split, self.data_dir)]

    def has_quick_vectors(self) -> bool:
        if self.recipe.network.pretrained is None:
            return False
        return sum(map(self.token_count, get_args(Split))) <= _PROBED_TOKENS

    def _labelled(self, texts: Sequence[LabelledText], seed: int | None = None) -> TextBatches:
        labels = label_ids(texts, self.labels, unseen=self.recipe.data.limited)
        return self.batched([each.text for each in texts], labels, seed)

    def batched(
        self, texts: Sequence[str], labels: Sequence[Sequence[int]] | None = None, seed: int | None = None
    ) -> TextBatches:
        """Return batches of any texts."""
        data = self.recipe.data
        tokens = self.tokenizer.encode_batch(texts, data.max_tokens)
        labels = [()] * len(texts) if labels is None else labels
        return TextBatches(tokens, labels, batch_tokens=data.batch_tokens, seed=seed)

    def token_count(self, split: str) -> int:
        """Return the number of tokens of a split's texts, which are cut at `data.max_tokens`; ends are included."""
        texts = [text for _, text in self.records(self.recipe, split, self.data_dir)]
        return sum(map(len, self.tokenizer.encode_batch(texts, self.recipe.data.max_tokens)))

    def vectors(self, batch: TextBatch) -> Tensor:
        return self.model(batch.tokens.to(self.device), batch.lengths.to(self.device))

    def metrics(
        self, split: str, found: RankedClasses, labels: list[tuple[int, ...]], threshold: float | None
    ) -> dict[str, float]:
        """Return all metrics, that of out-of-scope detection among them if the corpus has such texts."""
        outside = out_of_scope_texts(self.recipe.data, split, self.data_dir)
        return measured(
            found,
            labels,
            self.predictions(self.batched(outside))[0] if outside else None,
            self.labels[:-1] if self.unlisted else self.labels,
            several=self.several,
            threshold=threshold,
        )

    @classmethod
    def measure_bundle(
        cls, model: Classifier, recipe: ClassificationRecipe, split: str, data_dir: Path
    ) -> dict[str, float]:
        """Return the metrics of a loaded bundle, by the same code that serves it."""
        texts = read_labelled(recipe.data, split, data_dir)
        labels = label_ids(texts, model.labels, unseen=recipe.data.limited)
        outside = bundle_classes(model, out_of_scope_texts(recipe.data, split, data_dir), model.log_probabilities)
        predictions = BundlePredictions.of(model, [each.text for each in texts], labels, model.log_probabilities)
        found = measured(
            predictions.ranked,
            labels,
            outside,
            model.labels,
            several=recipe.data.multi_label,
            threshold=model.config.classes.threshold,
        )
        rule = model.config.classes.out_of_scope
        if rule is not None and outside is not None:
            known = np.array([max(classes) < len(model.labels) for classes in labels])
            sides = ScopeScores(predictions.ranked.confidences[known], outside.confidences)
            if rule.score == "logit":
                sides = cls._scope_scores(model, recipe, split, data_dir) or sides
            point = scope_threshold(sides.inside, sides.outside, rule.threshold)
            found |= {"out-of-scope detected": point.detected, "in-scope rejected": point.rejected}
        return found | predictions.metrics()

    @classmethod
    def calibration_examples(
        cls, model: Classifier, recipe: ClassificationRecipe, data_dir: Path
    ) -> ValidationExamples | None:
        data, known = recipe.data, set(model.labels)
        labelled = [each for each in read_labelled(data, "dev", data_dir) if set(each.labels) <= known]
        if not labelled:
            return None
        labelled = fitting_sample(labelled, len(model.labels))
        table = model.log_probabilities([each.text for each in labelled])
        return ValidationExamples.of(table, label_ids(labelled, model.labels), several=data.multi_label)

    @classmethod
    def outside_examples(
        cls, model: Classifier, recipe: ClassificationRecipe, data_dir: Path
    ) -> NDArray[np.float64] | None:
        texts = [] if recipe.data.multi_label else out_of_scope_texts(recipe.data, "dev", data_dir)
        return model.log_probabilities(fitting_sample(texts, len(model.labels))) if texts else None

    @classmethod
    def scope_scores(cls, model: Classifier, recipe: ClassificationRecipe, data_dir: Path) -> ScopeScores | None:
        return cls._scope_scores(model, recipe, "dev", data_dir, len(model.labels)) if model.has_scores else None

    @classmethod
    def _scope_scores(
        cls, model: Classifier, recipe: ClassificationRecipe, split: str, data_dir: Path, most: int | None = None
    ) -> ScopeScores | None:
        """Return the scores of the texts of a split, or of those that calibrations of `most` classes are fitted on."""
        outside = [] if recipe.data.multi_label else out_of_scope_texts(recipe.data, split, data_dir)
        known = set(model.labels)
        inside = [each for each in read_labelled(recipe.data, split, data_dir) if set(each.labels) <= known]
        if not outside or not inside:
            return None
        if most is not None:
            inside, outside = fitting_sample(inside, most), fitting_sample(outside, most)
        return ScopeScores(model.scores([each.text for each in inside]), model.scores(outside))

    @classmethod
    def bundle_examples(
        cls, model: Classifier, recipe: ClassificationRecipe, split: str, data_dir: Path
    ) -> Examples | None:
        """Texts of a class that the model does not have count as errors."""
        if recipe.data.out_of_scope:
            return None  # records of no class have no share in accuracy
        texts = read_labelled(recipe.data, split, data_dir)
        found = bundle_classes(model, [each.text for each in texts], model.log_probabilities)
        if found is None:
            return None
        labels = label_ids(texts, model.labels, unseen=True)
        return examples_of(found, labels, threshold=model.config.classes.threshold)
