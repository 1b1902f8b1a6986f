"""Language models: next-word distributions and sentence scores.

Shapes: `B` sequences, `T` time steps, `V` words, `d` hidden size, `L` layers, `K` mixture components.

A text is read after a sentence end, from a zero state. All log-probabilities are base e.
"""

import copy
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, Unpack

import numpy as np

from models.backend import Array, Backend
from models.bundle.contract import Contract, PositiveInt
from models.bundle.manifest import AnyManifest, BundleManifest
from models.errors import QueryError
from models.operations.language import NEXT_WORD, SCORE, Unit
from models.tasks.language_results import (
    Component,
    NextWord,
    NextWords,
    NextWordsQuery,
    Prefix,
    ScoreQuery,
    SentenceScore,
    TokenScore,
)
from models.tasks.language_sampling import Drawn, DrawQuery, drawn_place
from models.tasks.language_scoring import Explanation, Scorer
from models.tasks.language_state import StateLayout
from models.tasks.model import BatchFunction, Model, Part, Values, checked_top_k
from models.tasks.registry import register
from models.tasks.word_sets import CoverageOptions, WordConfig, WordPredictor, read_word_sets
from models.text.config import load_tokenizer
from models.text.limits import Keep, TextLimit, checked_ids, checked_text, head, several, tail
from models.text.padding import padded
from models.text.prefix_cache import PrefixCache, count, packed, unpacked
from models.text.tokenization import END, UNKNOWN, WordTokenizer

__all__ = ["LanguageModel", "LanguageModelConfig", "LstmNetwork"]

_SCORES_SHARE = 4
"""1 / 4 of the prefix cache is for prefixes of scored texts."""
_RUN_POSITIONS, _RUN_STEPS = 1024, 16
"""A run reads so many positions of contexts, and no fewer than so many tokens of each."""
_SPECIAL = re.compile(f"({re.escape(END)}|{re.escape(UNKNOWN)})")


class LstmNetwork(Contract):
    """The sizes of a recurrent network, which a caller needs to hold its state."""

    kind: Literal["lstm"]
    """Kind of network."""
    hidden_size: PositiveInt
    """Size of the hidden states."""
    num_layers: PositiveInt
    """Stacked LSTM layers."""


class LanguageModelConfig(WordConfig):
    """The section of a language model."""

    required_graphs = frozenset({"next_words", "score"})
    network: LstmNetwork


