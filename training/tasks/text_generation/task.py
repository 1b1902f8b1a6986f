"""Training of text generators: encoder, batches, metrics."""

import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from models.tasks.text_generation import Generator
from models.text.tokenization import EncoderTokenizer
from training.data.identity import Record
from training.data.inspection import Inspected
from training.data.masked_targets import masked_targets
from training.data.pair_batching import PairBatch, PairBatches
from training.data.report import Expected, Texts
from training.networks.generation_model import GenerationModel
from training.networks.pretrained import ENGLISH_ENCODER, installed
from training.networks.text_encoder import EncoderConfig, TextEncoder
from training.recipe.own.document import Planned, Wishes
from training.run.paths import RunPaths
from training.tasks.baselines import nearest_text
from training.tasks.encoders import chosen_encoder, encoder_files, load_pretrained, read_encoder
from training.tasks.examples import Measurement
from training.tasks.registry import register
from training.tasks.sequence_to_sequence import SequenceToSequenceTask
from training.tasks.task import RunFiles
from training.tasks.text_generation.own_recipe import plan_text_generator
from training.tasks.text_generation.quality import METRIC, bundle_generation, measured
from training.tasks.text_generation.reading import SourceTargets, read_source_targets
from training.tasks.text_generation.settings import GenerationRecipe

