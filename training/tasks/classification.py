"""The classification task: its data, network, loss and metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from entmax import entmax15, entmax15_loss
from numpy.typing import NDArray
from torch import Tensor

from models.tokenization import EncoderTokenizer
from training.data.batching import IGNORED
from training.data.labelled_texts import label_ids, labels_of, out_of_scope_texts, read_labelled
from training.data.text_batching import TextBatch, TextBatches
from training.data.tokenization import build_encoder_tokenizer
from training.networks.pretrained import encoder_directory
from training.networks.text_classifier import TextClassifier
from training.networks.text_encoder import TOKENIZER, EncoderConfig, TextEncoder, load_text_encoder, read_config
from training.recipe import ClassificationRecipe
from training.tasks.classification_quality import ClassificationQuality, measure_several, measure_single, measured
from training.tasks.task import Batches

__all__ = ["Classes", "ClassificationTask"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Classes:
    """What a run keeps beside its weights."""

    tokenizer: EncoderTokenizer
    labels: tuple[str, ...]
    encoder: EncoderConfig


class ClassificationTask:
    """Tells of which class, or classes, a text is; selected by accuracy, or by micro F1 where it can be of several."""

    maximize = True

    def __init__(self, recipe: ClassificationRecipe, classes: Classes, data_dir: Path, device: torch.device) -> None:
        self.recipe = recipe
        self.classes = classes
        self.tokenizer = classes.tokenizer
        self.data_dir = data_dir
        self.device = device
        self.metric = "micro F1" if recipe.data.multi_label else "accuracy"
        network = recipe.network
        config = classes.encoder.model_copy(update={"dropout": network.dropout})
        layer = recipe.output_layer.build(len(classes.labels), config.hidden_size)
        self.model = TextClassifier(TextEncoder(config), layer, network.pooling).to(device)

    @staticmethod
    def build_classes(recipe: ClassificationRecipe, data_dir: Path) -> Classes:
        """Labels of the training split; tokenizer and sizes of the pretrained encoder, or new ones.

        Raises `ValueError` for a single class, and where texts would be longer than the encoder's positions.
        """
        texts = read_labelled(recipe.data, "train", data_dir)
        labels = labels_of(texts)
        if len(labels) < 2:
            raise ValueError(f"there is only one class, {labels[0]!r}")
        if recipe.network.pretrained is None:
            tokenizer = build_encoder_tokenizer((each.text for each in texts), vocab_size=recipe.network.vocab_size)
            config = recipe.network.config(tokenizer.vocab_size, recipe.data.max_tokens)
        else:
            directory = encoder_directory(recipe.network.pretrained)
            tokenizer, config = EncoderTokenizer.from_file(directory / TOKENIZER), read_config(directory)
        if recipe.data.max_tokens > config.positions:
            raise ValueError(f"data.max_tokens: the encoder has {config.positions} positions")
        return Classes(tokenizer=tokenizer, labels=tuple(labels), encoder=config)

    def initialize(self) -> None:
        """Takes over the weights of the pretrained encoder, where the recipe names one."""
        if self.recipe.network.pretrained is not None:
            pretrained = load_text_encoder(encoder_directory(self.recipe.network.pretrained))
            self.model.encoder.load_state_dict(pretrained.state_dict())

    def batches(self, split: str) -> TextBatches:
        """Batches of a split; training batches are shuffled by the recipe's seed."""
        texts = read_labelled(self.recipe.data, split, self.data_dir)
        labels = label_ids(texts, self.classes.labels)
        return self._batches([each.text for each in texts], labels, self.recipe.seed if split == "train" else None)

    def _batches(self, texts: Sequence[str], labels: Sequence[Sequence[int]], seed: int | None = None) -> TextBatches:
        data = self.recipe.data
        tokens = self.tokenizer.encode_batch(texts, data.max_tokens)
        return TextBatches(tokens, labels, batch_tokens=data.batch_tokens, seed=seed)

    def loss(self, batch: TextBatch) -> tuple[Tensor, int]:
        """Summed loss over the batch's texts and their classes, and the number of these pairs.

        A text of several classes counts once for each (Menon et al. 2019, "pick all labels").
        """
        hidden = self.model(batch.tokens.to(self.device), batch.lengths.to(self.device))
        targets = batch.targets.to(self.device)
        rows, places = (targets != IGNORED).nonzero(as_tuple=True)
        return self._loss(hidden[rows], targets[rows, places]), len(rows)

    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        layer = self.model.output_layer
        if self.recipe.loss == "softmax":
            return layer.loss(hidden, targets)
        total: Tensor = entmax15_loss(layer.scores(hidden)[0], targets).sum()
        return total

    def evaluate(self, batches: Batches[TextBatch], *, threshold: float | None = None) -> ClassificationQuality:
        """Metrics on a split, dropout off.

        Where texts can be of several classes, a class is predicted from a probability of `threshold` on; without it
        the best one for this split is taken, which is fair on the development set alone.
        """
        assert isinstance(batches, TextBatches)
        probabilities = self.probabilities(batches)
        if self.recipe.data.multi_label:
            return measure_several(probabilities, batches.labels, threshold)
        return measure_single(probabilities, [labels[0] for labels in batches.labels])

    @torch.no_grad()
    def probabilities(self, batches: TextBatches) -> NDArray[np.float64]:
        """Of each text and class, in the order of the split: `[texts, classes]`."""
        was_training = self.model.training
        self.model.eval()
        found = np.empty((len(batches.labels), len(self.classes.labels)))
        for batch in batches.epoch(0):
            hidden = self.model(batch.tokens.to(self.device), batch.lengths.to(self.device))
            found[batch.indices.numpy()] = self._distribution(hidden).double().cpu().numpy()
        self.model.train(was_training)
        return found

    def _distribution(self, hidden: Tensor) -> Tensor:
        layer = self.model.output_layer
        if self.recipe.loss == "softmax":
            return layer.log_prob(hidden).exp()
        distribution: Tensor = entmax15(layer.scores(hidden)[0], dim=-1)
        return distribution

    def qualities(self, split: str) -> dict[str, float]:
        """All metrics on a split, and how well texts of no class are told from others where the corpus has some.

        Where texts can be of several classes, the threshold is the one that is best on the development set.
        """
        data, batches = self.recipe.data, self.batches(split)
        outside = out_of_scope_texts(data, split, self.data_dir)
        threshold = self.evaluate(self.batches("dev")).threshold if data.multi_label else None
        return measured(
            self.probabilities(batches),
            batches.labels,
            self.probabilities(self._batches(outside, [()] * len(outside))) if outside else np.empty((0, 0)),
            self.classes.labels,
            several=data.multi_label,
            threshold=threshold,
        )

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert not state
