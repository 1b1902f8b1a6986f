"""The language-model task: its data, network, loss and metric."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from models.text.tokenization import WordTokenizer
from training.data.batching import IGNORED, Batch, Batches, SentenceBatches, StreamBatches
from training.data.corpora import get_corpus
from training.data.own_texts import read_lines
from training.data.tokenization import build_word_tokenizer
from training.networks.language_model import RecurrentLanguageModel
from training.networks.lstm import LSTM, State, detach
from training.recipe import DataSettings, LanguageModelRecipe

__all__ = ["LanguageModelTask", "Perplexity", "build_model"]


@dataclass(frozen=True, slots=True)
class Perplexity:
    """How probable the tokens of a text are, sentence ends included."""

    log_probability: float
    """Summed (base e) over the tokens whose probability is not 0."""
    num_tokens: int
    """All of them."""
    num_impossible: int = 0
    """Tokens of probability 0: those that a sparse-softmax did not keep."""

    @property
    def value(self) -> float:
        """Per token; infinite where one is impossible."""
        return math.inf if self.num_impossible else self.of_possible

    @property
    def of_possible(self) -> float:
        """Per token of those that are possible. Says little without `coverage`: dropping hard tokens improves it."""
        try:
            return math.exp(-self.log_probability / (self.num_tokens - self.num_impossible))
        except (OverflowError, ZeroDivisionError):
            return math.inf

    @property
    def coverage(self) -> float:
        """Share of the tokens that are possible."""
        return 1 - self.num_impossible / self.num_tokens

    @classmethod
    def of(cls, log_probabilities: Iterable[float]) -> Self:
        """From the log-probability of each token."""
        values = list(log_probabilities)
        possible = [value for value in values if value != -math.inf]
        return cls(math.fsum(possible), len(values), len(values) - len(possible))


def build_model(recipe: LanguageModelRecipe, vocab_size: int) -> RecurrentLanguageModel:
    """The network and output layer a recipe describes, with fresh parameters."""
    network = recipe.network
    return RecurrentLanguageModel(
        LSTM(network.hidden_size, network.num_layers, network.dropout),
        recipe.output_layer.build(vocab_size, network.hidden_size),
    )


class LanguageModelTask:
    """What `training.loop` needs to know: batches, a loss per batch, and a metric to select by.

    The recurrent state of `context: stream` is part of the task and of its checkpoints.
    """

    metric = "perplexity"
    """What `evaluate` returns and models are selected by; that of a sparse layer has another name, see there."""
    maximize = False

    def __init__(
        self, recipe: LanguageModelRecipe, tokenizer: WordTokenizer, data_dir: Path, device: torch.device
    ) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.device = device
        self.model = build_model(recipe, tokenizer.vocab_size).to(device)
        if recipe.output_layer.sparse_k is not None:
            self.metric = "plain_softmax_perplexity"
        self.data_dir = data_dir
        self._state: State | None = None

    @staticmethod
    def build_tokenizer(recipe: LanguageModelRecipe, data_dir: Path) -> WordTokenizer:
        """Return the vocabulary of the recipe's training split.

        Raises `ValueError` for own files with a line that the exported model could not be measured on.
        """
        data = recipe.data
        texts = split_texts(data, "train", data_dir)
        tokenizer = build_word_tokenizer(texts, style=data.style, lowercase=data.lowercase, min_count=data.min_count)
        for split in ("dev", "test") if data.files is not None else ():
            longest = max(map(len, tokenizer.encode_batch(split_texts(data, split, data_dir))))
            if longest > recipe.export.max_tokens:
                raise ValueError(
                    f"export.max_tokens: a line of {data.dataset(split)} ({split}) has {longest} tokens, the exported "
                    f"model accepts {recipe.export.max_tokens}; raise it or break long lines"
                )
        return tokenizer

    def initialize(self) -> None:
        """Fresh parameters are all there is."""

    def batches(self, split: str) -> Batches:
        """Batches of a split; training batches are shuffled by the recipe's seed."""
        data = self.recipe.data
        sentences = self.tokenizer.encode_batch(split_texts(data, split, self.data_dir))
        end_id = self.tokenizer.end_id
        if data.context == "stream":
            streams = data.batch_tokens // data.stream_steps if split == "train" else 1
            return StreamBatches(sentences, end_id=end_id, num_streams=max(streams, 1), steps=data.stream_steps)
        seed = self.recipe.seed if split == "train" else None
        return SentenceBatches(sentences, end_id=end_id, batch_tokens=data.batch_tokens, seed=seed)

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        """Summed loss over the batch's targets and their number; moves the recurrent state on."""
        hidden, targets = self._context_vectors(batch)
        return self.model.output_layer.loss(hidden, targets), targets.shape[0]

    def evaluate(self, batches: Batches, *, sparse: bool = False) -> Perplexity:
        """Perplexity on a split, dropout and label smoothing off; leaves the training state as it was.

        For a layer with `sparse_k` it is that of the plain softmax of the same scores, which can be compared between
        all layers and be selected by: the sparse distribution's is infinite with the first target outside the k best,
        and the sparse loss favours equal scores: with k = 1 they make it 0. `sparse` asks for the distribution served.
        """
        return Perplexity.of(self._log_probabilities(batches, sparse))

    @torch.no_grad()
    def _log_probabilities(self, batches: Batches, sparse: bool) -> list[float]:
        kept, was_training = self._state, self.model.training
        self.model.eval()
        values: list[float] = []
        for batch in batches.epoch(0):
            hidden, targets = self._context_vectors(batch)
            values += self.model.output_layer.target_log_prob(hidden, targets, sparse=sparse).tolist()
        self.model.train(was_training)
        self._state = kept
        return values

    def _context_vectors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Context vectors `[N, d]` and targets `[N]` of the N positions that have a target."""
        targets = batch.targets.to(self.device)
        state = self._state if batch.continues and self._state is not None else None
        if state is None:
            state = self.model.initial_state(targets.shape[0])
        outputs, state = self.model(batch.inputs.to(self.device), detach(state))
        self._state = detach(state)
        valid = targets != IGNORED
        return outputs[valid], targets[valid]

    def state_dict(self) -> dict[str, Tensor]:
        """The recurrent state that the next batch continues from."""
        return {} if self._state is None else {"hidden": self._state[0], "cell": self._state[1]}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._state = (state["hidden"].to(self.device), state["cell"].to(self.device)) if state else None


def split_texts(data: DataSettings, split: str, data_dir: Path) -> list[str]:
    """The texts of a split as the recipe wants them; only training data is ever deduplicated."""
    texts: Iterable[str]
    if data.files is not None:
        texts = read_lines(data.files, split, data_dir, data.context)
    else:
        assert data.corpus is not None
        texts = get_corpus(data.corpus).texts(split, data_dir, data.column)
    kept = list(dict.fromkeys(texts)) if data.deduplicate and split == "train" else list(texts)
    return kept[: data.limit]
