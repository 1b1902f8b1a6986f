"""Training of causal language models: vocabulary, batches, loss, metric.

Shapes: `B` windows, `T` tokens.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from models.tasks.causal_language_model import CausalLanguageModel
from models.tasks.causal_tokenizer import CausalTokenizer
from training.data.batching import IGNORED
from training.data.identity import Record
from training.data.inspection import Inspected
from training.data.report import Expected, Texts
from training.data.tokenization import build_causal_tokenizer, read_causal_tokenizer
from training.data.window_batching import EncodedTexts, WindowBatch, WindowBatches
from training.networks.causal_language_model import TransformerLanguageModel
from training.networks.causal_transformer import CausalSettings, CausalTransformer
from training.networks.lora import adapt, is_adapted
from training.networks.pretrained_causal import CausalDescription, PretrainedCausal, read_pretrained
from training.recipe.own.document import Planned, Wishes
from training.recipe.own.sections import only_file
from training.run import checkpoint
from training.run.directory import RunDirectory
from training.run.paths import RunPaths
from training.softmax.mixture import parse_kernels
from training.tasks.causal_language_model.bits import TextBits, bits_line
from training.tasks.causal_language_model.distillation import Teacher, check_teacher
from training.tasks.causal_language_model.following import FOLLOWING
from training.tasks.causal_language_model.own_recipe import plan_causal_language_model
from training.tasks.causal_language_model.reading import encoded_texts, text_parts
from training.tasks.causal_language_model.settings import PRETRAINED, CausalLanguageModelRecipe
from training.tasks.evaluation import evaluate_examples
from training.tasks.examples import Examples, Measurement, bits_per_byte
from training.tasks.initial_run import initial_run
from training.tasks.language_model.kneser_ney import KneserNey
from training.tasks.language_model.reading import iterate_texts, split_texts
from training.tasks.registry import register
from training.tasks.task import Refitted, RunFiles, Task
from training.tasks.word_sets import refitted_sets

__all__ = ["CausalLanguageModelTask", "build_model", "load_pretrained"]

_MOST_GRAMS = 20_000_000
"""N-grams of the largest baseline, which take some GB and a minute."""

_MEASURED_AT_ONCE = 2000
"""Pieces of texts whose scores are held at a time while a bundle is measured."""


def build_model(recipe: CausalLanguageModelRecipe, settings: CausalSettings) -> TransformerLanguageModel:
    """Return a network and the output layer of a recipe, with fresh parameters; those that do not learn are frozen.

    The scores of a plain softmax have the bound of the pretrained network, if it has one.

    Raises `ValueError` where no parameter learns.
    """
    given = recipe.network
    plain = [each["name"] for each in parse_kernels(recipe.output_layer.kernels)] == ["lin"]
    cap = settings.final_softcap if plain else None
    layer = recipe.output_layer.build(settings.vocab_size, settings.hidden_size, softcap=cap)
    model = TransformerLanguageModel(CausalTransformer(settings), layer, tied=given.tied)
    if given.body == "lora":
        adapt(model.network, given.lora_rank, given.lora_alpha)
    elif given.body == "frozen":
        model.network.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            "network.body: frozen leaves nothing to train, since the projection matrix of the output layer is tied to "
            "the tokens' vectors; take network.tied: false, or a mixture of kernels"
        )
    return model


@torch.no_grad()
def load_pretrained(model: TransformerLanguageModel, source: PretrainedCausal, *, tied: bool) -> None:
    """Load the weights of a pretrained model; the projection matrices of all components start at its output matrix.

    A kernel that changes new matrices, such as one with variances in them, does so unless they are the tokens' vectors,
    too. A bias starts at 0.
    """
    missing, unexpected = model.network.load_state_dict(source.network.state_dict(), strict=False)
    assert not unexpected
    assert all(map(is_adapted, missing))
    layer, matrix = model.output_layer, source.head.linear.weight
    layer.weight.copy_(matrix)
    own = [layer.weight]
    if layer.untied == "full":
        layer.other_weights.copy_(matrix)
        own += layer.other_weights
    for kernel, weight in zip(layer.components(), own if len(own) > 1 else own * layer.num_components, strict=True):
        if not (tied and weight is layer.weight):
            kernel.initialize(weight)


@register("causal-language-model")
class CausalLanguageModelTask(Task[WindowBatch]):
    """Learns the next subword token at each position; is selected by bits per byte."""

    recipe_type = CausalLanguageModelRecipe
    kind = "language-model"
    network = "transformer"
    metric = "bits_per_byte"
    """Metric that models are selected by; that of a layer with probabilities of 0 has another name, see `metric_of`."""
    maximize = False
    outputs = "tokens"
    recipe: CausalLanguageModelRecipe
    model: TransformerLanguageModel

    def __init__(
        self,
        recipe: CausalLanguageModelRecipe,
        tokenizer: CausalTokenizer,
        data_dir: Path,
        device: torch.device,
        settings: CausalSettings | None = None,
    ) -> None:
        """`settings` are those of a pretrained network; without them they are the recipe's, for the vocabulary."""
        settings = settings or recipe.network.of_vocabulary(tokenizer.vocab_size)
        super().__init__(recipe, data_dir, device, build_model(recipe, settings))
        self.tokenizer = tokenizer
        self.metric = self.metric_of(recipe)
        self._train_texts: EncodedTexts | None = None
        self._teacher: Teacher | None = None

    @classmethod
    def metric_of(cls, recipe: CausalLanguageModelRecipe) -> str:
        """Return the name of the metric, in which the log-probability of a token is never infinite.

        With `sparse_k` it is that of the plain softmax of the same scores; with another `alpha` than 1 minus the loss,
        which is comparable between layers of this alpha.
        """
        if recipe.output_layer.alpha != 1.0:
            return "loss_bits_per_byte"
        return "bits_per_byte" if recipe.output_layer.sparse_k is None else "plain_softmax_bits_per_byte"

    @classmethod
    def plan(cls, files: Sequence[Inspected], wishes: Wishes) -> Planned:
        return plan_causal_language_model(
            only_file(files), wishes.columns, epochs=wishes.epochs, epoch_steps=wishes.epoch_steps
        )

    @classmethod
    def prepare(cls, recipe: CausalLanguageModelRecipe, run: RunPaths, data_dir: Path) -> RunFiles:
        if recipe.network.pretrained is not None:
            found = read_pretrained(recipe.network.pretrained)
            _checked_teacher(recipe, found.tokenizer, recipe.network.of_pretrained(found.description))
            return {run.tokenizer: found.tokenizer.save, run.causal: found.description.save}
        tokenizer = cls.build_tokenizer(recipe, data_dir)
        if recipe.initial is not None:
            _load_initial(build_model(recipe, recipe.network.of_vocabulary(tokenizer.vocab_size)), recipe.initial)
        _checked_teacher(recipe, tokenizer, recipe.network.of_vocabulary(tokenizer.vocab_size))
        return {run.tokenizer: tokenizer.save}

    @staticmethod
    def build_tokenizer(recipe: CausalLanguageModelRecipe, data_dir: Path) -> CausalTokenizer:
        """Return the vocabulary of the initial run or of the teacher, or that of the recipe's training split."""
        if recipe.initial is not None:
            return read_causal_tokenizer(initial_run(recipe.initial).tokenizer)
        if recipe.distillation is not None and (run := RunDirectory(Path(recipe.distillation.teacher))).best.is_file():
            return read_causal_tokenizer(run.tokenizer)
        return build_causal_tokenizer(text_parts(recipe.data, "train", data_dir), vocab_size=recipe.data.vocab_size)

    @classmethod
    def records(cls, recipe: CausalLanguageModelRecipe, split: str, data_dir: Path) -> Iterator[Record]:
        return (((), text) for text in iterate_texts(recipe.data, split, data_dir))

    @classmethod
    def expected(cls, recipe: CausalLanguageModelRecipe) -> Expected:
        return Expected(apart=recipe.data.context == "sentence")

    @classmethod
    def texts(cls, recipe: CausalLanguageModelRecipe, split: str, data_dir: Path, most: int) -> Texts:
        return Texts(columns={"text": list(itertools.islice(iterate_texts(recipe.data, split, data_dir), most))})

    @classmethod
    def open(cls, recipe: CausalLanguageModelRecipe, run: RunPaths, data_dir: Path, device: torch.device) -> Self:
        if recipe.network.pretrained is None:
            return cls(recipe, read_causal_tokenizer(run.tokenizer), data_dir, device)
        found = CausalDescription.read(run.causal)
        tokenizer = read_causal_tokenizer(run.tokenizer, found.special_tokens)
        return cls(recipe, tokenizer, data_dir, device, recipe.network.of_pretrained(found))

    def initialize(self) -> None:
        """Load the pretrained model or the initial run; without them, start the bias at the tokens' log-frequencies.

        Raises the errors of `read_pretrained`, and `ValueError` where the initial run has another network or output
        layer.
        """
        if (where := self.recipe.network.pretrained) is not None:
            load_pretrained(self.model, read_pretrained(where), tied=self.recipe.network.tied)
            return
        if self.recipe.initial is not None:
            _load_initial(self.model, self.recipe.initial)
            return
        bias = self.model.output_layer.bias
        if bias is None:
            return
        counts = 1.0 + torch.from_numpy(self._encoded("train").pieces.counts(len(bias))).double()
        with torch.no_grad():
            bias.copy_((counts / counts.sum()).log())

    def _encoded(self, split: str) -> EncodedTexts:
        """Return the token ids of a split; those of the training split are computed once, which can take minutes."""
        if split == "train" and self._train_texts is not None:
            return self._train_texts
        found = encoded_texts(
            self.recipe.data,
            split,
            self.data_dir,
            self.tokenizer.encode,
            end_id=self.tokenizer.end_id,
            start_id=self.tokenizer.start_id,
            longest=self.recipe.longest_piece,
        )
        if split == "train":
            self._train_texts = found
        return found

    def token_count(self, split: str) -> int:
        """Return the number of tokens, ends of texts included."""
        return len(self._encoded(split).pieces.tokens)

    def batches(self, split: str) -> WindowBatches:
        """Return the batches of a split; training batches are shuffled by the recipe's seed.

        Pieces of documents share windows in training; evaluation has a window for each piece.
        """
        recipe, train = self.recipe, split == "train"
        return WindowBatches(
            self._encoded(split),
            batch_tokens=recipe.data.batch_tokens,
            window=recipe.longest_piece if train and recipe.data.context == "stream" else None,
            seed=recipe.seed if train else None,
        )

    def baselines(self) -> Mapping[str, Callable[[str], float]]:
        """Return n-gram models of tokens with modified Kneser-Ney smoothing, of one token and of five."""
        if self.model.output_layer.has_zeros:
            return {}  # models with probabilities of 0 are selected by another metric
        end_id, size = self.tokenizer.end_id, self.model.network.settings.vocab_size

        def metric(order: int) -> Callable[[str], float]:
            model = KneserNey(_whole_texts(self._encoded("train")), order=order, vocab_size=size, end_id=end_id)

            def measured(split: str) -> float:
                encoded = self._encoded(split)
                total = math.fsum(float(model.log_probs(text).sum()) for text in _whole_texts(encoded))
                return TextBits(total, len(encoded.pieces.tokens), int(encoded.sizes.sum())).value

            return measured

        tokens = self.token_count("train")
        orders = {"unigram": 1, "Kneser-Ney 5-gram": 5}
        return {name: metric(order) for name, order in orders.items() if tokens * order <= _MOST_GRAMS}

    def loss(self, batch: WindowBatch) -> tuple[Tensor, int]:
        """Return the summed loss over the batch's targets, with the divergence from a teacher, and their number."""
        batch = batch.to(self.device)
        hidden, targets = self.context_vectors(batch)
        layer, given = self.model.output_layer, self.recipe.distillation
        loss: Tensor = layer.loss(hidden, targets)
        if given is not None:
            divergence = self._taught().divergence(batch, layer, hidden, given.temperature)
            loss = (1 - given.weight) * loss + given.weight * divergence
        return loss, targets.shape[0]

    def _taught(self) -> Teacher:
        if self._teacher is None:
            self._teacher = _checked_teacher(self.recipe, self.tokenizer, self.model.network.settings)
            assert self._teacher is not None
            self._teacher.on(self.device)
        return self._teacher

    def context_vectors(self, batch: WindowBatch) -> tuple[Tensor, Tensor]:
        """Return context vectors `[N, d]` and targets `[N]` of the N positions with a target."""
        batch = batch.to(self.device)
        outputs = self.model(batch.inputs, batch.places, batch.texts)
        valid = batch.targets != IGNORED
        return outputs[valid], batch.targets[valid]

    def evaluate(self, batches: WindowBatches) -> TextBits:
        """Return the bits per byte on a split, dropout and label smoothing off."""
        windows = evaluate_examples(self.model, batches, self._window_sums, self.group)
        encoded = batches.encoded
        total = math.fsum(windows)
        return TextBits(total, len(encoded.pieces.tokens), int(encoded.sizes.sum()))

    def _window_sums(self, batch: WindowBatch) -> list[float]:
        """Return the log-probability of each window, `[B]`; see `metric_of`."""
        layer = self.model.output_layer
        hidden, targets = self.context_vectors(batch)
        if layer.alpha != 1.0:
            found = -layer.loss(hidden, targets, reduction="none", label_smoothing=0.0)
        else:
            found = layer.target_log_prob(hidden, targets, sparse=False)
        parts = found.double().cpu().split((batch.targets != IGNORED).sum(1).tolist())
        return [float(part.sum()) for part in parts]

    def measure(self, split: str) -> Measurement:
        """Return bits per byte and perplexity, and log-probability and bytes of each text."""
        encoded = self._encoded(split)
        batches = WindowBatches(encoded, batch_tokens=self.recipe.data.batch_tokens)
        examples = _text_examples(encoded, evaluate_examples(self.model, batches, self._window_sums))
        result = TextBits(float(examples.statistics[:, 0].sum()), len(encoded.pieces.tokens), int(encoded.sizes.sum()))
        return Measurement({self.metric: result.value, "perplexity": result.perplexity}, examples)

    def report(self, split: str) -> list[str]:
        return [bits_line(self.metric, self.evaluate(self.batches(split)))]

    @classmethod
    def measure_bundle(
        cls, model: CausalLanguageModel, recipe: CausalLanguageModelRecipe, split: str, data_dir: Path
    ) -> dict[str, float]:
        result = _bundle_bits(*_bundle_scores(model, recipe, split, data_dir))
        values = {"bits_per_byte": result.value, "perplexity": result.perplexity}
        return {metric: value for metric, value in values.items() if math.isfinite(value)}

    @classmethod
    def refitted(
        cls, model: CausalLanguageModel, recipe: CausalLanguageModelRecipe | None, data_dir: Path, texts: Path | None
    ) -> Refitted:
        own = None if recipe is None else partial(split_texts, recipe.data, "dev", data_dir)
        return refitted_sets(model, own, texts, FOLLOWING)

    @classmethod
    def bundle_examples(
        cls, model: CausalLanguageModel, recipe: CausalLanguageModelRecipe, split: str, data_dir: Path
    ) -> Examples:
        return _text_examples(*_bundle_scores(model, recipe, split, data_dir))

    @classmethod
    def report_bundle(
        cls, model: CausalLanguageModel, recipe: CausalLanguageModelRecipe, split: str, data_dir: Path
    ) -> list[str]:
        return [bits_line("bits_per_byte", _bundle_bits(*_bundle_scores(model, recipe, split, data_dir)))]


