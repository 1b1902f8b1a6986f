"""Training of translation models: vocabulary, network, batches, metric."""

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import sacrebleu
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.tasks.translation import Translator
from models.text.tokenization import SubwordTokenizer
from training.data.batching import Batches, RedrawnBatches
from training.data.entities import TextPair
from training.data.identity import Record
from training.data.inspection import Inspected
from training.data.own_files import read_pairs
from training.data.pair_batching import Pair, PairBatch, PairBatches
from training.data.report import Expected, Texts
from training.data.token_links import TokenLinks
from training.data.tokenization import build_subword_tokenizer, read_subword_tokenizer
from training.networks.transformer import Transformer
from training.networks.translation_model import TranslationModel
from training.recipe.own.document import Planned, Wishes
from training.run.paths import RunPaths
from training.softmax import Source
from training.tasks.baselines import word_by_word
from training.tasks.examples import Examples, Measurement
from training.tasks.registry import register
from training.tasks.sequence_to_sequence import SequenceToSequenceTask
from training.tasks.task import Refitted, RunFiles
from training.tasks.translation.confidence import fitted_confidence, recipe_confidence
from training.tasks.translation.guided_alignment import alignment_loss, fitted_aligner
from training.tasks.translation.guided_copying import copying_loss, train_copying_alone
from training.tasks.translation.initial import (
    bundled_translator,
    initial_tokenizer,
    initial_weights,
    weights_for_components,
    weights_for_layers,
    weights_for_vocabulary,
)
from training.tasks.translation.own_recipe import plan_translator
from training.tasks.translation.reading import TrainingPairs, split_pairs
from training.tasks.translation.sets import confidence_and_sets
from training.tasks.translation.settings import TranslationRecipe

__all__ = ["TranslationQuality", "TranslationTask", "build_model"]

_LEXICON_PAIRS = 100_000
"""Pairs that the lexicon of a baseline is made from."""
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


