"""The translation task: its data, network, loss and metric."""

from dataclasses import dataclass
from pathlib import Path

import sacrebleu
import torch
from torch import Tensor

from models.tokenization import SubwordTokenizer
from training.data.batching import IGNORED
from training.data.corpora import get_corpus
from training.data.own_files import read_split
from training.data.pair_batching import PairBatch, PairBatches
from training.data.tokenization import build_subword_tokenizer
from training.networks.transformer import Transformer
from training.networks.translation_model import TranslationModel
from training.recipe import PairSettings, TranslationRecipe
from training.tasks.task import Batches

__all__ = ["TranslationQuality", "TranslationTask", "build_model", "split_pairs"]

_LONGER = 1.5, 10
"""Greedy translations may have that many times the source's tokens, and so many more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslationQuality:
    """BLEU (Papineni et al. 2002) as sacrebleu computes it, detokenized and cased, 0 to 100."""

    bleu: float
    signature: str
    translations: list[str]

    @property
    def value(self) -> float:
        return self.bleu


def build_model(recipe: TranslationRecipe, vocab_size: int) -> TranslationModel:
    """The network and output layer a recipe describes, with fresh parameters."""
    network = recipe.network
    transformer = Transformer(
        network.hidden_size,
        network.inner_size,
        network.heads,
        network.encoder_layers,
        network.decoder_layers,
        dropout=network.dropout,
        norm=network.norm,
    )
    return TranslationModel(transformer, recipe.output_layer.build(vocab_size, network.hidden_size))


class TranslationTask:
    """Translates one column of a parallel corpus into another; selected by BLEU of greedy translations."""

    metric = "BLEU"
    maximize = True

    def __init__(
        self, recipe: TranslationRecipe, tokenizer: SubwordTokenizer, data_dir: Path, device: torch.device
    ) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.device = device
        self.model = build_model(recipe, tokenizer.vocab_size).to(device)
        self.data_dir = data_dir

    @staticmethod
    def build_tokenizer(recipe: TranslationRecipe, data_dir: Path) -> SubwordTokenizer:
        """Joint byte-pair encoding of both sides of the recipe's training split."""
        pairs = split_pairs(recipe.data, "train", data_dir)
        return build_subword_tokenizer((text for pair in pairs for text in pair), vocab_size=recipe.data.vocab_size)

    def initialize(self) -> None:
        """Fresh parameters are all there is."""

    def batches(self, split: str) -> PairBatches:
        """Batches of a split; training batches are shuffled by the recipe's seed and lack pairs that are too long."""
        data = self.recipe.data
        sources, targets = zip(*split_pairs(data, split, self.data_dir), strict=True)
        encode, training = self.tokenizer.encode_batch, split == "train"
        pairs = list(zip(encode(sources), encode(targets), strict=True))
        if training:
            pairs = [pair for pair in pairs if min(map(len, pair)) > 0 and max(map(len, pair)) <= data.max_tokens]
        seed = self.recipe.seed if training else None
        return PairBatches(pairs, end_id=self.tokenizer.end_id, batch_tokens=data.batch_tokens, seed=seed)

    def loss(self, batch: PairBatch) -> tuple[Tensor, int]:
        """Summed loss over the batch's targets and their number."""
        targets = batch.targets.to(self.device)
        hidden = self.model(
            batch.source.to(self.device), batch.source_lengths.to(self.device), batch.inputs.to(self.device)
        )
        valid = targets != IGNORED
        kept = targets[valid]
        return self.model.output_layer.loss(hidden[valid], kept), kept.shape[0]

    def evaluate(self, batches: Batches[PairBatch]) -> TranslationQuality:
        """BLEU of greedy translations against the batches' own targets, dropout off."""
        was_training = self.model.training
        self.model.eval()
        found: dict[int, tuple[str, str]] = {}
        for batch in batches.epoch(0):
            texts = self.tokenizer.decode_batch(self._greedy(batch))
            references = self.tokenizer.decode_batch([row[row != IGNORED].tolist() for row in batch.targets])
            found |= zip(batch.indices.tolist(), zip(texts, references, strict=True), strict=True)
        self.model.train(was_training)
        ordered = [found[index] for index in sorted(found)]
        translations = [translation for translation, _ in ordered]
        bleu = sacrebleu.BLEU()
        score = bleu.corpus_score(translations, [[reference for _, reference in ordered]]).score
        return TranslationQuality(bleu=score, signature=str(bleu.get_signature()), translations=translations)

    def _greedy(self, batch: PairBatch) -> list[list[int]]:
        factor, more = _LONGER
        return self.model.greedy(
            batch.source.to(self.device),
            batch.source_lengths.to(self.device),
            end_id=self.tokenizer.end_id,
            max_tokens=int(factor * batch.source.shape[1]) + more,
        )

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        assert not state


def split_pairs(data: PairSettings, split: str, data_dir: Path) -> list[tuple[str, str]]:
    """Source and target texts of a split.

    Raises `ValueError` for a column that the corpus does not have, and what `read_split` raises for own files.
    """
    if data.files is not None:
        return read_split(data.files, split, data_dir)[: data.limit]
    assert data.corpus is not None
    corpus = get_corpus(data.corpus)
    for column in (data.source, data.target):
        if column not in corpus.columns:
            raise ValueError(f"corpus {corpus.name!r} has no column {column!r}; it has {', '.join(corpus.columns)}")
    source, target = corpus.columns.index(data.source), corpus.columns.index(data.target)
    pairs = [(record[source], record[target]) for record in corpus.records(split, data_dir)]
    return pairs[: data.limit]
