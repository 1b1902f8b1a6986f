"""Training of language models: vocabulary, batches, loss, metric."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from models.tasks.language_model import LanguageModel
from models.text.tokenization import WordTokenizer
from training.data.batching import IGNORED, Batch, Batches, SentenceBatches, StreamBatches
from training.data.identity import Record
from training.data.inspection import Inspected
from training.data.mapped_tokens import MappedTokens
from training.data.report import Expected, Texts
from training.data.tokenization import build_word_tokenizer
from training.networks.language_model import RecurrentLanguageModel
from training.networks.lstm import LSTM, State, detach
from training.recipe.own.document import Planned, Wishes
from training.recipe.own.sections import only_file
from training.run.distributed import ALONE, Group
from training.run.paths import RunPaths
from training.softmax.components import History, Memory, Unigram
from training.tasks.evaluation import evaluate_batches
from training.tasks.examples import Examples, Measurement, perplexity
from training.tasks.language_model.following import FOLLOWING
from training.tasks.language_model.kneser_ney import KneserNey
from training.tasks.language_model.own_recipe import plan_language_model
from training.tasks.language_model.perplexity import Perplexity, bundle_perplexity, covered_line, perplexity_line
from training.tasks.language_model.reading import encoded_split, iterate_texts, split_texts
from training.tasks.language_model.settings import LanguageModelRecipe
from training.tasks.registry import register
from training.tasks.task import Refitted, RunFiles, Task
from training.tasks.word_sets import refitted_sets

__all__ = ["LanguageModelTask", "build_model"]

WEIGHT_VARIANCE, EFFECTIVE_COMPONENTS = "variance of the mixture weights", "effective components"
"""Names of the metrics of mixtures; see `LanguageModelTask.mixture_usage`."""
_MOST_GRAMS = 20_000_000
"""N-grams of the largest baseline, which take some GB and a minute."""


def build_model(recipe: LanguageModelRecipe, vocab_size: int) -> RecurrentLanguageModel:
    """Return the network and output layer of a recipe, with fresh parameters."""
    network = LSTM(**recipe.network.model_dump(exclude={"tied", "word_dropout"}))
    layer = recipe.output_layer.build(vocab_size, recipe.network.hidden_size)
    return RecurrentLanguageModel(network, layer, tied=recipe.network.tied, word_dropout=recipe.network.word_dropout)


@register("language-model")
class LanguageModelTask(Task[Batch]):
    """Learns the next word at each position; is selected by perplexity.

    The recurrent state of `context: stream` is part of the task and of its checkpoints.
    """

    recipe_type = LanguageModelRecipe
    kind = "language-model"
    network = "lstm"
    default_network = True
    metric = "perplexity"
    """Metric that models are selected by; that of a sparse layer has another name, see `evaluate`."""
    maximize = False
    outputs = "tokens"
    recipe: LanguageModelRecipe
    model: RecurrentLanguageModel

    def __init__(
        self, recipe: LanguageModelRecipe, tokenizer: WordTokenizer, data_dir: Path, device: torch.device
    ) -> None:
        super().__init__(recipe, data_dir, device, build_model(recipe, tokenizer.vocab_size))
        self.tokenizer = tokenizer
        self.metric = self.metric_of(recipe)
        self._state: State | None = None
        self._memory: Memory | None = None
        self._train_tokens: MappedTokens | None = None

    @classmethod
    def plan(cls, files: Sequence[Inspected], wishes: Wishes) -> Planned:
        return plan_language_model(
            only_file(files), wishes.columns, epochs=wishes.epochs, epoch_steps=wishes.epoch_steps
        )

    @classmethod
    def metric_of(cls, recipe: LanguageModelRecipe) -> str:
        if recipe.output_layer.alpha != 1.0:
            return "exponential_of_loss"
        return "perplexity" if recipe.output_layer.sparse_k is None else "plain_softmax_perplexity"

    @staticmethod
    def build_tokenizer(recipe: LanguageModelRecipe, data_dir: Path) -> WordTokenizer:
        """Return the vocabulary of the recipe's training split.

        Raises `ValueError` for own files with a line that the exported model could not be measured on.
        """
        data = recipe.data
        texts = iterate_texts(data, "train", data_dir)
        tokenizer = build_word_tokenizer(texts, style=data.style, lowercase=data.lowercase, min_count=data.min_count)
        LanguageModelTask.check_lengths(recipe, tokenizer, data_dir)
        return tokenizer

    @staticmethod
    def check_lengths(recipe: LanguageModelRecipe, tokenizer: WordTokenizer, data_dir: Path) -> None:
        """Raise `ValueError` for own files with a line that the exported model could not be measured on."""
        data = recipe.data
        for split in ("dev", "test") if data.files is not None else ():
            longest = max(map(len, encoded_split(data, split, data_dir, tokenizer)))
            if longest > recipe.export.max_tokens:
                raise ValueError(
                    f"export.max_tokens: a line of {data.dataset(split)} ({split}) has {longest} tokens, the exported "
                    f"model accepts {recipe.export.max_tokens}; raise it or break long lines"
                )

    @classmethod
    def prepare(cls, recipe: LanguageModelRecipe, run: RunPaths, data_dir: Path) -> RunFiles:
        return {run.tokenizer: cls.build_tokenizer(recipe, data_dir).save}

    @classmethod
    def records(cls, recipe: LanguageModelRecipe, split: str, data_dir: Path) -> Iterator[Record]:
        return (((), text) for text in iterate_texts(recipe.data, split, data_dir))

    @classmethod
    def renewed_files(cls, recipe: LanguageModelRecipe, run: RunPaths, data_dir: Path) -> RunFiles:
        cls.check_lengths(recipe, WordTokenizer.from_file(run.tokenizer), data_dir)
        return {}

    @classmethod
    def expected(cls, recipe: LanguageModelRecipe) -> Expected:
        return Expected(apart=recipe.data.context == "sentence")

    @classmethod
    def texts(cls, recipe: LanguageModelRecipe, split: str, data_dir: Path, most: int) -> Texts:
        return Texts(columns={"text": list(itertools.islice(iterate_texts(recipe.data, split, data_dir), most))})

    @classmethod
    def open(cls, recipe: LanguageModelRecipe, run: RunPaths, data_dir: Path, device: torch.device) -> Self:
        return cls(recipe, WordTokenizer.from_file(run.tokenizer), data_dir, device)

    def initialize(self) -> None:
        """Start the bias and unigram components, if there are such, at the logarithms of the words' frequencies."""
        layer = self.model.output_layer
        starting = [each.logits for each in layer.other_components() if isinstance(each, Unigram)]
        starting += [] if layer.bias is None else [layer.bias]
        if not starting:
            return
        sentences = self._encoded("train")
        counts = torch.ones(len(starting[0]), dtype=torch.float64)  # so that a word without any has a finite logarithm
        counts += torch.from_numpy(sentences.counts(len(counts)))
        counts[self.tokenizer.end_id] += len(sentences)
        with torch.no_grad():
            for values in starting:
                values.copy_((counts / counts.sum()).log())

    def _encoded(self, split: str) -> MappedTokens:
        """Return the token ids of a split; those of the training split are computed once, which can take minutes."""
        if split != "train":
            return encoded_split(self.recipe.data, split, self.data_dir, self.tokenizer)
        if self._train_tokens is None:
            self._train_tokens = encoded_split(self.recipe.data, split, self.data_dir, self.tokenizer)
        return self._train_tokens

    def token_count(self, split: str) -> int:
        """Return the number of words and sentence ends."""
        sentences = self._encoded(split)
        return len(sentences.tokens) + len(sentences)

    def batches(self, split: str) -> Batches[Batch]:
        """Return the batches of a split; training batches are shuffled by the recipe's seed."""
        data = self.recipe.data
        sentences = self._encoded(split)
        end_id = self.tokenizer.end_id
        if data.context == "stream":
            streams = data.batch_tokens // data.stream_steps if split == "train" else 1
            return StreamBatches(sentences, end_id=end_id, num_streams=max(streams, 1), steps=data.stream_steps)
        seed = self.recipe.seed if split == "train" else None
        return SentenceBatches(sentences, end_id=end_id, batch_tokens=data.batch_tokens, seed=seed)

    def baselines(self) -> Mapping[str, Callable[[str], float]]:
        """Return n-gram models with modified Kneser-Ney smoothing, of one word and of five."""
        if self.model.output_layer.has_zeros:
            return {}  # models with probabilities of 0 are selected by another metric

        stream, end_id, size = self.recipe.data.context == "stream", self.tokenizer.end_id, self.tokenizer.vocab_size

        def texts(split: str) -> Iterable[list[int]]:
            """Sentences, or one text in which their ends are words."""
            sentences = (list(map(int, sentence)) for sentence in self._encoded(split))
            return [[word for each in sentences for word in (*each, end_id)]] if stream else sentences

        def metric(order: int) -> Callable[[str], float]:
            whole = {"vocab_size": size + 1, "end_id": size} if stream else {"vocab_size": size, "end_id": end_id}
            model = KneserNey(texts("train"), order=order, **whole)
            ends = -1 if stream else None  # that of the one text is no token

            def measured(split: str) -> float:
                found = (model.log_probs(text)[:ends].tolist() for text in texts(split))
                return Perplexity.of(itertools.chain.from_iterable(found)).value

            return measured

        tokens = int(self._encoded("train").counts(self.tokenizer.vocab_size).sum())
        orders = {"unigram": 1, "Kneser-Ney 5-gram": 5}
        return {name: metric(order) for name, order in orders.items() if tokens * order <= _MOST_GRAMS}

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        """Return the summed loss over the batch's targets and their number; advances the recurrent state."""
        layer = self.model.output_layer
        if layer.learns_from_history:
            hidden, targets, history = self.positions(batch)
            return layer.loss(hidden, targets, history=history), int((targets != IGNORED).sum())
        hidden, targets = self.context_vectors(batch)
        return layer.loss(hidden, targets), targets.shape[0]

    def evaluate(self, batches: Batches[Batch], *, sparse: bool = False) -> Perplexity:
        """Return the perplexity on a split, dropout and label smoothing off; leaves the training state as it was.

        For a layer with `sparse_k` it is that of the plain softmax of the same scores, which can be compared between
        all layers and be selected by: the sparse distribution's is infinite with the first target outside the k best,
        and the sparse loss favours equal scores: with k = 1 they make it 0. With another `alpha` than 1, whose scores
        have no such softmax, it is the exponential of the mean loss, which is comparable between layers of this alpha.
        `sparse` asks for the distribution served.
        """
        group = ALONE if isinstance(batches, StreamBatches) else self.group  # a stream's batches need those before
        evaluated = self._target_log_probabilities(batches, group, sparse=sparse)
        own = [value for _, found in evaluated for value in found.tolist()]
        return Perplexity.of(itertools.chain.from_iterable(group.gathered(own)))

    def _target_log_probabilities(
        self, batches: Batches[Batch], group: Group = ALONE, *, sparse: bool = False
    ) -> Iterator[tuple[Batch, Tensor]]:
        """Yield the batches with the log-probability of each target; leaves the recurrent state as it was."""
        kept, layer = (self._state, self._memory), self.model.output_layer

        def log_probabilities(batch: Batch) -> Tensor:
            if layer.reads_history:
                hidden, targets, history = self.positions(batch)
                valid = targets != IGNORED
                found = layer.target_log_prob(hidden, targets.masked_fill(~valid, 0), sparse=sparse, history=history)
                return found[valid]
            hidden, targets = self.context_vectors(batch)
            if layer.alpha != 1.0 and not sparse:
                return -layer.loss(hidden, targets, reduction="none", label_smoothing=0.0)
            return layer.target_log_prob(hidden, targets, sparse=sparse)

        yield from evaluate_batches(self.model, batches, log_probabilities, group)
        self._state, self._memory = kept

    def measure(self, split: str) -> Measurement:
        """Return the perplexity, and log-probability and number of tokens of each sentence, or window of a stream."""
        parts = [
            part.tolist()
            for batch, found in self._target_log_probabilities(self.batches(split))
            for part in found.split((batch.targets != IGNORED).sum(1).tolist())
        ]
        result = Perplexity.of(itertools.chain.from_iterable(parts))
        statistics = np.array([(math.fsum(part), len(part)) for part in parts])
        metrics = {self.metric: result.value, **self.mixture_usage(self.batches(split))}
        return Measurement(metrics, Examples(statistics, perplexity))

    def report(self, split: str) -> list[str]:
        batches = self.batches(split)
        lines = [perplexity_line(self.metric, self.evaluate(batches))]
        if self.model.output_layer.has_zeros:
            lines.append(covered_line(self.evaluate(batches, sparse=True)))
        if self.model.output_layer.num_components > 1:
            usage = self.mixture_usage(batches)
            lines.append(f"mean {WEIGHT_VARIANCE} over the components {usage[WEIGHT_VARIANCE]:.4g}")
            lines.append(f"{EFFECTIVE_COMPONENTS} {usage[EFFECTIVE_COMPONENTS]:.2f}")
        return lines

    @classmethod
    def measure_bundle(
        cls, model: LanguageModel, recipe: LanguageModelRecipe, split: str, data_dir: Path
    ) -> dict[str, float]:
        result = bundle_perplexity(
            model, split_texts(recipe.data, split, data_dir), stream=recipe.data.context == "stream"
        )
        if not model.manifest.output_layer.has_zeros:
            values = {"perplexity": result.value}
        else:  # its perplexity is infinite with the first word of probability 0
            values = {"coverage": result.coverage, "perplexity_of_covered": result.of_possible}
        return {metric: value for metric, value in values.items() if math.isfinite(value)}

    @classmethod
    def refitted(
        cls, model: LanguageModel, recipe: LanguageModelRecipe | None, data_dir: Path, texts: Path | None
    ) -> Refitted:
        own = None if recipe is None else partial(split_texts, recipe.data, "dev", data_dir)
        return refitted_sets(model, own, texts, FOLLOWING)

    @classmethod
    def bundle_examples(
        cls, model: LanguageModel, recipe: LanguageModelRecipe, split: str, data_dir: Path
    ) -> Examples | None:
        if model.manifest.output_layer.has_zeros:
            return None
        texts = split_texts(recipe.data, split, data_dir)
        scores = model.score_in_order(texts) if recipe.data.context == "stream" else model.score(texts)
        rows = [[each.log_probability for each in score.tokens] for score in scores]
        return Examples(np.array([(math.fsum(row), len(row)) for row in rows]), perplexity)

    @classmethod
    def report_bundle(cls, model: LanguageModel, recipe: LanguageModelRecipe, split: str, data_dir: Path) -> list[str]:
        result = bundle_perplexity(
            model, split_texts(recipe.data, split, data_dir), stream=recipe.data.context == "stream"
        )
        sparse = model.manifest.output_layer.has_zeros
        return [covered_line(result) if sparse else perplexity_line("perplexity", result)]

    def mixture_usage(self, batches: Batches[Batch]) -> dict[str, float]:
        """Return how a mixture uses its components, none of a single one.

        `WEIGHT_VARIANCE` is the mean over positions of the variance of the weights (kernel paper, eq. 14, Table 2).
        `EFFECTIVE_COMPONENTS` is the exponential of the entropy of the mean weights: 1 where the mixture has collapsed
        to one component, K where all have the same weight on average.
        """
        if self.model.output_layer.num_components == 1:
            return {}
        kept, layer = (self._state, self._memory), self.model.output_layer

        def weights(batch: Batch) -> Tensor:
            hidden, targets, history = self.positions(batch)
            return layer.mixture_weights(hidden, history)[targets != IGNORED]

        found = torch.cat([found.double().cpu() for _, found in evaluate_batches(self.model, batches, weights)])
        self._state, self._memory = kept
        variance, shares = found.var(dim=-1, correction=0).mean(), found.mean(0)
        effective = torch.exp(-torch.xlogy(shares, shares).sum())
        return {WEIGHT_VARIANCE: float(variance), EFFECTIVE_COMPONENTS: float(effective)}

    def context_vectors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return context vectors `[N, d]` and targets `[N]` of the N positions with a target; advances the state."""
        outputs, targets = self._read(batch)
        valid = targets != IGNORED
        return outputs[valid], targets[valid]

    def positions(self, batch: Batch) -> tuple[Tensor, Tensor, History | None]:
        """Return context vectors `[B, T, d]`, targets `[B, T]` and the history; advances the state and the memory.

        The history is that of the batches before, where the batch continues them, and of the batch itself; None for a
        layer without components that read it.
        """
        outputs, targets = self._read(batch)
        layer = self.model.output_layer
        if not layer.reads_history:
            return outputs, targets, None
        memory = self._memory if batch.continues and self._memory is not None else Memory.empty(outputs)
        history, self._memory = memory.read(outputs, targets, layer.window)
        return outputs, targets, history

    def _read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return context vectors `[B, T, d]` and targets `[B, T]`; advances the state."""
        targets = batch.targets.to(self.device)
        state = self._state if batch.continues and self._state is not None else None
        if state is None:
            state = self.model.initial_state(targets.shape[0])
        outputs, state = self.model(batch.inputs.to(self.device), detach(state))
        self._state = detach(state)
        return outputs, targets

    def state_dict(self) -> dict[str, Tensor]:
        """Return the recurrent state that the next batch continues from, and the words and states that it remembers."""
        state = {} if self._state is None else {"hidden": self._state[0], "cell": self._state[1]}
        if self._memory is None:
            return state
        return {**state, "remembered_words": self._memory.words, "remembered_states": self._memory.states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        found = {name: value.to(self.device) for name, value in state.items()}
        self._state = (found["hidden"], found["cell"]) if found else None
        remembered = "remembered_words" in found
        self._memory = Memory(found["remembered_words"], found["remembered_states"]) if remembered else None
