"""The translation task: its data, network, loss and metric."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sacrebleu
import torch

from models.text.tokenization import SubwordTokenizer
from training.data.corpora import get_corpus
from training.data.own_files import read_split
from training.data.pair_batching import PairBatch, PairBatches
from training.data.tokenization import build_subword_tokenizer
from training.networks.transformer import Transformer
from training.networks.translation_model import TranslationModel
from training.recipe import PairSettings, TranslationRecipe
from training.tasks.sequence_to_sequence import SequenceToSequenceTask
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


class TranslationTask(SequenceToSequenceTask[TranslationQuality]):
    """Translates one column of a parallel corpus into another; selected by BLEU of greedy translations."""

    metric = "BLEU"
    tokenizer: SubwordTokenizer

    def __init__(
        self, recipe: TranslationRecipe, tokenizer: SubwordTokenizer, data_dir: Path, device: torch.device
    ) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.device = device
        self.model: TranslationModel = build_model(recipe, tokenizer.vocab_size).to(device)
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

    def most_tokens(self, batch: PairBatch) -> int:
        factor, more = _LONGER
        return int(factor * batch.source.shape[1]) + more

    def quality(
        self, outputs: Sequence[str], references: Sequence[str], batches: Batches[PairBatch]
    ) -> TranslationQuality:
        """BLEU against the batches' own targets."""
        del batches
        bleu = sacrebleu.BLEU()
        score = bleu.corpus_score(outputs, [references]).score
        return TranslationQuality(bleu=score, signature=str(bleu.get_signature()), translations=list(outputs))


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
