"""Training of classifiers, of any input: recipe, loss and metrics."""

import abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import model_validator
from torch import Tensor

from training.data.batching import IGNORED, Batches, ExampleBatch
from training.networks.softmax_model import SoftmaxModel
from training.recipe import Recipe
from training.run.paths import RunPaths
from training.softmax.mixture import extra_state_for_classes
from training.tasks.baselines import Labels, frequent_class, linear_probe, micro_f1, too_large
from training.tasks.class_calibration import ValidationExamples
from training.tasks.classification_quality import ClassificationQuality, ScopeScores, examples_of, measure
from training.tasks.evaluation import evaluate_examples
from training.tasks.examples import Measurement
from training.tasks.ranked_classes import RankedClasses
from training.tasks.task import Task

__all__ = ["ClassificationTask", "ClassifierRecipe", "adopted_classes", "label_file", "read_labels"]


class ClassifierRecipe(Recipe):
    """The fields that recipes of all classifiers have."""

    margins: ClassVar[bool] = True

    @model_validator(mode="before")
    @classmethod
    def _former_loss(cls, content: Any) -> Any:
        """Accept the field `loss` of earlier versions, which is `output_layer.alpha` now."""
        if not isinstance(content, dict) or content.get("loss") not in ("softmax", "entmax15"):
            return content
        alpha = 1.5 if content["loss"] == "entmax15" else 1.0
        layer = content.get("output_layer", {})
        return {name: value for name, value in content.items() if name != "loss"} | {
            "output_layer": {"alpha": alpha, **layer} if isinstance(layer, dict) else layer
        }


def label_file(labels: Sequence[str]) -> Callable[[Path], object]:
    """Return a function that writes a file of labels, one a line."""
    text = "".join(f"{label}\n" for label in labels)
    return lambda path: path.write_text(text, encoding="utf-8")


def read_labels(run: RunPaths) -> tuple[str, ...]:
    """Return the labels that a run directory holds."""
    return tuple(run.labels.read_text(encoding="utf-8").removesuffix("\n").split("\n"))


_CLASS_DIMENSIONS = {"weight": 0, "bias": 0, "other_weights": 1, "left": 1}
"""Parameters of `GeneralizedSoftmax` that have a row for each class, and the dimension of these rows."""


def adopted_classes(
    model: SoftmaxModel, labels: Sequence[str], weights: Mapping[str, Tensor], before: Sequence[str]
) -> dict[str, Tensor]:
    """Return the state of a model from the weights of one with the classes `before`: rows of the output layer of
    classes that both have go to their new places, those of new classes are the model's own.

    Raises `ValueError` where no class is the same.
    """
    places = {label: place for place, label in enumerate(before)}
    kept = [(own, places[label]) for own, label in enumerate(labels) if label in places]
    if not kept:
        raise ValueError("none of the classes is one that the run has")
    adopted, fresh = dict(weights), model.state_dict()
    own, earlier = torch.tensor(kept, device=fresh["output_layer.weight"].device).unbind(1)
    for name, dimension in _CLASS_DIMENSIONS.items():
        if (key := f"output_layer.{name}") in adopted:
            rows = adopted[key].index_select(dimension, earlier)
            adopted[key] = fresh[key].index_copy(dimension, own, rows)
    if (key := "output_layer._extra_state") in adopted:
        adopted[key] = extra_state_for_classes(adopted[key], len(before), len(labels))
    return adopted


BatchT = TypeVar("BatchT", bound=ExampleBatch)