def _load_initial(model: TransformerLanguageModel, initial: str) -> None:
    """Load the best weights of a run; raises the errors of `initial_run`, and `ValueError` for another network."""
    run = initial_run(initial)
    if run.causal.is_file():
        raise ValueError(f"initial: {initial} started from a pretrained network; start from a run from scratch")
    weights = checkpoint.load(run.best, torch.device("cpu"))["model"]
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"initial: {initial} has another network or output layer: {error}") from error


def _checked_teacher(
    recipe: CausalLanguageModelRecipe, tokenizer: CausalTokenizer, settings: CausalSettings
) -> Teacher | None:
    """Return the teacher of a recipe, if it has one, for a network with these settings.

    Raises the errors of `read_pretrained`, and `ValueError` where the teacher has another vocabulary or reads fewer
    tokens.
    """
    if recipe.distillation is None:
        return None
    where = recipe.distillation.teacher
    run = RunDirectory(Path(where))
    if where != PRETRAINED and run.best.is_file():
        task = CausalLanguageModelTask.open(_causal(run), run, Path(), torch.device("cpu"))
        task.model.load_state_dict(checkpoint.load(run.best, task.device)["model"])
        teacher = Teacher(task.model.network, task.model.output_layer, task.tokenizer)
    else:
        pretrained = recipe.network.pretrained if where == PRETRAINED else where
        assert pretrained is not None
        teacher = Teacher.of_pretrained(read_pretrained(pretrained))
    check_teacher(teacher, tokenizer, settings.vocab_size, recipe.network.positions)
    return teacher


