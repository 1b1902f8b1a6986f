"""The classification of texts: its data and network."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.text.tokenization import EncoderTokenizer
from training.data.labelled_texts import known_texts, label_ids, labels_of, out_of_scope_texts, read_labelled
from training.data.text_batching import TextBatch, TextBatches
from training.networks.text_classifier import TextClassifier
from training.networks.text_encoder import EncoderConfig, TextEncoder
from training.recipe import ClassificationRecipe
from training.tasks.classification import ClassificationTask
from training.tasks.classification_quality import measured
from training.tasks.encoders import chosen_encoder, load_pretrained

__all__ = ["Classes", "TextClassificationTask"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Classes:
    """What a run keeps beside its weights."""

    tokenizer: EncoderTokenizer
    labels: tuple[str, ...]
    encoder: EncoderConfig


class TextClassificationTask(ClassificationTask[TextBatch]):
    """Tells of which class, or classes, a text is."""

    recipe: ClassificationRecipe

    def __init__(self, recipe: ClassificationRecipe, classes: Classes, data_dir: Path, device: torch.device) -> None:
        self.recipe = recipe
        self.classes = classes
        self.labels = classes.labels
        self.tokenizer = classes.tokenizer
        self.data_dir = data_dir
        self.device = device
        self.several = recipe.data.multi_label
        self.metric = "micro F1" if self.several else "accuracy"
        network = recipe.network
        config = classes.encoder.model_copy(update={"dropout": network.dropout})
        layer = recipe.output_layer.build(len(classes.labels), config.hidden_size)
        self.model: TextClassifier = TextClassifier(TextEncoder(config), layer, network.pooling).to(device)

    @staticmethod
    def build_classes(recipe: ClassificationRecipe, data_dir: Path) -> Classes:
        """Labels of the training split; tokenizer and sizes of the pretrained encoder, or new ones.

        Raises `ValueError` for a single class, for classes of which there is no training text, and for an encoder that
        does not have the tokens of its tokenizer or the positions that texts need.
        """
        texts = read_labelled(recipe.data, "train", data_dir)
        labels = labels_of(texts)
        if len(labels) < 2:
            raise ValueError(f"there is only one class, {labels[0]!r}")
        for split in ("dev", "test"):
            label_ids(known_texts(recipe.data, split, data_dir, labels), labels)
        tokenizer, config = chosen_encoder(
            recipe.network, (each.text for each in texts), recipe.data.max_tokens, "data.max_tokens"
        )
        return Classes(tokenizer=tokenizer, labels=tuple(labels), encoder=config)

    def initialize(self) -> None:
        """Takes over the weights of the pretrained encoder, where the recipe names one."""
        load_pretrained(self.model.encoder, self.recipe.network)

    def batches_of(self, split: str, *, training: bool) -> TextBatches:
        texts = known_texts(self.recipe.data, split, self.data_dir, self.labels)
        seed = self.recipe.seed if training else None
        return self.batched([each.text for each in texts], label_ids(texts, self.labels), seed)

    def batched(
        self, texts: Sequence[str], labels: Sequence[Sequence[int]] | None = None, seed: int | None = None
    ) -> TextBatches:
        """Batches of any texts."""
        data = self.recipe.data
        tokens = self.tokenizer.encode_batch(texts, data.max_tokens)
        labels = [()] * len(texts) if labels is None else labels
        return TextBatches(tokens, labels, batch_tokens=data.batch_tokens, seed=seed)

    def vectors(self, batch: TextBatch) -> Tensor:
        vectors: Tensor = self.model(batch.tokens.to(self.device), batch.lengths.to(self.device))
        return vectors

    def qualities(self, split: str) -> dict[str, float]:
        """All metrics on a split, and how well texts of no class are told from others where the corpus has some."""
        probabilities, labels = self.predicted(split)
        outside = out_of_scope_texts(self.recipe.data, split, self.data_dir)
        return measured(
            probabilities,
            labels,
            self.predictions(self.batched(outside))[0] if outside else np.empty((0, 0)),
            self.labels,
            several=self.several,
            threshold=self.evaluate(self.batches("dev")).threshold if self.several else None,
        )