class ClassificationTask(Task[BatchT], abc.ABC):
    """Learns the class of an example, or its classes; is selected by accuracy, or then by micro F1."""

    outputs: ClassVar[str] = "classes"
    metric = "accuracy"
    """Or `micro F1` if an example can have several classes."""
    recipe: ClassifierRecipe
    labels: tuple[str, ...]
    """Names of the classes."""
    several = False
    """Whether an example can have several classes."""
    unlisted = False
    """Whether the last class is that of examples of no class, which no answer lists and no metric counts."""

    def adopt(self, weights: Mapping[str, Tensor], before: RunPaths) -> None:
        """Load the weights of a run with other classes: rows of classes that both have go to their new places.

        Rows of new classes stay as they are. Raises `ValueError` where no class is the same.
        """
        self.model.load_state_dict(adopted_classes(self.model, self.labels, weights, read_labels(before)))

    def batches(self, split: str) -> Batches[BatchT]:
        """Return the batches of a split; training batches are shuffled by the recipe's seed, images augmented."""
        return self.batches_of(split, training=split == "train")

    @abc.abstractmethod
    def batches_of(self, split: str, *, training: bool) -> Batches[BatchT]:
        """Return the batches of a split, shuffled and augmented for training, or as it is."""

    @abc.abstractmethod
    def vectors(self, batch: BatchT) -> Tensor:
        """Return the inputs of the output layer, `[B, d]`."""

    def loss(self, batch: BatchT) -> tuple[Tensor, int]:
        """Return the summed loss over the batch's examples and their classes, and the number of these pairs.

        An example of several classes counts once for each (Menon et al. 2019, "pick all labels").
        """
        hidden = self.vectors(batch)
        targets = batch.targets.to(hidden.device)
        rows, places = (targets != IGNORED).nonzero(as_tuple=True)
        return self.model.output_layer.loss(hidden[rows], targets[rows, places]), len(rows)

    def evaluate(self, batches: Batches[BatchT], *, threshold: float | None = None) -> ClassificationQuality:
        """Return the metrics on a split, dropout off.

        If examples can have several classes, those with a probability of at least `threshold` are predicted; without it
        the best threshold for this split is taken, which is fair on the development set alone.
        """
        found, labels = self.predictions(batches)
        return measure(found, labels, several=self.several, threshold=threshold)

    def predicted(self, split: str) -> tuple[RankedClasses, list[tuple[int, ...]]]:
        """Return the `predictions` for a split as it is."""
        return self.predictions(self.batches_of(split, training=False))

    def predictions(self, batches: Batches[BatchT]) -> tuple[RankedClasses, list[tuple[int, ...]]]:
        """Return the most probable listed classes and the true classes of each example, in the order of the split."""
        rows, classes = zip(*evaluate_examples(self.model, batches, self._predicted, self.group), strict=True)
        return RankedClasses.joined(rows), list(classes)

    def _predicted(self, batch: BatchT) -> list[tuple[RankedClasses, tuple[int, ...]]]:
        """Return the most probable listed classes and the true classes of each example."""
        scores = self.model.output_layer.log_prob(self.vectors(batch)).exp().double().cpu().numpy()
        ranked = RankedClasses.of(scores[:, :-1] if self.unlisted else scores)
        classes = [tuple(row[row != IGNORED].tolist()) for row in batch.targets]
        return [(ranked.part([place]), own) for place, own in enumerate(classes)]

    def measure(self, split: str) -> Measurement:
        """Return all metrics on a split as it is; the threshold for several classes is that of the validation set."""
        found, labels = self.predicted(split)
        threshold = self.evaluate(self.batches("dev")).threshold if self.several else None
        examples = examples_of(found, labels, threshold=threshold)
        return Measurement(self.metrics(split, found, labels, threshold), examples)

    @abc.abstractmethod
    def classes_of(self, split: str) -> Labels:
        """Return the names of the classes of each example, in the order of the split."""

    @abc.abstractmethod
    def has_quick_vectors(self) -> bool:
        """Return whether a pretrained encoder computes the vectors of all splits in some seconds."""

    def baselines(self) -> dict[str, Callable[[str], float]]:
        """Return the most frequent class and, with a pretrained encoder, logistic regression on its vectors.

        The latter is left out where the vectors would take longer than seconds, or the regression too much memory.
        """
        train = self.classes_of("train")
        found: dict[str, Callable[[str], float]] = {
            "most frequent class": lambda split: micro_f1(
                truth := self.classes_of(split), frequent_class(train, len(truth))
            )
        }
        if too_large(train, self.model.output_layer.weight.shape[1]) is None and self.has_quick_vectors():
            self.initialize()
            predict = linear_probe(self._vectors("train"), train)
            found["frozen encoder"] = lambda split: micro_f1(self.classes_of(split), predict(self._vectors(split)))
        return found

    def _vectors(self, split: str) -> NDArray[np.float32]:
        """Return the inputs of the output layer, `[N, d]`, dropout off, in the order of the split."""
        batches = self.batches_of(split, training=False)
        rows = evaluate_examples(self.model, batches, lambda batch: self.vectors(batch).float().cpu())
        return torch.stack(rows).numpy()

    @classmethod
    def calibration_examples(cls, model: Any, recipe: Any, data_dir: Path) -> ValidationExamples | None:
        """Return the validation split of a recipe with the log-probabilities of a loaded bundle.

        None where the calibration has nothing to be fitted on, as of tasks that do not define it.
        """
        del model, recipe, data_dir
        return None

    @classmethod
    def outside_examples(cls, model: Any, recipe: Any, data_dir: Path) -> NDArray[np.float64] | None:
        """Return the log-probabilities `[M, C]` of validation examples of no class; None where there are none."""
        del model, recipe, data_dir
        return None

    @classmethod
    def scope_scores(cls, model: Any, recipe: Any, data_dir: Path) -> ScopeScores | None:
        """Return the scores before the softmax of validation examples of a class and of none; None where a loaded
        bundle tells none, or there are no examples of no class."""
        del model, recipe, data_dir
        return None

    def metrics(
        self, split: str, found: RankedClasses, labels: list[tuple[int, ...]], threshold: float | None
    ) -> dict[str, float]:
        """Return all metrics of the `predictions` for a split."""
        del split
        return measure(found, labels, several=self.several, threshold=threshold).named()