def _causal(run: RunDirectory) -> CausalLanguageModelRecipe:
    recipe = run.recipe()
    if not isinstance(recipe, CausalLanguageModelRecipe):
        raise ValueError(f"distillation.teacher: {run.path} is a run of task {recipe.task!r}")
    return recipe


def _whole_texts(encoded: EncodedTexts) -> Iterator[list[int]]:
    """Yield the tokens of each text, its pieces joined, without the end."""
    owned = zip(encoded.owners.tolist(), encoded.pieces, strict=True)
    for _, own in itertools.groupby(owned, key=lambda each: each[0]):
        yield [int(token) for _, piece in own for token in piece][:-1]


def _text_examples(encoded: EncodedTexts, sums: Iterable[float]) -> Examples:
    """Return log-probability and bytes of each text; `sums` are the log-probabilities of the pieces."""
    totals = np.bincount(encoded.owners, weights=np.array(list(sums)), minlength=len(encoded.sizes))
    return Examples(np.stack([totals, encoded.sizes.astype(np.float64)], axis=1), bits_per_byte)


def _bundle_scores(
    model: CausalLanguageModel, recipe: CausalLanguageModelRecipe, split: str, data_dir: Path
) -> tuple[EncodedTexts, list[float]]:
    """Return the texts of a split in pieces that the bundle reads, and the log-probabilities of the pieces.

    They are those of the code that serves the bundle, given the tokens and the end, which it scores like any token.
    """
    config = model.config
    encoded = encoded_texts(
        recipe.data,
        split,
        data_dir,
        model.tokenizer.encode,
        end_id=config.special_tokens.end,
        longest=config.limits.max_tokens,
    )
    sums: list[float] = []
    for first in range(0, len(encoded.pieces), _MEASURED_AT_ONCE):
        queries = [
            model.score_token_query(piece.tolist()) for piece in encoded.pieces[first : first + _MEASURED_AT_ONCE]
        ]
        sums += (result.log_probability for result in model.run_score(queries))
    return encoded, sums


def _bundle_bits(encoded: EncodedTexts, sums: Iterable[float]) -> TextBits:
    return TextBits(math.fsum(sums), len(encoded.pieces.tokens), int(encoded.sizes.sum()))
