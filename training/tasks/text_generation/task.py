"""The text generation task: its data, network, loss and metric."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from models.text.tokenization import EncoderTokenizer
from training.data.pair_batching import PairBatch, PairBatches
from training.data.rewritten_texts import RewrittenBatches, RewrittenText, read_rewritten
from training.networks.generation_model import GenerationModel
from training.networks.text_encoder import EncoderConfig, TextEncoder
from training.recipe import GenerationRecipe
from training.tasks.encoders import chosen_encoder, load_pretrained
from training.tasks.generation_quality import METRIC, measured
from training.tasks.sequence_to_sequence import SequenceToSequenceTask
from training.tasks.task import Batches

__all__ = ["GenerationQuality", "TextGenerationTask"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationQuality:
    """See `training.tasks.generation_quality`."""

    metrics: Mapping[str, float]
    outputs: list[str]

    @property
    def value(self) -> float:
        return self.metrics[METRIC]


class TextGenerationTask(SequenceToSequenceTask[GenerationQuality]):
    """Writes a text from a text, such as the subject of an e-mail; selected by ROUGE-L of greedy search."""

    metric = METRIC
    tokenizer: EncoderTokenizer

    def __init__(
        self,
        recipe: GenerationRecipe,
        tokenizer: EncoderTokenizer,
        encoder: EncoderConfig,
        data_dir: Path,
        device: torch.device,
    ) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.data_dir = data_dir
        self.device = device
        self.config = encoder.model_copy(update={"dropout": recipe.network.dropout})
        layer = recipe.output_layer.build(encoder.vocab_size, encoder.hidden_size)
        self.model: GenerationModel = GenerationModel(TextEncoder(self.config), layer).to(device)

    @staticmethod
    def build_encoder(recipe: GenerationRecipe, data_dir: Path) -> tuple[EncoderTokenizer, EncoderConfig]:
        """Tokenizer and sizes of the recipe's encoder; raises what `chosen_encoder` and `read_rewritten` raise."""
        texts = read_rewritten(recipe.data, "train", data_dir)
        every = (text for each in texts for text in (each.source, *each.targets))
        longest = recipe.data.max_tokens + recipe.data.max_output_tokens + 1  # both ends
        return chosen_encoder(recipe.network, every, longest, "data.max_tokens and data.max_output_tokens")

    def initialize(self) -> None:
        """Takes over the weights of the pretrained encoder, where the recipe names one."""
        load_pretrained(self.model.encoder, self.recipe.network)

    def batches(self, split: str) -> PairBatches:
        """Training: all pairs, shuffled by the recipe's seed; else each text, see `texts_of`.

        Raises `ValueError` where all training targets are too long, and says how many are.
        """
        if split != "train":
            return self.texts_of(split)
        data = self.recipe.data
        texts = read_rewritten(data, split, self.data_dir)
        pairs = [
            (source, ids[1:-1])
            for source, text in zip(self._sources(texts), texts, strict=True)
            for ids in self.tokenizer.encode_batch(text.targets)
        ]
        kept = [pair for pair in pairs if 0 < len(pair[1]) <= data.max_output_tokens]
        if not kept:
            raise ValueError(f"data.max_output_tokens: no training target has at most {data.max_output_tokens} tokens")
        if len(kept) < len(pairs):
            left = f"{len(pairs) - len(kept)} of {len(pairs)} training pairs are left out"
            warnings.warn(f"{left}: their targets have more than {data.max_output_tokens} tokens", stacklevel=2)
        sizes = {"end_id": self.tokenizer.end_id, "batch_tokens": data.batch_tokens}
        return PairBatches(kept, seed=self.recipe.seed, **sizes)

    def texts_of(self, split: str) -> RewrittenBatches:
        """Each text of a split with the first of its targets, in the order of their lengths."""
        texts = read_rewritten(self.recipe.data, split, self.data_dir)
        firsts = self.tokenizer.encode_batch([text.targets[0] for text in texts])
        pairs = [(source, ids[1:-1]) for source, ids in zip(self._sources(texts), firsts, strict=True)]
        sizes = {"end_id": self.tokenizer.end_id, "batch_tokens": self.recipe.data.batch_tokens}
        return RewrittenBatches(texts, pairs, **sizes)

    def _sources(self, texts: Sequence[RewrittenText]) -> list[list[int]]:
        """Without ends; of a text that is too long, the head."""
        encoded = self.tokenizer.encode_batch([text.source for text in texts])
        return [ids[:-1][: self.recipe.data.max_tokens - 1] for ids in encoded]

    def qualities(self, split: str) -> dict[str, float]:
        """All metrics of greedy search on a split."""
        return dict(self.evaluate(self.texts_of(split)).metrics)

    def most_tokens(self, batch: PairBatch) -> int:
        del batch
        return self.recipe.data.max_output_tokens

    def quality(
        self, outputs: Sequence[str], references: Sequence[str], batches: Batches[PairBatch]
    ) -> GenerationQuality:
        """Against all that was written of the texts."""
        del references
        assert isinstance(batches, RewrittenBatches)
        metrics = measured(outputs, [text.targets for text in batches.texts])
        return GenerationQuality(metrics=metrics, outputs=list(outputs))