__all__ = ["GenerationQuality", "TextGenerationTask"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationQuality:
    """The result of `training.tasks.text_generation.quality`, and the measured outputs."""

    measurement: Measurement
    outputs: list[str]

    @property
    def value(self) -> float:
        return self.measurement.metrics[METRIC]


@register("text-generation")
class TextGenerationTask(SequenceToSequenceTask[GenerationQuality]):
    """Writes a text from a text, such as the subject of an e-mail; selected by ROUGE-L of greedy search."""

    recipe_type = GenerationRecipe
    metric = METRIC
    kind = "text-generator"
    recipe: GenerationRecipe
    tokenizer: EncoderTokenizer
    model: GenerationModel

    def __init__(
        self,
        recipe: GenerationRecipe,
        tokenizer: EncoderTokenizer,
        encoder: EncoderConfig,
        data_dir: Path,
        device: torch.device,
    ) -> None:
        self.tokenizer = tokenizer
        self.config = recipe.network.with_dropout(encoder)
        layer = recipe.output_layer.build(encoder.vocab_size, encoder.hidden_size)
        mask_id = None if recipe.network.masked_targets is None else tokenizer.mask_id
        super().__init__(recipe, data_dir, device, GenerationModel(TextEncoder(self.config), layer, mask_id))

    @staticmethod
    def build_encoder(recipe: GenerationRecipe, data_dir: Path) -> tuple[EncoderTokenizer, EncoderConfig]:
        """Return tokenizer and sizes of the recipe's encoder.

        Raises `ValueError` for DeBERTa, for `network.masked_targets` with a tokenizer that has no mask token, and the
        errors of `chosen_encoder` and `read_source_targets`.
        """
        masked = recipe.network.masked_targets is not None
        texts = read_source_targets(recipe.data, "train", data_dir)
        every = (text for each in texts for text in (each.source, *each.targets))
        longest = recipe.data.max_tokens + recipe.data.max_output_tokens + 1 + masked  # start, and a masked end
        needed_by = "data.max_tokens and data.max_output_tokens"
        tokenizer, encoder = chosen_encoder(recipe.network, every, longest, needed_by, mask=masked)
        if encoder.position_buckets is not None:
            raise ValueError("network.pretrained: text generation needs vectors of positions, which DeBERTa lacks")
        if masked and tokenizer.mask_id is None:
            raise ValueError("network.masked_targets: the encoder's tokenizer has no mask token, [MASK] or <mask>")
        return tokenizer, encoder

    @classmethod
    def plan(cls, files: Sequence[Inspected], wishes: Wishes) -> Planned:
        return plan_text_generator(
            files,
            wishes.columns,
            pretrained=None if wishes.from_scratch else installed(ENGLISH_ENCODER),
            epochs=wishes.epochs,
            epoch_steps=wishes.epoch_steps,
        )

    @classmethod
    def prepare(cls, recipe: GenerationRecipe, run: RunPaths, data_dir: Path) -> RunFiles:
        return encoder_files(run, *cls.build_encoder(recipe, data_dir))

    @classmethod
    def records(cls, recipe: GenerationRecipe, split: str, data_dir: Path) -> Iterator[Record]:
        texts = read_source_targets(recipe.data, split, data_dir)
        return (((), "\t".join((text.source, *text.targets))) for text in texts)

    @classmethod
    def expected(cls, recipe: GenerationRecipe) -> Expected:
        del recipe
        return Expected()

    @classmethod
    def texts(cls, recipe: GenerationRecipe, split: str, data_dir: Path, most: int) -> Texts:
        found = read_source_targets(recipe.data, split, data_dir)[:most]
        sources, targets = zip(*((each.source, target) for each in found for target in each.targets), strict=True)
        return Texts(columns={"source": sources, "target": targets})

    @classmethod
    def open(cls, recipe: GenerationRecipe, run: RunPaths, data_dir: Path, device: torch.device) -> Self:
        return cls(recipe, *read_encoder(run), data_dir, device)

    def initialize(self) -> None:
        load_pretrained(self.model.encoder, self.recipe.network)

    def loss(self, batch: PairBatch) -> tuple[Tensor, int]:
        """Return the summed loss and the number of targets, which are those masked with `network.masked_targets`."""
        share, mask_id = self.recipe.network.masked_targets, self.model.mask_id
        if share is not None and mask_id is not None:
            batch = masked_targets(batch, share, mask_id=mask_id, vocab_size=self.config.vocab_size)
        return super().loss(batch)

    def batches(self, split: str) -> PairBatches:
        """Return all training pairs, shuffled by the recipe's seed, or each text of another split, see `texts_of`.

        Raises `ValueError` if all training targets are too long, and warns of some.
        """
        if split != "train":
            return self.texts_of(split)
        data = self.recipe.data
        texts = read_source_targets(data, split, self.data_dir)
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
        seed, end_id = self.recipe.seed, self.tokenizer.end_id
        return PairBatches(kept, end_id=end_id, batch_tokens=data.batch_tokens, seed=seed)

    def token_count(self, split: str) -> int:
        """Return the number of tokens of sources and targets, their ends included."""
        texts = read_source_targets(self.recipe.data, split, self.data_dir)
        every = [text for each in texts for text in (each.source, *each.targets)]
        return sum(map(len, self.tokenizer.encode_batch(every)))

    def texts_of(self, split: str) -> PairBatches:
        """Return each text of a split with the first of its targets, in the order of their lengths."""
        texts = read_source_targets(self.recipe.data, split, self.data_dir)
        firsts = self.tokenizer.encode_batch([text.targets[0] for text in texts])
        pairs = [(source, ids[1:-1]) for source, ids in zip(self._sources(texts), firsts, strict=True)]
        return PairBatches(
            pairs,
            end_id=self.tokenizer.end_id,
            batch_tokens=self.recipe.data.batch_tokens,
            references=[text.targets for text in texts],
        )

    def baselines(self) -> Mapping[str, Callable[[str], float]]:
        """Return ROUGE-L of the first words of the sources, and of the target of the most similar training source."""
        train = read_source_targets(self.recipe.data, "train", self.data_dir)
        usual = max(1, round(statistics.fmean(len(text.targets[0].split()) for text in train)))
        nearest = nearest_text([text.source for text in train])

        def rouge(write: Callable[[Sequence[str]], Sequence[str]]) -> Callable[[str], float]:
            def measured_on(split: str) -> float:
                texts = read_source_targets(self.recipe.data, split, self.data_dir)
                return self.quality(write([text.source for text in texts]), [text.targets for text in texts]).value

            return measured_on

        return {
            "first words of the source": rouge(lambda some: [" ".join(text.split()[:usual]) for text in some]),
            "target of the most similar source": rouge(lambda some: [train[at].targets[0] for at in nearest(some)]),
        }

    def _sources(self, texts: Sequence[SourceTargets]) -> list[list[int]]:
        """Return the tokens of each source without ends; a text that is too long keeps its head."""
        encoded = self.tokenizer.encode_batch([text.source for text in texts])
        return [ids[:-1][: self.recipe.data.max_tokens - 1] for ids in encoded]

    def measure(self, split: str) -> Measurement:
        """Return all metrics of greedy search on a split, and ROUGE-L of each output."""
        return self.evaluate(self.texts_of(split)).measurement

    def most_tokens(self, batch: PairBatch) -> int:
        del batch
        return self.recipe.data.max_output_tokens

    def quality(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> GenerationQuality:
        return GenerationQuality(measurement=measured(outputs, references), outputs=list(outputs))

    @classmethod
    def measure_bundle(cls, model: Generator, recipe: GenerationRecipe, split: str, data_dir: Path) -> dict[str, float]:
        return bundle_generation(model, read_source_targets(recipe.data, split, data_dir))