def _corpus_bleu(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return BLEU of summed statistics, see `TranslationTask.examples`: `[R, 10]` -> `[R]`."""
    compute = sacrebleu.BLEU.compute_bleu
    rows = sums.astype(int).tolist()
    scores = [compute(row[:4], row[4:8], sys_len=row[8], ref_len=row[9], smooth_method="exp").score for row in rows]
    return np.array(scores)


def _examples(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Examples:
    """Return of each translation the n-grams that its reference has, all n-grams, and both lengths."""
    # effective_order concerns the score of a sentence alone, and avoids a warning
    bleu = sacrebleu.BLEU(effective_order=True)
    scores = [bleu.sentence_score(*each) for each in zip(outputs, references, strict=True)]
    statistics = [[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in scores]
    return Examples(np.array(statistics, np.float64), _corpus_bleu)


def build_model(recipe: TranslationRecipe, vocab_size: int) -> TranslationModel:
    """Return the network and output layer of a recipe, with fresh parameters."""
    transformer = Transformer(**recipe.network.model_dump(exclude={"preset"}))
    return TranslationModel(transformer, recipe.output_layer.build(vocab_size, recipe.network.hidden_size))


@register("translation")
class TranslationTask(SequenceToSequenceTask[TranslationQuality]):
    """Translates one column of a parallel corpus into another; selected by BLEU of greedy translations."""

    recipe_type = TranslationRecipe
    kind = "translator"
    metric = "BLEU"
    recipe: TranslationRecipe
    tokenizer: SubwordTokenizer
    model: TranslationModel

    def __init__(
        self, recipe: TranslationRecipe, tokenizer: SubwordTokenizer, data_dir: Path, device: torch.device
    ) -> None:
        super().__init__(recipe, data_dir, device, build_model(recipe, tokenizer.vocab_size))
        self.tokenizer = tokenizer
        if recipe.guided_copying is not None and recipe.guided_copying.alone:
            train_copying_alone(self.model, self.model.output_layer)

    @classmethod
    def plan(cls, files: Sequence[Inspected], wishes: Wishes) -> Planned:
        return plan_translator(
            files,
            wishes.columns,
            languages=wishes.languages,
            initial=None if wishes.from_scratch else bundled_translator,
            epochs=wishes.epochs,
            epoch_steps=wishes.epoch_steps,
        )

    @staticmethod
    def build_tokenizer(recipe: TranslationRecipe, data_dir: Path) -> SubwordTokenizer:
        """Return the tokenizer of the initial model, or a joint byte-pair encoding of the training data."""
        data = recipe.data
        if recipe.initial is not None and not recipe.new_vocabulary:
            path = initial_tokenizer(recipe.initial)
            return read_subword_tokenizer(path, separate_digits=data.separate_digits)
        texts = (text for pair in TrainingPairs(data, data_dir, recipe.seed).epoch(0) for text in pair)
        return build_subword_tokenizer(texts, vocab_size=data.vocab_size, separate_digits=data.separate_digits)

    @classmethod
    def prepare(cls, recipe: TranslationRecipe, run: RunPaths, data_dir: Path) -> RunFiles:
        tokenizer = cls.build_tokenizer(recipe, data_dir)
        if recipe.initial is not None:
            _check_initial(recipe, recipe.initial, tokenizer)
        return {run.tokenizer: tokenizer.save}

    @classmethod
    def records(cls, recipe: TranslationRecipe, split: str, data_dir: Path) -> Iterator[Record]:
        return (((), "\t".join(pair)) for pair in split_pairs(recipe.data, split, data_dir))

    @classmethod
    def expected(cls, recipe: TranslationRecipe) -> Expected:
        languages = {"source": recipe.data.source, "target": recipe.data.target}
        return Expected(max_tokens=recipe.data.max_tokens, languages=languages, aligned=True)

    @classmethod
    def texts(cls, recipe: TranslationRecipe, split: str, data_dir: Path, most: int) -> Texts:
        sources, targets = zip(*split_pairs(recipe.data, split, data_dir)[:most], strict=True)
        return Texts(columns={"source": sources, "target": targets})

    @classmethod
    def open(cls, recipe: TranslationRecipe, run: RunPaths, data_dir: Path, device: torch.device) -> Self:
        return cls(recipe, SubwordTokenizer.from_file(run.tokenizer), data_dir, device)

    def initialize(self) -> str | None:
        """Load the weights of the initial model, if there is one; raises the errors of `initial_weights`."""
        initial = self.recipe.initial
        if initial is None:
            return None
        given = initial_weights(initial)
        self.model.load_state_dict(_fitted_weights(self.recipe, initial, given, self.tokenizer, self.model))
        further = _further_components(given, self.model)
        return f"{initial} has no {', '.join(further)}: it starts with new parameters" if further else None

    def loss(self, batch: PairBatch) -> tuple[Tensor, int]:
        """Return the summed loss over the batch's targets, and their number.

        With `guided_alignment` the alignment loss is part of it, times its weight and the number of targets.
        """
        guided = self.recipe.guided_alignment
        if guided is None or batch.links is None or not self.model.training:
            return super().loss(batch)
        given = (each.to(self.device) for each in (batch.source, batch.source_lengths, batch.inputs))
        layer, head = guided.place(self.recipe.network.decoder_layers)
        hidden, source, log_weights = self.model.with_attention(*given, layer=layer, head=head)
        total, count = self.target_loss(hidden, source, batch.targets.to(self.device))
        return total + guided.weight * count * alignment_loss(log_weights, batch.links.to(self.device)), count

    def target_loss(self, hidden: Tensor, source: Source | None, targets: Tensor) -> tuple[Tensor, int]:
        """Return the summed loss of targets `[B, T]`, and their number.

        With `guided_copying` the copying loss is part of it, times its weight and the number of targets.
        """
        total, count = super().target_loss(hidden, source, targets)
        guided = self.recipe.guided_copying
        if guided is None or source is None or not self.model.training:
            return total, count
        return total + guided.weight * count * copying_loss(self.model.output_layer, hidden, source, targets), count

    def batches(self, split: str) -> Batches[PairBatch]:
        """Return the batches of a split; training batches are shuffled by the recipe's seed, without too long pairs.

        With `guided_alignment` those of training have links of tokens, by an aligner that is fitted here.
        """
        data, end_id, seed = self.recipe.data, self.tokenizer.end_id, self.recipe.seed
        longest = self._longest
        if split != "train":
            pairs = self._encoded(split_pairs(data, split, self.data_dir))
            if long := sum(len(source) > longest for source, _ in pairs):
                warnings.warn(f"{long} sources of {split} are cut off after {longest} tokens", stacklevel=2)
            pairs = [(source[:longest], target) for source, target in pairs]
            return PairBatches(pairs, end_id=end_id, batch_tokens=data.batch_tokens)
        training, guided = TrainingPairs(data, self.data_dir, seed), self.recipe.guided_alignment
        aligner = None
        if guided is not None:
            aligner = fitted_aligner(guided, training.originals(), quiet=not self.group.is_first)

        def draw(epoch: int) -> PairBatches:
            texts = training.epoch(epoch)
            pairs = self._encoded(texts)
            most = min(data.max_tokens, longest)
            fits = [min(map(len, pair)) > 0 and max(map(len, pair)) <= most for pair in pairs]
            kept = list(itertools.compress(pairs, fits))
            if not kept:
                raise ValueError(f"data.max_tokens: no training pair has 1 to {most} tokens")
            if epoch == 0 and len(kept) < len(pairs):
                left = f"{len(pairs) - len(kept)} of {len(pairs)} training pairs are left out"
                warnings.warn(f"{left}: they do not have 1 to {most} tokens", stacklevel=2)
            links = None
            if aligner is not None:
                links = TokenLinks(list(itertools.compress(texts, fits)), aligner, self.tokenizer)
            return PairBatches(kept, end_id=end_id, batch_tokens=data.batch_tokens, seed=seed, links=links)

        return draw(0) if data.augment is None else RedrawnBatches(draw)

    def token_count(self, split: str) -> int:
        """Return the number of tokens of sources and targets, without ends and augmentation."""
        pairs = self._encoded(split_pairs(self.recipe.data, split, self.data_dir))
        return sum(len(source) + len(target) for source, target in pairs)

    def baselines(self) -> Mapping[str, Callable[[str], float]]:
        """Return BLEU of the sources themselves, of translations word by word, and of the initial model."""
        pairs = split_pairs(self.recipe.data, "train", self.data_dir)
        lexicon = word_by_word(pairs[:_LEXICON_PAIRS])

        def bleu(translate: Callable[[Sequence[str]], Sequence[str]]) -> Callable[[str], float]:
            def measured(split: str) -> float:
                sources, targets = zip(*split_pairs(self.recipe.data, split, self.data_dir), strict=True)
                # `force`: translations word by word stand in words and punctuation, of which sacrebleu would warn
                return sacrebleu.corpus_bleu(translate(sources), [targets], force=True).score

            return measured

        methods = {"source copied": bleu(list), "word by word": bleu(lexicon)}
        return methods if self.recipe.initial is None else {**methods, self.recipe.initial: self._initial_bleu}

    def _initial_bleu(self, split: str) -> float:
        """Return BLEU of the initial model, which training starts from."""
        self.initialize()
        return self.evaluate(self.batches(split)).value

    @property
    def _longest(self) -> int:
        """Return the number of tokens, without its end, that the network has positions for."""
        return self.model.network.positions.shape[0] - 1

    def _encoded(self, texts: Sequence[TextPair]) -> list[Pair]:
        sources, targets = zip(*texts, strict=True)
        encode = self.tokenizer.encode_batch
        return list(zip(encode(sources), encode(targets), strict=True))

    def most_tokens(self, batch: PairBatch) -> int:
        factor, more = _LONGER
        return min(int(factor * batch.source.shape[1]) + more, self._longest)

    def quality(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> TranslationQuality:
        """Return BLEU against the batches' own targets."""
        bleu = sacrebleu.BLEU()
        score = bleu.corpus_score(outputs, [[reference for (reference,) in references]]).score
        return TranslationQuality(bleu=score, signature=str(bleu.get_signature()), translations=list(outputs))

    def measure(self, split: str) -> Measurement:
        """Return BLEU, and of each translation the n-grams that its reference has, all n-grams, and both lengths."""
        outputs, references = self.outputs_and_references(self.batches(split))
        metrics = {self.metric: self.quality(outputs, references).bleu}
        return Measurement(metrics, _examples(outputs, references))

    def report(self, split: str) -> list[str]:
        quality = self.evaluate(self.batches(split))
        return [f"greedy, {self.metric} {quality.bleu:.2f} ({quality.signature})"]

    @classmethod
    def measure_bundle(
        cls, model: Translator, recipe: TranslationRecipe, split: str, data_dir: Path
    ) -> dict[str, float]:
        return bundle_bleu(model, split_pairs(recipe.data, split, data_dir))

    @classmethod
    def refitted(
        cls, model: Translator, recipe: TranslationRecipe | None, data_dir: Path, texts: Path | None
    ) -> Refitted:
        if texts is not None:
            pairs = read_pairs(texts)
            found = fitted_confidence(model, pairs, fitted_on=texts.name)
        elif recipe is not None:
            pairs = split_pairs(recipe.data, "dev", data_dir)
            found = recipe_confidence(model, recipe.data, data_dir)
        else:
            raise ValueError("the bundle was imported: give sentences with their translations by --texts")
        if found is None:
            raise ValueError("a confidence needs at least 20 poor translations (chrF below 30) and 20 others")
        return confidence_and_sets(model, found, pairs)

    @classmethod
    def bundle_examples(cls, model: Translator, recipe: TranslationRecipe, split: str, data_dir: Path) -> Examples:
        sources, targets = zip(*split_pairs(recipe.data, split, data_dir), strict=True)
        results = model.translate(sources, truncate=True)
        return _examples([result.translations[0].text for result in results], [[target] for target in targets])


def bundle_bleu(model: Translator, pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Return BLEU and chrF of a loaded bundle, beam size 5, by the same code that serves it."""
    results = model.translate([source for source, _ in pairs], truncate=True)
    translations = [result.translations[0].text for result in results]
    references = [target for _, target in pairs]
    return {
        "BLEU": sacrebleu.corpus_bleu(translations, [references]).score,
        "chrF": sacrebleu.corpus_chrf(translations, [references]).score,
    }


def _fitted_weights(
    recipe: TranslationRecipe,
    initial: str,
    weights: Mapping[str, torch.Tensor],
    tokenizer: SubwordTokenizer,
    model: TranslationModel,
) -> Mapping[str, torch.Tensor]:
    """Return the weights of the initial model, for the tokenizer's vocabulary and the layers of the model."""
    if recipe.new_vocabulary:
        weights = weights_for_vocabulary(weights, initial_tokenizer(initial), tokenizer)
    if model.output_layer.other_components():
        weights = weights_for_components(weights, model.state_dict())
    return weights_for_layers(weights, model.state_dict()) if recipe.network.norm == "pre" else weights


def _further_components(weights: Mapping[str, torch.Tensor], model: TranslationModel) -> list[str]:
    """Return the names of components of a model's output layer whose parameters are not in the weights."""
    return [
        each.name
        for place, each in enumerate(model.output_layer.other_components())
        if not any(name.startswith(f"output_layer.others.{place}.") for name in weights)
    ]


def _check_initial(recipe: TranslationRecipe, initial: str, tokenizer: SubwordTokenizer) -> None:
    """Raise the errors of `initial_weights`, and `ValueError` where network, output layer or vocabulary differ."""
    with torch.device("meta"):
        model = build_model(recipe, tokenizer.vocab_size)
    fitted = _fitted_weights(recipe, initial, initial_weights(initial), tokenizer, model)
    given = {name: weight.shape for name, weight in fitted.items()}
    own = {name: weight.shape for name, weight in model.state_dict().items()}
    # Loading compares the kernels, which runs of earlier versions do not say.
    names = {name for name in own.keys() | given.keys() if not name.endswith("_extra_state")}
    if differing := sorted(name for name in names if own.get(name) != given.get(name)):
        listed = ", ".join(differing[:3]) + ", ..." * (len(differing) > 3)
        raise ValueError(f"initial: {initial} has another network or output layer: {listed} differ")
