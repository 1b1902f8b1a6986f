"""What the classification of texts and of images have in common: loss and metrics."""

import abc
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from entmax import entmax15, entmax15_loss
from numpy.typing import NDArray
from torch import Tensor

from training.data.batching import IGNORED
from training.networks.classifier import ClassifierModel
from training.recipe import ClassificationRecipe, ImageClassificationRecipe
from training.tasks.classification_quality import ClassificationQuality, measure_several, measure_single
from training.tasks.task import Batches

__all__ = ["ClassificationTask", "LabelledBatch"]


class LabelledBatch(Protocol):
    """Examples and their classes."""

    @property
    def targets(self) -> Tensor:
        """`[B, L]`: each example's classes, `IGNORED` where it has fewer."""
        ...

    @property
    def indices(self) -> Tensor:
        """`[B]`: places of the examples in their split."""
        ...


BatchT = TypeVar("BatchT", bound=LabelledBatch)


class ClassificationTask(abc.ABC, Generic[BatchT]):
    """Tells of which class something is, or of which classes; selected by accuracy, or then by micro F1."""

    metric = "accuracy"
    """Or `micro F1` where an example can be of several classes."""
    maximize = True
    device: torch.device
    labels: tuple[str, ...]
    """Names of the classes."""
    recipe: ClassificationRecipe | ImageClassificationRecipe
    model: ClassifierModel
    several = False
    """Whether an example can be of several classes."""

    def batches(self, split: str) -> Batches[BatchT]:
        """Batches of a split; training batches are shuffled by the recipe's seed, and images changed at random."""
        return self.batches_of(split, training=split == "train")

    @abc.abstractmethod
    def batches_of(self, split: str, *, training: bool) -> Batches[BatchT]:
        """Batches of a split, for training or as it is."""

    @abc.abstractmethod
    def vectors(self, batch: BatchT) -> Tensor:
        """What the output layer sees, `[B, d]`."""

    def loss(self, batch: BatchT) -> tuple[Tensor, int]:
        """Summed loss over the batch's examples and their classes, and the number of these pairs.

        An example of several classes counts once for each (Menon et al. 2019, "pick all labels").
        """
        hidden = self.vectors(batch)
        targets = batch.targets.to(hidden.device)
        rows, places = (targets != IGNORED).nonzero(as_tuple=True)
        return self._loss(hidden[rows], targets[rows, places]), len(rows)

    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        layer = self.model.output_layer
        if self.recipe.loss == "softmax":
            return layer.loss(hidden, targets)
        total: Tensor = entmax15_loss(layer.scores(hidden)[0], targets).sum()
        return total

    def evaluate(self, batches: Batches[BatchT], *, threshold: float | None = None) -> ClassificationQuality:
        """Metrics on a split, dropout off.

        Where examples can be of several classes, a class is predicted from a probability of `threshold` on; without it
        the best one for this split is taken, which is fair on the development set alone.
        """
        probabilities, labels = self.predictions(batches)
        if self.several:
            return measure_several(probabilities, labels, threshold)
        return measure_single(probabilities, [label for (label,) in labels])

    def predicted(self, split: str) -> tuple[NDArray[np.float64], list[tuple[int, ...]]]:
        """As `predictions`, of a split as it is."""
        return self.predictions(self.batches_of(split, training=False))

    @torch.no_grad()
    def predictions(self, batches: Batches[BatchT]) -> tuple[NDArray[np.float64], list[tuple[int, ...]]]:
        """Probabilities `[N, C]` and the true classes of each example, in the order of the split."""
        was_training = self.model.training
        self.model.eval()
        found: dict[int, tuple[Tensor, tuple[int, ...]]] = {}
        for batch in batches.epoch(0):
            rows = self._distribution(self.vectors(batch)).double().cpu()
            classes = [tuple(row[row != IGNORED].tolist()) for row in batch.targets]
            found |= zip(batch.indices.tolist(), zip(rows, classes, strict=True), strict=True)
        self.model.train(was_training)
        ordered = [found[index] for index in sorted(found)]
        return torch.stack([row for row, _ in ordered]).numpy(), [classes for _, classes in ordered]

    def _distribution(self, hidden: Tensor) -> Tensor:
        layer = self.model.output_layer
        if self.recipe.loss == "softmax":
            return layer.log_prob(hidden).exp()
        distribution: Tensor = entmax15(layer.scores(hidden)[0], dim=-1)
        return distribution

    def qualities(self, split: str) -> dict[str, float]:
        """All metrics on a split as it is."""
        return self.evaluate(self.batches_of(split, training=False)).named()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert not state
