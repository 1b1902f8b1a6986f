"""Training of token classifiers: tags, encoder, batches, metrics.

Shapes: `N` sentences, `B` sentences of a batch, `T` tokens, `C` tags, `d` hidden size.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from models.tasks.token_classification import MOST_LABELS, Tagger
from models.text.encoding import EncodedText
from models.text.tokenization import EncoderTokenizer
from training.data.batching import IGNORED
from training.data.identity import Record
from training.data.inspection import Inspected
from training.data.report import Expected, Texts
from training.data.text_batching import TextBatch, TextBatches
from training.networks.pretrained import ENGLISH_ENCODER, installed
from training.networks.text_encoder import EncoderConfig, TextEncoder
from training.networks.token_classifier import TokenClassifier
from training.recipe.own.document import Planned, Wishes
from training.recipe.own.sections import only_file
from training.run.paths import RunPaths
from training.tasks.classification import adopted_classes, label_file, read_labels
from training.tasks.encoders import chosen_encoder, encoder_files, load_pretrained, read_encoder
from training.tasks.evaluation import evaluate_examples
from training.tasks.examples import Examples, Measurement
from training.tasks.registry import register
from training.tasks.task import RunFiles, Task
from training.tasks.token_classification.own_recipe import plan_token_classifier
from training.tasks.token_classification.quality import TaggingQuality, measured_tags
from training.tasks.token_classification.reading import (
    OUTSIDE,
    EncodedSentence,
    TaggedSentence,
    encoded_sentences,
    read_tagged,
)
from training.tasks.token_classification.settings import TokenClassificationRecipe

__all__ = ["TagBatches", "Tags", "TokenClassificationTask", "bundle_tags"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tags:
    """The tags of a run, and the tokenizer and sizes of its encoder."""

    tokenizer: EncoderTokenizer
    labels: tuple[str, ...]
    encoder: EncoderConfig


class TagBatches(TextBatches):
    """Batches of sentences; the targets `[B, T]` are the tags of words at their first tokens, others are ignored."""

    def __init__(
        self,
        sentences: Sequence[TaggedSentence],
        encoded: Sequence[EncodedSentence],
        labels: Sequence[str],
        *,
        batch_tokens: int,
        seed: int | None = None,
    ) -> None:
        """Raises `ValueError` naming tags that are not among the labels, and if there is no sentence."""
        self.sentences, self.encoded = sentences, encoded
        numbers = {label: number for number, label in enumerate(labels)}
        unknown = sorted({tag for sentence in sentences for tag in sentence.tags}.difference(numbers))
        if unknown:
            raise ValueError(
                f"tags that the model does not have: {', '.join(unknown[:10])}; "
                "the data has changed since the model was trained"
            )
        targets = [_targets(each.tags, own, numbers) for each, own in zip(sentences, encoded, strict=True)]
        super().__init__([each.tokens for each in encoded], targets, batch_tokens=batch_tokens, seed=seed)


def _targets(tags: Sequence[str], encoded: EncodedSentence, numbers: Mapping[str, int]) -> list[int]:
    targets = [IGNORED] * len(encoded.tokens)
    for tag, place in zip(tags, encoded.firsts, strict=True):
        if place is not None:
            targets[place] = numbers[tag]
    return targets


@register("token-classification")
class TokenClassificationTask(Task[TextBatch]):
    """Learns the tag of each word; is selected by F1 of entities."""

    recipe_type = TokenClassificationRecipe
    kind = "token-classifier"
    outputs = "tags"
    metric = "F1"
    recipe: TokenClassificationRecipe
    model: TokenClassifier

    def __init__(self, recipe: TokenClassificationRecipe, tags: Tags, data_dir: Path, device: torch.device) -> None:
        self.labels, self.tokenizer, self.encoder = tags.labels, tags.tokenizer, tags.encoder
        config = recipe.network.with_dropout(tags.encoder)
        layer = recipe.output_layer.build(len(tags.labels), config.hidden_size)
        super().__init__(recipe, data_dir, device, TokenClassifier(TextEncoder(config), layer))

    @staticmethod
    def build_labels(recipe: TokenClassificationRecipe, data_dir: Path) -> tuple[str, ...]:
        """Return the tags of the training sentences, and `O`.

        Raises `ValueError` for a single tag, for more than a bundle can have, and for tags of other splits that no
        training sentence has.
        """
        labels = {tag for each in read_tagged(recipe.data, "train", data_dir) for tag in each.tags} | {OUTSIDE}
        if not 2 <= len(labels) <= MOST_LABELS:
            raise ValueError(f"the training data have {len(labels)} different tags; 2 to {MOST_LABELS} are possible")
        for split in ("dev", "test"):
            own = {tag for each in read_tagged(recipe.data, split, data_dir) for tag in each.tags}
            if unknown := sorted(own - labels):
                raise ValueError(f"tags of {split} that no training sentence has: {', '.join(unknown[:10])}")
        return tuple(sorted(labels))

    @classmethod
    def plan(cls, files: Sequence[Inspected], wishes: Wishes) -> Planned:
        return plan_token_classifier(
            only_file(files),
            wishes.columns,
            pretrained=None if wishes.from_scratch else installed(ENGLISH_ENCODER),
            epochs=wishes.epochs,
            epoch_steps=wishes.epoch_steps,
        )

    @classmethod
    def prepare(cls, recipe: TokenClassificationRecipe, run: RunPaths, data_dir: Path) -> RunFiles:
        labels = cls.build_labels(recipe, data_dir)
        texts = (each.text for each in read_tagged(recipe.data, "train", data_dir))
        tokenizer, encoder = chosen_encoder(recipe.network, texts, recipe.data.max_tokens, "data.max_tokens")
        return {run.labels: label_file(labels), **encoder_files(run, tokenizer, encoder)}

    @classmethod
    def records(cls, recipe: TokenClassificationRecipe, split: str, data_dir: Path) -> Iterator[Record]:
        for each in read_tagged(recipe.data, split, data_dir):
            yield each.types, "\n".join(map("\t".join, zip(each.words, each.tags, strict=True)))

    @classmethod
    def expected(cls, recipe: TokenClassificationRecipe) -> Expected:
        return Expected(max_tokens=recipe.data.max_tokens)

    @classmethod
    def texts(cls, recipe: TokenClassificationRecipe, split: str, data_dir: Path, most: int) -> Texts:
        sentences = read_tagged(recipe.data, split, data_dir)[:most]
        return Texts(columns={"text": [each.text for each in sentences]}, labels=[each.types for each in sentences])

    @classmethod
    def renewed_files(cls, recipe: TokenClassificationRecipe, run: RunPaths, data_dir: Path) -> RunFiles:
        return {run.labels: label_file(cls.build_labels(recipe, data_dir))}

    @classmethod
    def open(cls, recipe: TokenClassificationRecipe, run: RunPaths, data_dir: Path, device: torch.device) -> Self:
        tokenizer, encoder = read_encoder(run)
        return cls(recipe, Tags(tokenizer=tokenizer, labels=read_labels(run), encoder=encoder), data_dir, device)

    def initialize(self) -> None:
        load_pretrained(self.model.encoder, self.recipe.network)

    def adopt(self, weights: Mapping[str, Tensor], before: RunPaths) -> None:
        """Load the weights of a run with other tags: rows of tags that both have go to their new places.

        Raises `ValueError` where no tag is the same.
        """
        self.model.load_state_dict(adopted_classes(self.model, self.labels, weights, read_labels(before)))

    def batches(self, split: str) -> TagBatches:
        sentences = read_tagged(self.recipe.data, split, self.data_dir)
        data, seed = self.recipe.data, self.recipe.seed if split == "train" else None
        encoded = encoded_sentences(sentences, self.tokenizer, data.max_tokens)
        return TagBatches(sentences, encoded, self.labels, batch_tokens=data.batch_tokens, seed=seed)

    def token_count(self, split: str) -> int:
        """Return the number of tokens of a split's sentences, ends included."""
        sentences = read_tagged(self.recipe.data, split, self.data_dir)
        encoded = encoded_sentences(sentences, self.tokenizer, self.recipe.data.max_tokens)
        return sum(len(each.tokens) for each in encoded)

    def baselines(self) -> dict[str, Callable[[str], float]]:
        """Return the most frequent tag of each word in training; words that it does not have are outside."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for sentence in read_tagged(self.recipe.data, "train", self.data_dir):
            for word, tag in zip(sentence.words, sentence.tags, strict=True):
                counts[word][tag] += 1
        usual = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}

        def tagged(split: str) -> float:
            sentences = read_tagged(self.recipe.data, split, self.data_dir)
            predicted = [[usual.get(word, OUTSIDE) for word in each.words] for each in sentences]
            return measured_tags([each.tags for each in sentences], predicted).value

        return {"most frequent tag of each word": tagged}

    def loss(self, batch: TextBatch) -> tuple[Tensor, int]:
        """Return the summed loss over the first tokens of the batch's words, and their number."""
        hidden = self.model(batch.tokens.to(self.device), batch.lengths.to(self.device))
        targets = batch.targets.to(hidden.device)
        kept = targets != IGNORED
        return self.model.output_layer.loss(hidden[kept], targets[kept]), int(kept.sum())

    def evaluate(self, batches: TagBatches) -> TaggingQuality:
        """Return the metrics on a split, dropout off."""
        return measured_tags([each.tags for each in batches.sentences], self.predictions(batches))

    def predictions(self, batches: TagBatches) -> list[list[str]]:
        """Return the predicted tags of each sentence's words, in the order of the split."""
        rows = evaluate_examples(self.model, batches, self._predicted, self.group)
        return [_tags(each, row, self.labels) for each, row in zip(batches.encoded, rows, strict=True)]

    def _predicted(self, batch: TextBatch) -> list[list[int]]:
        """Return the most probable tag of each token."""
        hidden = self.model(batch.tokens.to(self.device), batch.lengths.to(self.device))
        best: list[list[int]] = self.model.output_layer.argmax(hidden).tolist()
        return best

    def measure(self, split: str) -> Measurement:
        quality = self._quality(split)
        return Measurement(quality.named(), quality.examples())

    def report(self, split: str) -> list[str]:
        return self._quality(split).lines()

    def _quality(self, split: str) -> TaggingQuality:
        sentences = read_tagged(self.recipe.data, split, self.data_dir)
        data = self.recipe.data
        encoded = encoded_sentences(sentences, self.tokenizer, data.max_tokens)
        return self.evaluate(TagBatches(sentences, encoded, self.labels, batch_tokens=data.batch_tokens))

    @classmethod
    def measure_bundle(
        cls, model: Tagger, recipe: TokenClassificationRecipe, split: str, data_dir: Path
    ) -> dict[str, float]:
        """Return the metrics of a loaded bundle, by the same code that serves it."""
        return _bundle_quality(model, recipe, split, data_dir).named()

    @classmethod
    def bundle_examples(
        cls, model: Tagger, recipe: TokenClassificationRecipe, split: str, data_dir: Path
    ) -> Examples | None:
        return _bundle_quality(model, recipe, split, data_dir).examples()

    @classmethod
    def report_bundle(cls, model: Tagger, recipe: TokenClassificationRecipe, split: str, data_dir: Path) -> list[str]:
        return _bundle_quality(model, recipe, split, data_dir).lines()


def bundle_tags(model: Tagger, sentences: Sequence[TaggedSentence]) -> list[list[str]]:
    """Return the tags that a loaded bundle predicts for the words of sentences, at the first token of each."""
    encoded = encoded_sentences(sentences, model.tokenizer, model.config.limits.max_tokens)
    rows = model.log_probabilities([EncodedText(tuple(each.tokens), len(each.tokens)) for each in encoded])
    pairs = zip(encoded, rows, strict=True)
    return [_tags(each, row.argmax(1).tolist(), model.labels) for each, row in pairs]


def _bundle_quality(model: Tagger, recipe: TokenClassificationRecipe, split: str, data_dir: Path) -> TaggingQuality:
    sentences = read_tagged(recipe.data, split, data_dir)
    return measured_tags([each.tags for each in sentences], bundle_tags(model, sentences))


def _tags(encoded: EncodedSentence, best: Sequence[int], labels: Sequence[str]) -> list[str]:
    """Return the tag of each word from the most probable one of each token; a word without a token is outside."""
    return [OUTSIDE if place is None else labels[best[place]] for place in encoded.firsts]