@register("language-model")
class LanguageModel(Model[LanguageModelConfig]):
    """A loaded language-model bundle. Safe to call from several threads.

    `next_words` and `score` do a whole job; a server makes queries of texts (`next_words_query`, `score_query`) and
    computes them in batches (`batch_functions`).
    """

    config_type = LanguageModelConfig
    operations = (NEXT_WORD, SCORE)
    alone = frozenset({"step"})

    def __init__(
        self,
        manifest: BundleManifest[LanguageModelConfig],
        tokenizer: WordTokenizer,
        backend: Backend,
        sets: WordPredictor | None = None,
    ) -> None:
        super().__init__(manifest, backend)
        self._tokenizer = tokenizer
        self._sets = sets or WordPredictor()
        self._limit = TextLimit(self.config.limits.max_tokens)
        self.longest_input = self._limit.max_tokens
        self._end, self._unknown = self.config.special_tokens.end, self.config.special_tokens.unknown
        outputs = manifest.graphs["next_words"].outputs
        self._has_unknown = any(each.name == "unknown_log_probability" for each in outputs)
        self.vocab_size: int = self.config.vocab_size
        self.most_words: int = self.vocab_size - 1
        """Words that a result may have: all but the unknown word, which is none."""
        self._components = manifest.output_layer.parts
        network = self.config.network
        self._layout = StateLayout(network.num_layers, network.hidden_size, manifest.output_layer.window)
        self._scorer = Scorer(backend, self._layout, self.vocab_size)
        self._cache: PrefixCache[NextWords] | None = None
        self._on_lookup: Callable[[bool], object] = bool
        self._salt = ""

    @classmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        tokenizer = load_tokenizer(WordTokenizer, path, manifest.config)
        return cls(manifest, tokenizer, backend, read_word_sets(path, manifest.config.sets))

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {
            "next-word": self.run_next_words,
            "score": self.run_score,
            "explain": self.run_explain,
            "draw": self.run_draws,
            "step": self.run_draws,
        }

    def warm_up_parts(self, operation: str, count: int, length: int) -> Sequence[Part]:
        tokens = (self._unknown,) * min(length, self._limit.max_tokens)
        if operation in ("draw", "step"):
            return [DrawQuery(tokens if operation == "draw" else tokens[:1], temperature=1.0)] * count
        if operation != "next-word":  # texts without a common prefix, which would be read once
            firsts = [(number % self.vocab_size,) for number in range(count)]
            return [ScoreQuery("", (*first, *tokens[1:]), ("",) * len(tokens), explain=1) for first in firsts]
        return [NextWordsQuery("", tokens, min(10, self.vocab_size))] * count

    def self_test(self) -> None:
        self.next_words(["a"], 1)
        self.score(["a"])

    def use_cache(self, max_bytes: int, on_lookup: Callable[[bool], object] = bool) -> None:
        """Keep results of next-word queries, so that a context that goes on costs one step for each new word.

        A part of the cache holds prefixes of scored texts. `on_lookup` is called for every query, with whether
        something was found.
        """
        scores = max_bytes // _SCORES_SHARE
        self._cache, self._on_lookup = PrefixCache(max_bytes - scores), on_lookup
        self._scorer.use_cache(scores, on_lookup)

    def with_cache_salt(self, salt: str) -> Self:
        salted = copy.copy(self)
        salted._salt = salt
        return salted

    def estimated_tokens(self, operation: str, inputs: Sequence[str]) -> int:
        if operation == "next-word" and self._cache is not None:
            return len(inputs)  # of a context that goes on, one word is read
        return super().estimated_tokens(operation, inputs)

    def result(self, query: Any, outputs: Values) -> Any:
        """Return the one output, kept in the cache, or the result that is known already; with a coverage its set."""
        if not isinstance(query, NextWordsQuery):
            return outputs[0]
        if outputs and self._cache is not None:
            query.keep(outputs[0], self._cache)
        found = outputs[0] if outputs else query.known
        return found if query.coverage is None else query.coverage.applied(found)

    def next_words(
        self,
        contexts: Sequence[str],
        top_k: int = 10,
        *,
        after: Sequence[Prefix] | None = None,
        truncate: bool = False,
        **options: Unpack[CoverageOptions],
    ) -> list[NextWords]:
        """Return the `top_k` most probable words after each context, all where there are fewer.

        Words of probability 0 are left out: a model with a sparse-softmax may have fewer than `top_k`. Words
        outside the vocabulary are never among them; they have a probability of its own (`unknown_probability`).
        With `after`, each context goes on from a prefix of an earlier result and holds only the words since then
        (at least one), so that a longer prefix costs nothing. `truncate` keeps the last words of too long a context.
        `options` are those of `CoverageOptions`: a set with a coverage in place of the most probable words.

        Raises `QueryError` for `top_k` below 1, an empty continuation or a coverage that is out of reach, and its
        `TextTooLongError`.
        """
        prefixes = [None] * len(several(contexts)) if after is None else list(after)
        queries = [
            self.next_words_query(context, top_k, after=prefix, truncate=truncate, **options)
            for context, prefix in zip(contexts, prefixes, strict=True)
        ]
        found = self.run_next_words(queries)
        return [
            each if query.coverage is None else query.coverage.applied(each)
            for query, each in zip(queries, found, strict=True)
        ]

    def score(
        self, texts: Sequence[str], *, explain: int = 0, truncate: bool = False, lines: bool = False
    ) -> list[SentenceScore]:
        """Return the log-probability of each text followed by a sentence end.

        `explain` adds to each token its rank, the entropy before it and so many most probable words instead of it, all
        where there are fewer.
        `truncate` keeps the first words of a text that is too long. With `lines` the lines of a text are the sentences
        of a document, each with an end and after those before it. Raises `TextTooLongError` and `QueryError`.
        """
        queries = [self.score_query(text, explain=explain, truncate=truncate, lines=lines) for text in several(texts)]
        return self.run_explain(queries) if explain else self.run_score(queries)

    def score_in_order(self, texts: Sequence[str]) -> list[SentenceScore]:
        """Return the scores of texts that are read as one, each after all before it, of any length together.

        Raises `TextTooLongError` and `QueryError`.
        """
        queries = [self.score_query(text) for text in several(texts)]
        tokens = [token for query in queries for token in (*query.tokens, self._end)]
        if not tokens:
            return []
        (found,) = self._scorer.scores([(self._end, *tokens)], [""])
        values = iter(found)
        return [
            self._sentence_score(query, [(value,) for value in itertools.islice(values, query.length)])
            for query in queries
        ]

    def distribution(self, contexts: Sequence[str]) -> Array:
        """Return the log-probability of every word after each context, minus infinity for probability 0: `[B, V]`."""
        queries = [self.next_words_query(context, self.vocab_size) for context in several(contexts)]
        table = np.empty((len(queries), self.vocab_size), np.float32)
        if queries:
            (values, ids), _ = self._run_next_words(queries, ["log_probabilities", "words"])
            np.put_along_axis(table, ids, values, axis=1)
        return table

    def next_words_query(
        self,
        context: str,
        top_k: int = 10,
        *,
        after: Prefix | None = None,
        truncate: bool = False,
        unit: Unit | None = None,
        **options: Unpack[CoverageOptions],
    ) -> NextWordsQuery:
        """Check and tokenize one context; see `next_words`. The unit can only be `word`.

        With a cache (`use_cache`) it goes on from the longest prefix that was read before, or has its result at once.
        """
        _check_unit(unit)
        coverage, keep = self._sets.coverage("word", **options), tail if truncate else None
        top_k = checked_top_k(top_k if coverage is None else coverage.listed, self.most_words)
        if after is not None:
            tokens, words, truncated = self._split(context, keep)
            if not tokens:
                raise QueryError("a continuation needs at least one word; the prefix's own result says what follows it")
            unknown = self._unknown_words(tokens, words)
            return NextWordsQuery(
                context, tuple(tokens), top_k, after, unknown=unknown, truncated=truncated, coverage=coverage
            )
        cache = self._cache
        read, text, unknown, truncated = self._read(context, keep)
        known = cache.get(read, salt=self._salt) if cache is not None else None
        if known is not None and len(known.words) >= top_k:
            self._on_lookup(True)
            same = replace(known, context=context, words=known.words[:top_k], unknown=unknown, truncated=truncated)
            return NextWordsQuery(
                context, unpacked(read), top_k, read=read, text=text, unknown=unknown, known=same, coverage=coverage
            )
        start, result = (cache.longest(read, salt=self._salt) if cache is not None else None) or (0, None)
        self._on_lookup(result is not None)
        prefix = None if result is None else result.prefix
        return NextWordsQuery(
            context,
            unpacked(read, start),
            top_k,
            prefix,
            read,
            text,
            unknown,
            salt=self._salt,
            truncated=truncated,
            coverage=coverage,
        )

    def score_query(
        self,
        text: str,
        *,
        explain: int = 0,
        truncate: bool = False,
        unit: Unit | None = None,
        stride: int | None = None,
        max_windows: int | None = None,
        lines: bool = False,
    ) -> ScoreQuery:
        """Check and tokenize one sentence; see `score`. The unit can only be `word`, and there is no stride."""
        del max_windows
        _check_unit(unit)
        if stride is not None:
            raise QueryError("stride is for models of subwords")
        explain = self._checked_explain(explain)
        tokens, words, truncated = self._split(text, head if truncate else None, lines=lines)
        return ScoreQuery(text, tuple(tokens), tuple(words), explain, self._salt, truncated)

    def score_token_query(self, ids: Sequence[int], *, explain: int = 0) -> ScoreQuery:
        """Check a sentence that is given as token ids, without its end; see `score`."""
        explain, ids = self._checked_explain(explain), self._limit.ids(ids, self.vocab_size)
        return ScoreQuery("", ids, tuple(self.spelled(ids)), explain, self._salt)

    def _checked_explain(self, explain: int) -> int:
        """Return how many words stand instead of a token; raises `QueryError` for fewer than 0."""
        if explain < 0:
            raise QueryError(f"explain must be at least 0, not {explain}")
        return min(explain, self.most_words)

    def spelled(self, ids: Sequence[int]) -> list[str]:
        """Return the spelling of tokens in the vocabulary; raises `QueryError` for an id outside of it."""
        return list(map(self._tokenizer.word, checked_ids(ids, self.vocab_size)))

    def token_ids(self, text: str) -> list[int]:
        """Return the ids of a text in which `</s>` and `<unk>` spell the sentence end and the unknown word.

        Elsewhere they are text. Raises `TextTooLongError` and `QueryError`.
        """
        pieces = _SPECIAL.split(self._limit.characters(text, None))
        special = {END: [self._end], UNKNOWN: [self._unknown]}
        return [token for piece in pieces for token in special.get(piece) or self._tokenizer.encode(piece)]

    def run_next_words(self, queries: Sequence[NextWordsQuery]) -> list[NextWords]:
        """Return results in the order of the queries, computed as one padded batch, or several of large states."""
        groups = self._layout.groups(queries, self.longest_input)
        return [result for group in groups for result in self._next_words(group)]

    def _next_words(self, queries: Sequence[NextWordsQuery]) -> list[NextWords]:
        outputs = ["log_probabilities", "words", "entropy", "mixture_weights"]
        if self._has_unknown:
            outputs.append("unknown_log_probability")
        (values, ids, entropy, weights, *rest), state = self._run_next_words(queries, outputs)
        unknown = rest[0] if rest else values[ids == self._unknown]  # all words are there
        return [
            NextWords(
                query.context,
                tuple(self._words(ids[row, : query.top_k + 1], values[row, : query.top_k + 1])[: query.top_k]),
                query.unknown,
                float(unknown[row]),
                float(entropy[row]),
                tuple(
                    Component(each.name, weight, each.hyperparameters)
                    for each, weight in zip(self._components, weights[row].tolist(), strict=True)
                ),
                self._layout.prefix(state, row),
                query.truncated,
            )
            for row, query in enumerate(queries)
        ]

    def run_score(self, queries: Sequence[ScoreQuery]) -> list[SentenceScore]:
        """Return results in the order of the queries; a prefix shared by texts of one salt is computed once."""
        scores = self._scorer.scores(self._sequences(queries), [query.salt for query in queries])
        return [
            self._sentence_score(query, [(value,) for value in values])
            for query, values in zip(queries, scores, strict=True)
        ]

    def run_explain(self, queries: Sequence[ScoreQuery]) -> list[SentenceScore]:
        """Return results with ranks, entropies and alternatives, in the order of the queries."""
        top_k = 1 + max(query.explain for query in queries)  # `<unk>` may be among them
        explanations = self._scorer.explanations(self._sequences(queries), top_k)
        return [
            self._sentence_score(query, [self._explained(each, query.explain) for each in found])
            for query, found in zip(queries, explanations, strict=True)
        ]

    def run_draws(self, queries: Sequence[DrawQuery]) -> list[Drawn]:
        """Draw the next token of each text, in the order of the queries."""
        groups = self._layout.groups(queries, self.longest_input)
        return [drawn for group in groups for drawn in self._draws(group)]

    def _draws(self, queries: Sequence[DrawQuery]) -> list[Drawn]:
        most = 2 + max(query.alternatives for query in queries)  # `<unk>` may be among them
        whole = any(query.whole for query in queries)
        top_k = np.array(self.vocab_size if whole else min(most, self.vocab_size))
        inputs = {**self._advanced(queries), "k": top_k}
        (values, ids), state = self._run(inputs, ["log_probabilities", "words"])
        values = np.where(ids == self._unknown, -math.inf, values)
        drawn = []
        for row, query in enumerate(queries):
            place = drawn_place(values[row], query, ids[row])
            best = zip(ids[row, :most].tolist(), values[row, :most].tolist(), strict=True)
            alternatives = tuple(each for each in best if each[1] != -math.inf)[: query.alternatives]
            prefix = self._layout.prefix(state, row)
            drawn.append(Drawn(int(ids[row, place]), float(values[row, place]), alternatives, prefix))
        return drawn

    def _sequences(self, queries: Sequence[ScoreQuery]) -> list[tuple[int, ...]]:
        return [(self._end, *query.tokens, self._end) for query in queries]

    def _explained(self, found: Explanation, top_k: int) -> tuple[object, ...]:
        """Return the fields of a `TokenScore` that follow from its explanation."""
        alternatives = [
            NextWord(self._tokenizer.word(token), value)
            for token, value in found.alternatives
            if token != self._unknown
        ]
        return (
            found.log_probability,
            found.rank,
            found.entropy,
            tuple(alternatives[:top_k]),
            found.alternatives[:top_k],
        )

    def _words(self, ids: Array, values: Array) -> list[NextWord]:
        """Return the words of ids `[k]`, without `<unk>` and words of probability 0."""
        return [
            NextWord(self._tokenizer.word(token), value)
            for token, value in zip(ids.tolist(), values.tolist(), strict=True)
            if value != -math.inf and token != self._unknown
        ]

    def _unknown_words(self, tokens: Sequence[int], words: Sequence[str]) -> tuple[str, ...]:
        return tuple(word for token, word in zip(tokens, words, strict=True) if token == self._unknown)

    def _read(self, context: str, keep: Keep | None) -> tuple[bytes, str | None, tuple[str, ...], int | None]:
        """Return the packed ids that a context is read as, the text by which the cache is to find them, the words that
        are unknown, and how many were left out.

        Where the cache knows a beginning of the context, only the rest is tokenized, if the whole is within the limits.
        """
        whole = self._tokenizer.parts_at_spaces and len(context) <= self._limit.max_characters
        if (
            whole
            and self._cache is not None
            and (beginning := self._cache.beginning(checked_text(context), salt=self._salt)) is not None
        ):
            length, read, unknown = beginning
            tokens, words = self._tokenizer.split(context[length:])
            read += packed(tokens)
            if count(read) <= 1 + self._limit.max_tokens:
                return read, context, unknown + self._unknown_words(tokens, words), None
        tokens, words, truncated = self._split(context, keep)
        shown = context if whole and truncated is None else None
        return packed([self._end, *tokens]), shown, self._unknown_words(tokens, words), truncated

    def _split(self, text: str, keep: Keep | None, *, lines: bool = False) -> tuple[list[int], list[str], int | None]:
        """Return ids and words of a text within the limits, and how many were left out."""
        short = self._limit.characters(text, keep)
        tokens, words = self._split_lines(short) if lines else self._tokenizer.split(short)
        kept = self._limit.tokens(tokens, keep)
        return kept, words if keep is None else keep(words, len(kept)), self._limit.left_out(text, tokens)

    def _split_lines(self, text: str) -> tuple[list[int], list[str]]:
        """Return ids and words of a text in which a sentence end stands between lines; empty lines are left out."""
        tokens: list[int] = []
        words: list[str] = []
        end = self._tokenizer.word(self._end)
        for line in filter(str.strip, text.splitlines()):
            own, spelled = self._tokenizer.split(line)
            tokens += [self._end, *own] if words else own
            words += [end, *spelled] if words else spelled
        return tokens, words

    def _run_next_words(
        self, queries: Sequence[NextWordsQuery], outputs: list[str]
    ) -> tuple[list[Array], dict[str, Array]]:
        # One more, as `<unk>` may be among them; all where the graph does not tell its probability.
        top_k = 1 + max(query.top_k for query in queries) if self._has_unknown else self.vocab_size
        return self._run({**self._advanced(queries), "k": np.array(min(top_k, self.vocab_size))}, outputs)

    def _run(self, inputs: Mapping[str, Array], outputs: list[str]) -> tuple[list[Array], dict[str, Array]]:
        """Return outputs of `next_words`, and the state after it."""
        values = self.backend.run("next_words", inputs, [*outputs, *self._layout.outputs])
        return values[: len(outputs)], self._layout.after(inputs, values[len(outputs) :])

    def _advanced(self, queries: Sequence[NextWordsQuery | DrawQuery]) -> dict[str, Array]:
        """Run long contexts in chunks, since a run holds several vectors a token; return the inputs of the last run."""
        remaining = [query.tokens for query in queries]
        prefixes = [query.after if isinstance(query.after, Prefix) else self._layout.start for query in queries]
        steps = max(_RUN_STEPS, _RUN_POSITIONS // len(queries))
        while rows := [row for row, tokens in enumerate(remaining) if len(tokens) > steps]:
            size = max(steps, _RUN_POSITIONS // len(rows))
            ends = [min(size, len(remaining[row]) - 1) for row in rows]
            inputs = padded([remaining[row][:end] for row, end in zip(rows, ends, strict=True)])
            inputs |= self._layout.inputs(self._layout.stacked([prefixes[row] for row in rows]), inputs["tokens"])
            _, state = self._run({**inputs, "k": np.array(1)}, [])
            for row, end, prefix in zip(rows, ends, self._layout.prefixes(state), strict=True):
                prefixes[row], remaining[row] = prefix, remaining[row][end:]
        inputs = padded(remaining)
        return {**inputs, **self._layout.inputs(self._layout.stacked(prefixes), inputs["tokens"])}

    def _sentence_score(self, query: ScoreQuery, facts: Sequence[Values]) -> SentenceScore:
        """Return the result of a query; `facts` holds the log-probability of each token, and what explains it."""
        end = self._tokenizer.word(self._end)
        spelled = zip((*query.words, end), (*query.tokens, self._end), facts, strict=True)
        scores = (TokenScore(word, fact[0], token == self._unknown, *fact[1:]) for word, token, fact in spelled)
        return SentenceScore(query.text, tuple(scores), query.truncated)


def _check_unit(unit: Unit | None) -> None:
    """Raise `QueryError` where a result is to be of other units than words."""
    if unit == "token":
        raise QueryError("unit must be word: the tokens of this model are words")
