"""Causal language models: Transformers that predict subword tokens.

Shapes: `B` texts, `T` tokens of the longest, `N` positions, `V` tokens of the vocabulary, `d` hidden size, `k` tokens
asked for.

A text is read after the start token, where the model has one, and its end is not scored. All log-probabilities are
base e.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from models.backend import Array, Backend
from models.bundle.contract import Contract, PositiveInt
from models.bundle.manifest import AnyManifest, BundleManifest
from models.errors import QueryError
from models.operations.language import NEXT_WORD, SCORE
from models.tasks.causal_results import (
    NextToken,
    NextTokens,
    NextTokensQuery,
    ScoredToken,
    ScoreTextQuery,
    TextScore,
)
from models.tasks.causal_tokenizer import CausalTokenizer, load_causal_tokenizer
from models.tasks.model import BatchFunction, Model, Part, checked_top_k
from models.tasks.registry import register
from models.text.config import TextConfig
from models.text.limits import TextLimit, head, several, tail
from models.text.padding import padded
from models.text.words import Span

__all__ = ["CausalLanguageModel", "CausalLanguageModelConfig", "CausalTransformerNetwork"]

_RUN_TOKENS = 4096
"""A run of the network reads so many tokens at most, or one text."""
_RUN_BYTES = 1 << 26
"""The scores of the vocabulary that are computed at a time take so many bytes at most, or are those of one position."""


class CausalTransformerNetwork(Contract):
    """The sizes of a causal Transformer."""

    kind: Literal["causal-transformer"]
    """Kind of network."""
    architecture: str
    """Name of the architecture that the weights were made for."""
    layers: PositiveInt
    """Transformer layers."""
    hidden_size: PositiveInt
    """Size of the hidden states."""
    inner_size: PositiveInt
    """Width of the feed-forward networks."""
    heads: PositiveInt
    """Heads of attention in each layer."""
    key_value_heads: PositiveInt
    """Heads of keys and values, of which each serves several heads where there are fewer."""
    head_size: PositiveInt
    """Size of a head."""
    positions: PositiveInt
    """Longest text that the network was made for, in tokens, the start token included."""
    sliding_window: PositiveInt | None = None
    """Tokens that layers with a window attend to, where there are such."""
    outputs: PositiveInt
    """Tokens that have a probability: those of the vocabulary, and rows of the output layer that are no token."""


class CausalLanguageModelConfig(TextConfig):
    """The section of a causal language model."""

    required_graphs = frozenset({"read", "predict"})
    network: CausalTransformerNetwork

    @model_validator(mode="after")
    def _texts_fit_the_network(self) -> Self:
        read = self.limits.max_tokens + (self.special_tokens.start is not None)
        if read > self.network.positions:
            raise ValueError(
                f"limits.max_tokens and the start token must be at most network.positions, {self.network.positions}"
            )
        if self.vocab_size > self.network.outputs:
            raise ValueError(f"vocab_size must be at most network.outputs, {self.network.outputs}")
        return self

    def description(self) -> Mapping[str, str]:
        return {"vocabulary": f"{self.vocab_size} subword tokens, texts of up to {self.limits.max_tokens} tokens"}


@dataclass(frozen=True, slots=True)
class _Predictions:
    """Outputs of the output layer for some positions, in their order."""

    log_probabilities: Array
    """Log-probability of the token that follows, `[N]`."""
    ranks: Array
    """Rank of that token, 1 for the most probable one, `[N]`."""
    entropy: Array
    """Entropy of the distribution, in nats, `[N]`."""
    best_log_probabilities: Array
    """Log-probabilities of the most probable tokens, `[N, k]`."""
    best_tokens: Array
    """Their ids, `[N, k]`."""


@register("causal-language-model")
class CausalLanguageModel(Model[CausalLanguageModelConfig]):
    """A loaded bundle of a causal Transformer. Safe to call from several threads.

    `next_words` and `score` do a whole job; a server makes queries of texts (`next_words_query`, `score_query`) and
    computes them in batches (`batch_functions`).
    """

    config_type = CausalLanguageModelConfig
    operations = (NEXT_WORD, SCORE)

    def __init__(
        self, manifest: BundleManifest[CausalLanguageModelConfig], tokenizer: CausalTokenizer, backend: Backend
    ) -> None:
        super().__init__(manifest, backend)
        self._tokenizer = tokenizer
        self._limit = TextLimit(self.config.limits.max_tokens)
        self.longest_input = self._limit.max_tokens
        special = self.config.special_tokens
        self._end = special.end
        self._before = () if special.start is None else (special.start,)
        self.vocab_size: int = self.config.network.outputs
        """Tokens that have a probability."""
        self.most_words: int = self.vocab_size
        """Tokens that a result may have."""
        self._run_positions = max(1, _RUN_BYTES // (4 * self.vocab_size))

    @classmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        return cls(manifest, load_causal_tokenizer(path, manifest.config), backend)

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {"next-word": self.run_next_words, "score": self.run_score, "explain": self.run_score}

    def warm_up_parts(self, operation: str, count: int, length: int) -> Sequence[Part]:
        tokens = (self._end,) * min(length, self._limit.max_tokens)
        if operation == "next-word":
            return [NextTokensQuery("", tokens, min(10, self.most_words))] * count
        explain = 1 if operation == "explain" else 0
        return [ScoreTextQuery("", tokens, explain=explain)] * count

    def self_test(self) -> None:
        self.next_words(["a"], 1)
        self.score(["a"])

    def next_words(self, contexts: Sequence[str], top_k: int = 10, *, truncate: bool = False) -> list[NextTokens]:
        """Return the `top_k` most probable tokens after each context, all where there are fewer.

        `truncate` keeps the last tokens of too long a context. Raises `QueryError` for `top_k` below 1, and for an
        empty context of a model without a start token, and its `TextTooLongError`.
        """
        return self.run_next_words(
            [self.next_words_query(context, top_k, truncate=truncate) for context in several(contexts)]
        )

    def score(self, texts: Sequence[str], *, explain: int = 0, truncate: bool = False) -> list[TextScore]:
        """Return the log-probability of each text, without an end.

        The first token is scored where the model has a start token. `explain` adds to each token its rank, the entropy
        before it and so many most probable tokens instead of it, all where there are fewer. `truncate` keeps the first
        tokens of a text that is too long. Raises `TextTooLongError`, and `QueryError` for an empty text.
        """
        return self.run_score([self.score_query(text, explain=explain, truncate=truncate) for text in several(texts)])

    def next_words_query(self, context: str, top_k: int = 10, *, truncate: bool = False) -> NextTokensQuery:
        """Check and tokenize one context; see `next_words`."""
        top_k, keep = checked_top_k(top_k, self.most_words), tail if truncate else None
        text = self._limit.characters(context, keep)
        ids, spans = self._tokenizer.split(text)
        kept, places = self._limit.tokens(ids, keep), spans if keep is None else keep(spans, self._limit.max_tokens)
        read = (*self._before, *kept)
        if not read:
            raise QueryError("the model has no start token, so that nothing can follow an empty context")
        unknown = tuple(
            text[start:end]
            for token, (start, end) in zip(kept, places, strict=True)
            if self._tokenizer.is_unknown(token)
        )
        return NextTokensQuery(context, read, top_k, unknown, self._limit.left_out(context, ids))

    def score_query(self, text: str, *, explain: int = 0, truncate: bool = False) -> ScoreTextQuery:
        """Check and tokenize one text; see `score`."""
        keep = head if truncate else None
        ids, spans = self._tokenizer.split(self._limit.characters(text, keep))
        kept = self._limit.tokens(ids, keep)
        return self._score_query(text, kept, spans[: len(kept)], explain, self._limit.left_out(text, ids))

    def score_token_query(self, ids: Sequence[int], *, explain: int = 0) -> ScoreTextQuery:
        """Check a text that is given as token ids, without the start; see `score`."""
        return self._score_query("", self._limit.ids(ids, self.vocab_size), (), explain, None)

    def _score_query(
        self, text: str, tokens: Sequence[int], spans: Sequence[Span], explain: int, truncated: int | None
    ) -> ScoreTextQuery:
        if explain < 0:
            raise QueryError(f"explain must be at least 0, not {explain}")
        if not tokens:
            raise QueryError("the text is empty: it has no token to score")
        return ScoreTextQuery(text, tuple(tokens), tuple(spans), min(explain, self.most_words), truncated)

    def run_next_words(self, queries: Sequence[NextTokensQuery]) -> list[NextTokens]:
        """Return results in the order of the queries."""
        if not queries:
            return []
        states = self._last_states([query.tokens for query in queries])
        found = self._predictions(states, np.zeros(len(states), np.int64), max(query.top_k for query in queries))
        return [
            NextTokens(
                query.context,
                self._tokens(found, row, query.top_k),
                query.unknown,
                float(found.entropy[row]),
                query.truncated,
            )
            for row, query in enumerate(queries)
        ]

    def run_score(self, queries: Sequence[ScoreTextQuery]) -> list[TextScore]:
        """Return results in the order of the queries, with ranks, entropies and alternatives where these ask for it."""
        results: dict[int, TextScore] = {}
        read = [(*self._before, *query.tokens)[:-1] for query in queries]
        for rows, states in self._states(read):
            targets = np.array([token for row in rows for token in self._targets(queries[row])], np.int64)
            positions = np.concatenate([state[: len(read[row])] for row, state in zip(rows, states, strict=True)])
            top_k = max(1, *(queries[row].explain for row in rows))
            found = self._predictions(positions, targets, top_k)
            first = 0
            for row in rows:
                results[row] = self._text_score(queries[row], found, first)
                first += len(read[row])
        return [results[row] for row in range(len(queries))]

    def _targets(self, query: ScoreTextQuery) -> tuple[int, ...]:
        """Return the tokens of a text that are scored: all, without a start token all but the first."""
        return query.tokens if self._before else query.tokens[1:]

    def _text_score(self, query: ScoreTextQuery, found: _Predictions, first: int) -> TextScore:
        """Return the result of a query, whose first scored token is that of a position of the predictions."""
        unscored = len(query.tokens) - len(self._targets(query))
        tokens = []
        for index, token in enumerate(query.tokens):
            position = first + index - unscored
            scored = index >= unscored
            start, end = query.spans[index] if query.spans else (None, None)
            explained = scored and query.explain > 0
            tokens.append(
                ScoredToken(
                    self._tokenizer.text(token),
                    float(found.log_probabilities[position]) if scored else None,
                    self._tokenizer.is_unknown(token),
                    start,
                    end,
                    int(found.ranks[position]) if explained else None,
                    float(found.entropy[position]) if explained else None,
                    self._tokens(found, position, query.explain) if explained else (),
                )
            )
        return TextScore(query.text, tuple(tokens), query.truncated)

    def _tokens(self, found: _Predictions, row: int, top_k: int) -> tuple[NextToken, ...]:
        best = zip(
            found.best_tokens[row, :top_k].tolist(), found.best_log_probabilities[row, :top_k].tolist(), strict=True
        )
        return tuple(NextToken(self._tokenizer.text(token), token, value, token == self._end) for token, value in best)

    def _states(self, sequences: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Array]]:
        """Yield numbers of sequences of similar lengths, and their hidden states `[B, T, d]`; each number comes once.

        Empty sequences have none: they come with an array of T = 0.
        """
        order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
        while order:
            longest = max(1, len(sequences[order[-1]]))
            count = max(1, _RUN_TOKENS // longest)
            rows, order = order[-count:], order[:-count]
            if not sequences[rows[-1]]:
                yield rows, np.zeros((len(rows), 0, self.config.network.hidden_size), np.float32)
                continue
            tokens = padded([sequences[row] for row in rows])["tokens"]
            yield rows, self.backend.run("read", {"tokens": tokens}, ["hidden_states"])[0]

    def _last_states(self, sequences: Sequence[Sequence[int]]) -> Array:
        """Return the hidden state after the last token of each sequence, `[B, d]`."""
        last = np.empty((len(sequences), self.config.network.hidden_size), np.float32)
        for rows, states in self._states(sequences):
            for row, state in zip(rows, states, strict=True):
                last[row] = state[len(sequences[row]) - 1]
        return last

    def _predictions(self, states: Array, targets: Array, top_k: int) -> _Predictions:
        """Return what follows hidden states `[N, d]`; `targets` `[N]` are tokens to tell the log-probability of."""
        names = ["log_probabilities", "ranks", "entropy", "best_log_probabilities", "best_tokens"]
        parts = []
        for first in range(0, max(1, len(states)), self._run_positions):
            part = slice(first, first + self._run_positions)
            if not len(states[part]):
                empty = np.zeros(0, np.float32)
                parts.append([empty, empty, empty, empty[:, None], empty[:, None]])
                continue
            inputs = {"hidden_states": states[part], "targets": targets[part], "k": np.array(top_k)}
            parts.append(self.backend.run("predict", inputs, names))
        return _Predictions(*(np.concatenate(each) for each in zip(*parts, strict=True)))
