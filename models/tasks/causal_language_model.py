"""Causal language models: Transformers that predict subword tokens.

Shapes: `B` prefixes, `T` nodes of a tree of tokens, `N` positions, `V` tokens of the vocabulary, `m` groups of tokens,
`d` hidden size, `k` tokens asked for.

A text is read after the start token, where the model has one, and its end is not scored. Texts that are computed
together are a tree, so that beginnings that they share are read once. All log-probabilities are base e.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, Unpack

import numpy as np
from pydantic import model_validator

from models.backend import Array, Backend
from models.bundle.contract import Contract, PositiveInt
from models.bundle.manifest import AnyManifest, BundleManifest
from models.decoding.next_words import next_words
from models.decoding.read_paths import Path as ReadPath
from models.decoding.read_paths import PathCache, with_room
from models.decoding.token_tree import TokenTree, TreeReader, layer_inputs
from models.decoding.tree_predictions import Asked, Predictions, Predictor
from models.decoding.word_probabilities import TokenizedText, word_begins
from models.errors import BundleError, QueryError
from models.operations.language import NEXT_WORD, SCORE, Unit
from models.tasks.causal_results import (
    NextSubwords,
    NextToken,
    NextTokens,
    NextTokensQuery,
    ScoredToken,
    ScoredWindow,
    ScoredWord,
    ScoreTextQuery,
    SpelledWord,
    StridedTextQuery,
    TextScore,
    TextWindow,
)
from models.tasks.causal_tokenizer import CausalTokenizer, load_causal_tokenizer
from models.tasks.language_sampling import Drawn, DrawQuery, drawn_place
from models.tasks.model import BatchFunction, Model, Part, Values, checked_top_k
from models.tasks.registry import register
from models.tasks.word_sets import CoverageOptions, WordConfig, WordPredictor, read_word_sets
from models.text.limits import TextLimit, checked_ids, head, several, tail
from models.text.word_vocabulary import PUNCTUATION, SEPARATORS, State, WordBoundaries, WordVocabulary
from models.text.words import Span

__all__ = ["CausalLanguageModel", "CausalLanguageModelConfig", "CausalTransformerNetwork"]

_RUN_NODES = 512
"""A run of the network reads so many tokens at most."""
_PATHS_BYTES = 1 << 26
"""Keys and values of texts that are read together take so many bytes at most, and no more than the weights that are
read once for all of them."""
_ROWS_BYTES = 1 << 25
"""Rows of texts that are written take so many bytes, or as many as the layers' weights if these take more; and no more
than the prefix cache."""
_SEARCHED_PREFIXES = 256
"""A search for the next words looks at what follows so many beginnings of words at most."""
_NEGLIGIBLE = 1e-5
"""Beginnings of words that are less probable are not kept one by one, which bounds their number."""
_SEARCH_BATCH = 32
"""Beginnings of words that are computed at a time."""
_WINDOWS_TOKENS = 1 << 17
"""All windows of a text that is longer than the limit read so many tokens at most."""
_WHITE_SPACE = "".join(SEPARATORS)
_INSIDE_WORDS = State.AFTER_LETTERS, State.AFTER_MARKS
"""States in which some tokens continue the last word."""


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

    @property
    def layer_bytes(self) -> int:
        """Rough size of the weights of all layers in float32."""
        projections = 2 * (self.heads + self.key_value_heads) * self.head_size
        return 4 * self.layers * self.hidden_size * (projections + 2 * self.inner_size)


class CausalLanguageModelConfig(WordConfig):
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
        vocabulary = f"{self.vocab_size} subword tokens, texts of up to {self.limits.max_tokens} tokens"
        return {**super().description(), "vocabulary": vocabulary}


@register("causal-language-model")
class CausalLanguageModel(Model[CausalLanguageModelConfig]):
    """A loaded bundle of a causal Transformer. Safe to call from several threads.

    `next_words` and `score` do a whole job; a server makes queries of texts (`next_words_query`, `score_query`) and
    computes them in batches (`batch_functions`).
    """

    config_type = CausalLanguageModelConfig
    operations = (NEXT_WORD, SCORE)
    alone = frozenset({"step"})

    def __init__(
        self,
        manifest: BundleManifest[CausalLanguageModelConfig],
        tokenizer: CausalTokenizer,
        backend: Backend,
        sets: WordPredictor | None = None,
    ) -> None:
        super().__init__(manifest, backend)
        self._sets = sets or WordPredictor()
        self.tokenizer = tokenizer
        """Makes tokens of texts."""
        self._limit = TextLimit(self.config.limits.max_tokens)
        self.longest_input = self._limit.max_tokens
        special = self.config.special_tokens
        self._end = special.end
        self._before = () if special.start is None else (special.start,)
        network = self.config.network
        self._reader = TreeReader(
            backend,
            (network.layers, network.key_value_heads, network.head_size),
            _RUN_NODES,
            paths_bytes=min(_PATHS_BYTES, network.layer_bytes),
            sliding_window=network.sliding_window,
        )
        self.vocab_size: int = network.outputs
        """Tokens that have a probability."""
        self.most_words: int = self.vocab_size
        """Tokens that a result may have."""
        components = len(manifest.output_layer.kernels)
        self._predictor = Predictor(backend, self._reader, self.vocab_size, components)
        self._paths = PathCache(0)
        self._on_lookup: Callable[[bool], object] = bool
        self.cache_salt = ""
        """The part of the cache that queries of this model find; see `with_cache_salt`."""
        self.puts_start = tokenizer.puts_start
        """Whether the tokenizer puts the start token before every text."""

    @classmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        keys, _ = layer_inputs(0)
        if all(each.name != keys for each in manifest.graphs["read"].inputs):
            raise BundleError(str(path), [f"graphs.read has no input {keys}: import the model again"])
        tokenizer = load_causal_tokenizer(path, manifest.config)
        return cls(manifest, tokenizer, backend, read_word_sets(path, manifest.config.sets))

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {
            "next-word": self.run_next_words,
            "next-token": self.run_next_words,
            "score": self.run_score,
            "explain": self.run_score,
            "draw": self.run_draws,
            "step": self.run_draws,
        }

    def warm_up_parts(self, operation: str, count: int, length: int) -> Sequence[Part]:
        tokens = (self._end,) * min(length, self._limit.max_tokens)
        # Texts that differ from the first token on, since what they share is read once.
        texts = [(number % self.config.vocab_size, *tokens[1:]) for number in range(count)]
        if operation == "draw":
            return [DrawQuery(text, goes_on=False) for text in texts]
        if operation == "step":
            read = self._read([(ReadPath(), text[:1]) for text in texts])
            return [DrawQuery((self._end,), path) for path, _ in read]
        if operation in ("next-word", "next-token"):
            words = operation == "next-word"
            return [NextTokensQuery("", text, min(10, self.most_words), words=words) for text in texts]
        explain = 1 if operation == "explain" else 0
        return [ScoreTextQuery("", text, explain=explain, before=self._before) for text in texts]

    def self_test(self) -> None:
        self.next_words(["a"], 1, unit="token")
        self.score(["a"])
        _ = self._word_groups  # made now: it takes a moment

    @cached_property
    def _words(self) -> WordVocabulary:
        """What the tokens do to words; runs of punctuation marks are words, too."""
        boundaries = WordBoundaries(punctuation=PUNCTUATION)
        return WordVocabulary(self.tokenizer.pieces(self.vocab_size), boundaries)

    @cached_property
    def _word_groups(self) -> Array:
        """The tokens that begin a new word or end the text, in each of `_INSIDE_WORDS`, and those that end it."""
        masks = [self._words.ends_text, *(word_begins(self._words, state) for state in _INSIDE_WORDS)]
        groups: Array = np.stack([mask for mask in masks if mask is not None], axis=1).astype(np.float32)
        return groups

    @property
    def longest_cached(self) -> int:
        return self._reader.token_bytes * (1 + self._limit.max_tokens)

    def use_cache(self, max_bytes: int, on_lookup: Callable[[bool], object] = bool) -> None:
        """Keep keys and values of contexts of next words and of texts that were written, for those that go on."""
        self._paths, self._on_lookup = PathCache(max_bytes), on_lookup

    def decoding_bytes(self, read: int, written: int) -> int:
        # Keys and values of a token are in its text, and in the row that a run reads.
        return 2 * self._reader.token_bytes * (read + with_room(written))

    def use_decoding_cache(self, max_bytes: int) -> None:
        self._reader.rows_bytes = min(max_bytes // 2, max(_ROWS_BYTES, self.config.network.layer_bytes))

    def with_cache_salt(self, salt: str) -> Self:
        salted = copy.copy(self)
        salted.cache_salt = salt
        return salted

    def next_words(
        self,
        contexts: Sequence[str],
        top_k: int = 10,
        *,
        truncate: bool = False,
        unit: Unit | None = None,
        **options: Unpack[CoverageOptions],
    ) -> list[NextTokens | NextSubwords]:
        """Return the `top_k` most probable words after each context, or with the unit `token` tokens.

        White space at the end of a context is left out where words are asked for: they come after white space or
        punctuation. `truncate` keeps the last tokens of too long a context. `options` are those of `CoverageOptions`: a
        set with a coverage in place of the most probable words. Raises `QueryError` for `top_k` below 1, for a coverage
        that is out of reach, and for an empty context of a model without a start token, and its `TextTooLongError`.
        """
        queries = [
            self.next_words_query(context, top_k, truncate=truncate, unit=unit, **options)
            for context in several(contexts)
        ]
        found = self.run_next_words(queries)
        return [self.result(query, [each]) for query, each in zip(queries, found, strict=True)]

    def score(
        self,
        texts: Sequence[str],
        *,
        explain: int = 0,
        truncate: bool = False,
        unit: Unit | None = None,
        stride: int | None = None,
    ) -> list[TextScore]:
        """Return the log-probability of each text, without an end.

        The first token is scored where the model has a start token. `explain` adds to each token its rank, the entropy
        before it and so many most probable tokens instead of it, all where there are fewer. The unit `word` adds the
        words. `truncate` keeps the first tokens of a text that is too long. With `stride`, such a text is read in
        windows of as many tokens as the limit allows, each after the start token and so many tokens after the one
        before: a token is scored after at least the limit less the stride of the tokens before it. Raises
        `TextTooLongError`, and `QueryError` for an empty text, for the words of a text that is partly outside the
        vocabulary, and for a stride above the limit, or with `truncate`.
        """
        queries = [
            self.score_query(text, explain=explain, truncate=truncate, unit=unit, stride=stride)
            for text in several(texts)
        ]
        parts = [query.parts() for query in queries]
        outputs = iter(self.run_score([part for some in parts for part in some]))
        return [self.result(query, [next(outputs) for _ in some]) for query, some in zip(queries, parts, strict=True)]

    def next_words_query(
        self,
        context: str,
        top_k: int = 10,
        *,
        truncate: bool = False,
        unit: Unit | None = None,
        **options: Unpack[CoverageOptions],
    ) -> NextTokensQuery:
        """Check and tokenize one context; see `next_words`."""
        coverage, keep, words = (
            self._sets.coverage(unit or "word", **options),
            tail if truncate else None,
            unit != "token",
        )
        top_k = checked_top_k(top_k if coverage is None else coverage.listed, self.most_words)
        text = self._limit.characters(context.rstrip(_WHITE_SPACE) if words else context, keep)
        ids, spans = self.tokenizer.split(text)
        kept, places = self._limit.tokens(ids, keep), spans if keep is None else keep(spans, self._limit.max_tokens)
        read = (*self._before, *kept)
        if not read:
            raise QueryError("the model has no start token, so that nothing can follow an empty context")
        unknown = tuple(
            text[start:end]
            for token, (start, end) in zip(kept, places, strict=True)
            if self.tokenizer.is_unknown(token)
        )
        left_out = self._limit.left_out(context, ids)
        return NextTokensQuery(context, read, top_k, unknown, left_out, words, self.cache_salt, coverage)

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
    ) -> ScoreTextQuery | StridedTextQuery:
        """Check and tokenize one text; see `score`. With `stride` a text has at most `max_windows` windows."""
        if lines:
            raise QueryError("lines is for models of words")
        keep = head if truncate else None
        limit = self._limit if stride is None else self._strided_limit(stride, max_windows, truncate=truncate)
        ids, spans = self.tokenizer.split(limit.characters(text, keep))
        kept = limit.tokens(ids, keep)
        words, spans = unit == "word", spans[: len(kept)]
        if words:
            unknown = [
                text[slice(*span)] for token, span in zip(kept, spans, strict=True) if not self._words.pieces[token]
            ]
            if unknown:
                raise QueryError(f"{unknown[0]!r} is outside the vocabulary, so that its word has no probability")
        query = self._score_query(text, kept, spans, explain, limit.left_out(text, ids), words)
        if stride is None or query.length <= self._limit.max_tokens:
            return query
        return StridedTextQuery(query, self._windows(query, stride))

    def _strided_limit(self, stride: int, max_windows: int | None, *, truncate: bool) -> TextLimit:
        """Return the limit of texts that are read in windows; raises `QueryError`."""
        longest = self._limit.max_tokens
        most = longest if self._before else longest - 1  # else the first token of a window would not be scored
        if not 1 <= stride <= most:
            raise QueryError(f"stride must be from 1 to {most}, not {stride}")
        if truncate:
            raise QueryError("give either stride or truncate: with a stride, texts are read to their end")
        windows = _WINDOWS_TOKENS // longest
        windows = max(1, windows if max_windows is None else min(windows, max_windows))
        return TextLimit(longest + (windows - 1) * stride, noun=" with this stride")

    def _windows(self, query: ScoreTextQuery, stride: int) -> tuple[TextWindow, ...]:
        """Return the windows of a text, each of which begins `stride` tokens after the one before."""
        longest, windows, scored = self._limit.max_tokens, [], 0
        for first in range(0, query.length, stride):
            some = slice(first, first + longest)
            part = replace(query, text="", tokens=query.tokens[some], spans=query.spans[some])
            windows.append(TextWindow(part, scored - first, some.stop >= query.length))
            if windows[-1].last:
                break
            scored = some.stop
        return tuple(windows)

    def score_token_query(self, ids: Sequence[int], *, explain: int = 0) -> ScoreTextQuery:
        """Check a text that is given as token ids, without the start; see `score`."""
        return self._score_query("", self._limit.ids(ids, self.vocab_size), (), explain, None)

    def _score_query(
        self,
        text: str,
        tokens: Sequence[int],
        spans: Sequence[Span],
        explain: int,
        truncated: int | None,
        words: bool = False,
    ) -> ScoreTextQuery:
        if explain < 0:
            raise QueryError(f"explain must be at least 0, not {explain}")
        if not tokens:
            raise QueryError("the text is empty: it has no token to score")
        explain = min(explain, self.most_words)
        return ScoreTextQuery(
            text, tuple(tokens), tuple(spans), explain, truncated, words, self._before, self.cache_salt
        )

    def prompt_query(self, prompt: str | Sequence[int], *, explain: int = 0) -> ScoreTextQuery:
        """Check a text to go on with, or its token ids, which may be empty.

        Of a text, the first token is the start token where the tokenizer puts it before texts. Token ids are read as
        they are. Raises `TextTooLongError`, and `QueryError` for an id outside the vocabulary.
        """
        if isinstance(prompt, str):
            ids = self._limit.tokens(self.tokenizer.split(self._limit.characters(prompt, None))[0], None)
            tokens, text = [*(self._before if self.puts_start else ()), *ids], prompt
        else:
            tokens, text = list(self._limit.ids(prompt, self.vocab_size)) if prompt else [], ""
        explain = min(explain, self.most_words)
        return ScoreTextQuery(text, tuple(tokens), explain=explain, salt=self.cache_salt)

    def token_ids(self, text: str, *, special: bool = False) -> list[int]:
        """Return the ids of a text in which special tokens are read where they are spelled.

        With `special`, the start token precedes it where the tokenizer puts it there. Raises `TextTooLongError`.
        """
        read = self._limit.characters(text, None)
        return list(self._limit.tokens(self.tokenizer.with_special(read, added=special), None))

    def spelled(self, ids: Sequence[int]) -> list[str]:
        """Return the texts of tokens, as results have them; raises `QueryError` for an id outside of the vocabulary."""
        return list(map(self.tokenizer.text, checked_ids(ids, self.vocab_size)))

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of the text of a token; none for special tokens."""
        return self._words.pieces[token]

    def run_next_words(self, queries: Sequence[NextTokensQuery]) -> list[NextTokens | NextSubwords]:
        """Return results in the order of the queries."""
        of_tokens = [query for query in queries if not query.words]
        tokens = iter(self._next_tokens(of_tokens) if of_tokens else ())
        return [self._next_subwords(query) if query.words else next(tokens) for query in queries]

    def _next_tokens(self, queries: Sequence[NextTokensQuery]) -> list[NextTokens]:
        states = self._last_states([query.tokens for query in queries], [query.salt for query in queries])
        top_k, names = max(query.top_k for query in queries), ["entropy", "best_log_probabilities", "best_tokens"]
        entropy, *best = self._predictor.outputs(states, names, top_k)
        return [
            NextTokens(
                query.context,
                self._tokens(best[0][row], best[1][row], query.top_k),
                query.unknown,
                float(entropy[row]),
                query.truncated,
            )
            for row, query in enumerate(queries)
        ]

    def _last_states(self, texts: Sequence[tuple[int, ...]], salts: Sequence[str]) -> Array:
        """Return the hidden state after each text, `[B, d]`; none is empty. Texts of one salt share beginnings."""
        states = np.empty((len(texts), self.config.network.hidden_size), np.float32)
        for salt in dict.fromkeys(salts):
            same = np.array([row for row, each in enumerate(salts) if each == salt])
            tree = TokenTree([texts[row] for row in same])
            last = np.array([places[-1] for places in tree.places])
            for nodes, hidden in self._reader.read(tree, np.arange(len(tree))):
                found = np.flatnonzero((last >= nodes[0]) & (last <= nodes[-1]))
                states[same[found]] = hidden[last[found] - nodes[0]]
        return states

    def _next_subwords(self, query: NextTokensQuery) -> NextSubwords:
        [(path, hidden)] = self._read([(ReadPath((), query.salt), query.tokens)])
        after = _Continuations(self, path.joined(), hidden)
        try:
            found = next_words(
                after,
                self._words,
                query.tokens,
                query.top_k,
                max_prefixes=_SEARCHED_PREFIXES,
                batch_size=_SEARCH_BATCH,
                negligible=_NEGLIGIBLE,
                longest=self.config.network.positions,
            )
        except ValueError:  # in the model's arithmetic the last word always goes on
            return NextSubwords(query.context, (), query.unknown, 1.0, False, query.truncated)
        words = [SpelledWord(each.word, each.probability, each.upper_bound, False) for each in found.words]
        if found.end > 0:
            words.append(SpelledWord(self.tokenizer.text(self._end), found.end, min(1.0, found.end + found.left), True))
        words.sort(key=lambda each: -each.probability)
        return NextSubwords(
            query.context, tuple(words[: query.top_k]), query.unknown, found.left, found.certain, query.truncated
        )

    def _read(self, texts: Sequence[tuple[ReadPath, tuple[int, ...]]]) -> list[tuple[ReadPath, Array]]:
        """Read tokens after paths, those of an empty one from the longest beginning that the cache has; return the path
        and the last hidden state of each.
        """
        return self._reader.follow([self._known(*text) for text in texts], self._paths.extended)

    def _known(self, path: ReadPath, tokens: tuple[int, ...]) -> tuple[ReadPath, tuple[int, ...]]:
        """Return the path, or what the cache has in place of an empty one, and the tokens that are still to be read."""
        if len(path):
            return path, tokens
        known = self._paths.longest(tokens, path.salt)
        self._on_lookup(len(known) > 0)
        return known, tokens[len(known) :]

    def run_draws(self, queries: Sequence[DrawQuery]) -> list[Drawn]:
        """Draw the next token of each text, in the order of the queries."""
        states, paths = self._states(queries)
        most = max(1, *(query.alternatives for query in queries))
        whole = ["all_log_probabilities"] if any(query.whole for query in queries) else []
        drawn: list[Drawn] = []
        for first in range(0, len(queries), self._predictor.most_positions):
            part = slice(first, first + self._predictor.most_positions)
            names = ["best_log_probabilities", "best_tokens", *whole]
            values, ids, *rows = self._predictor.outputs(states[part], names, most)
            for row, (query, path) in enumerate(zip(queries[part], paths[part], strict=True)):
                best = list(zip(ids[row].tolist(), values[row].tolist(), strict=True))
                token, value = best[0]
                if query.whole:
                    token = drawn_place(rows[0][row], query)
                    value = float(rows[0][row][token])
                drawn.append(Drawn(token, value, tuple(best[: query.alternatives]), path))
        return drawn

    def _states(self, queries: Sequence[DrawQuery]) -> tuple[Array, list[ReadPath]]:
        """Return the hidden states of texts that are to go on, `[B, d]`, and the path of each.

        Those that end now, without a path, are read as a tree.
        """
        found = np.empty((len(queries), self.config.network.hidden_size), np.float32)
        paths = [query.after if isinstance(query.after, ReadPath) else ReadPath((), query.salt) for query in queries]
        ending = [row for row, query in enumerate(queries) if query.after is None and not query.goes_on]
        if ending:
            texts, salts = [queries[row].tokens for row in ending], [queries[row].salt for row in ending]
            found[ending] = self._last_states(texts, salts)
        others = [row for row, query in enumerate(queries) if query.after is not None or query.goes_on]
        distinct = list(dict.fromkeys((paths[row], queries[row].tokens) for row in others))
        read = dict(zip(distinct, self._read(distinct), strict=True))
        for row in others:
            paths[row], found[row] = read[paths[row], queries[row].tokens]
        return found, paths

    def following(self, path: ReadPath, hidden: Array, tokens: Sequence[tuple[int, ...]]) -> Array:
        """Return the log-probabilities of what follows each of several token sequences after a path, `[B, V]`.

        hidden `[d]` is the hidden state after the path itself.
        """
        tree = TokenTree(tokens, begins_at=len(path))
        states = [np.empty((0, len(hidden)), np.float32)]
        states += [found for _, found in self._reader.read(tree, np.arange(len(tree)), path)]
        # The row after those of the tree is the state of the path.
        rows = [int(places[-1]) if len(places) else len(tree) for places in tree.places]
        return self._predictor.outputs(np.concatenate([*states, hidden[None]])[rows], ["all_log_probabilities"])[0]

    def run_score(self, parts: Sequence[ScoreTextQuery | TextWindow]) -> list[Any]:
        """Return results in the order of texts and windows; a beginning shared by those of one salt is read once.

        The result of a text is a `TextScore`, that of a window a `ScoredWindow`, of which `result` makes a text's.
        """
        results: dict[int, TextScore | ScoredWindow] = {}
        queries = [part.query if isinstance(part, TextWindow) else part for part in parts]
        for salt in dict.fromkeys(query.salt for query in queries):
            rows = [row for row, query in enumerate(queries) if query.salt == salt]
            found = self._scores([parts[row] for row in rows], [queries[row] for row in rows])
            results |= zip(rows, found, strict=True)
        return [results[row] for row in range(len(parts))]

    def result(self, query: Any, outputs: Values) -> Any:
        """Return the one output, with a coverage its set, or the result of a text that was read in windows."""
        if not isinstance(query, StridedTextQuery):
            coverage = query.coverage if isinstance(query, NextTokensQuery) else None
            return outputs[0] if coverage is None else coverage.applied(outputs[0])
        tokens = tuple(token for window in outputs for token in window.tokens)
        return self._text_score(query.text, tokens, np.concatenate([window.groups for window in outputs]))

    def _scores(
        self, parts: Sequence[ScoreTextQuery | TextWindow], queries: Sequence[ScoreTextQuery]
    ) -> list[TextScore | ScoredWindow]:
        """Return results with words, ranks, entropies and alternatives where the queries ask for them."""
        tree = TokenTree([(*query.before, *query.tokens) for query in queries])
        words = any(query.words for query in queries)
        asked = Asked(max(query.explain for query in queries), self._word_groups if words else None)
        found = self._predictor.predictions(tree, np.arange(len(tree)) if words else tree.inner(), asked)
        results: list[TextScore | ScoredWindow] = []
        for part, query, places in zip(parts, queries, tree.places, strict=True):
            groups = found.groups[places]
            if isinstance(part, TextWindow):
                # The row before each scored token: where the next window scores the next token, that row is its own.
                first = max(0, len(query.before) + part.first - 1)
                rows = slice(first, len(groups) if part.last else len(groups) - 1)
                results.append(ScoredWindow(self._scored_tokens(query, found, places, part.first), groups[rows]))
            else:
                results.append(self._text_score(query, self._scored_tokens(query, found, places), groups))
        return results

    def _text_score(self, query: ScoreTextQuery, tokens: tuple[ScoredToken, ...], groups: Array) -> TextScore:
        """Return the result of a text from its tokens, and log-probabilities of groups after each, `[T, m]`."""
        words = self._scored_words(query, tokens, groups) if query.words else None
        return TextScore(query.text, tokens, query.truncated, words, _scored_bytes(query))

    def _scored_tokens(
        self, query: ScoreTextQuery, found: Predictions, places: Array, first: int = 0
    ) -> tuple[ScoredToken, ...]:
        """Return the tokens of a query from the `first` one on.

        They have these places in the tree, with those before the text.
        """
        values = found.log_probabilities[places].tolist()
        unread = 1 - len(query.before)
        tokens = []
        for index, token in enumerate(query.tokens[first:], first):
            place = index + len(query.before)
            scored = index >= unread
            start, end = query.spans[index] if query.spans else (None, None)
            explained = scored and query.explain > 0
            before = int(places[place - 1]) if explained else 0
            tokens.append(
                ScoredToken(
                    self.tokenizer.text(token),
                    values[place] if scored else None,
                    self.tokenizer.is_unknown(token),
                    start,
                    end,
                    int(found.ranks[places[place]]) if explained else None,
                    float(found.entropy[before]) if explained else None,
                    self._tokens(*found.best[before], query.explain) if explained else (),
                )
            )
        return tuple(tokens)

    def _scored_words(
        self, query: ScoreTextQuery, tokens: Sequence[ScoredToken], groups: Array
    ) -> tuple[ScoredWord, ...]:
        """Return the words of a text from the log-probabilities of its tokens, and of groups after each, `[T, m]`.

        Without a start token the first word is not scored: its first token has no probability.
        """
        text = TokenizedText(self._words, query.before, query.tokens)
        columns = {state: 1 + column for column, state in enumerate(_INSIDE_WORDS)}
        last = len(query.before) - 1
        begins = {
            place: float(groups[place + last, columns[state]]) if state in columns else 0.0
            for place, state in text.cuts.items()
            if place + last >= 0
        }
        values = [0.0 if token.log_probability is None else token.log_probability for token in tokens]
        found = text.score(values, begins, float(groups[-1, 0]))
        unscored = 0 if query.before else 1
        words = []
        for index, word in enumerate(found.words):
            first, after = word.tokens
            start, end = query.spans[first][0], query.spans[after - 1][1]
            piece = query.text[start:end]
            start += len(piece) - len(piece.lstrip(_WHITE_SPACE))
            end = max(start, end - (len(piece) - len(piece.rstrip(_WHITE_SPACE))))
            value = None if index < unscored else word.log_probability
            words.append(ScoredWord(query.text[start:end], start, end, word.tokens, value, tokens[first].entropy))
        return tuple(words)

    def _tokens(self, values: Array, ids: Array, top_k: int) -> tuple[NextToken, ...]:
        best = zip(ids[:top_k].tolist(), values[:top_k].tolist(), strict=True)
        return tuple(NextToken(self.tokenizer.text(token), token, value, token == self._end) for token, value in best)


def _scored_bytes(query: ScoreTextQuery) -> int | None:
    """Return the UTF-8 bytes of a text from its first scored token to the last one; None where there is none."""
    unscored = 0 if query.before else 1
    if len(query.spans) <= unscored:
        return None
    start = query.spans[1][0] if unscored else 0
    end = len(query.text) if query.truncated is None else query.spans[-1][1]
    return len(query.text[start:end].encode())


class _Continuations:
    """The model that a search for words asks, after a context that has been read."""

    def __init__(self, model: CausalLanguageModel, path: ReadPath, hidden: Array) -> None:
        self._model, self._path, self._hidden = model, path, hidden

    def log_probabilities(self, prefixes: Sequence[tuple[int, ...]]) -> Array:
        """Return the log-probabilities of the next token after each prefix, all of which begin with the context."""
        count = len(self._path)
        return self._model.following(self._path, self._hidden, [prefix[count:] for prefix in prefixes])
