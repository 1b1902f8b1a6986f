"""Beam search and sampling for many sentences at once, step by step.

Shapes: `B` sentences, `K` hypotheses a sentence (the beam), `C` candidates a hypothesis, `T` tokens so far.

Pure policy: it chooses from log-probabilities, which a caller computes. All log-probabilities are base e. A step
takes the 2 K best continuations of a sentence's hypotheses. Those among the first K that are the end token finish a
hypothesis, the first K others live on. What the length limit cuts off ranks behind what ended. Equal scores are ranked
by the earlier hypothesis, then by the caller's order.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from models.backend import Array
from models.decoding.attention import Attention, AttentionTrace
from models.decoding.constraints import NUM_CANDIDATES, Constraints, Progress, Step
from models.text.utf8 import START, Utf8Tokens

__all__ = ["BeamSearch", "Hypothesis", "SearchOptions"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions:
    """How one sentence is searched. Raises `ValueError` naming the option that is out of range."""

    n_best: int = 1
    """Hypotheses to return, at most the beam size."""
    length_penalty: float = 1.0
    """alpha: hypotheses are ranked by log-probability / length^alpha, the end token included."""
    stop: Literal["exact", "full"] = "exact"
    """`exact`: when no open hypothesis can become one of the n best. `full`: when K hypotheses are finished.

    A beam of one is greedy search, which stops at its first end either way.
    """
    sparse: bool = False
    """Whether each step keeps only the K best continuations of a hypothesis, renormalized (sparse paper, section 4)."""
    prefix: tuple[int, ...] = ()
    """Tokens that every hypothesis starts with; they count for nothing in its log-probability."""
    temperature: float | None = None
    """Sample instead of searching: each of the K hypotheses draws its next token, log-probabilities divided by this."""
    sample_from: int = 50
    """How many of the most probable next tokens a sample is drawn from."""
    seed: int = 0
    """Seed of the samples: a sentence with the same seed has the same samples in any batch."""
    attention: bool = False
    """Whether hypotheses come with their attention to the source."""
    constraints: Constraints | None = None
    """Phrases that an output must have after its prefix, for a search without samples and sparse mask.

    Where no output with all of them is found within the length limit, the one that lacks the fewest is returned.
    """

    def __post_init__(self) -> None:
        if self.constraints is not None and (self.sparse or self.temperature is not None):
            raise ValueError("constraints cannot be combined with sparse or temperature")
        if self.n_best < 1:
            raise ValueError(f"n_best must be at least 1, not {self.n_best}")
        if not 0 <= self.length_penalty <= 10:
            raise ValueError(f"length_penalty must lie between 0 and 10, not {self.length_penalty}")
        if self.stop not in ("exact", "full"):
            raise ValueError(f"stop must be 'exact' or 'full', not {self.stop!r}")
        if not 1 <= self.sample_from <= 1000:
            raise ValueError(f"sample_from must lie between 1 and 1000, not {self.sample_from}")
        if self.temperature is not None and not 0 < self.temperature <= 100:
            raise ValueError(f"temperature must be above 0 and at most 100, not {self.temperature}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, not {self.seed}")


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output of a search."""

    tokens: tuple[int, ...]
    """Prefix included, end token left out."""
    log_probability: float
    """Log-probability of the tokens and, unless the length limit cut the output off, of the end token."""
    score: float
    """Log-probability / length^alpha, by which hypotheses are ranked."""
    attention: Attention | None = field(default=None, compare=False, repr=False)
    """Attention of the steps that read the start and each token, but the last of an output that was cut off."""
    sums: Array | None = field(default=None, compare=False, repr=False)
    """Log-probability up to and with each token, and at last `log_probability`."""

    @property
    def mean_log_probability(self) -> float:
        """Return the mean log-probability of a token, the end token included."""
        return self.log_probability / (len(self.tokens) + 1)

    @property
    def token_log_probabilities(self) -> Array:
        """Return the log-probability of each token and, unless the length limit cut the output off, of the end token.

        Raises `ValueError` for a hypothesis that does not come from a search.
        """
        if self.sums is None:
            raise ValueError("the hypothesis has no log-probabilities of its tokens")
        found: Array = np.diff(self.sums, prepend=0.0)
        return found


@dataclass(slots=True)
class _Sentence:
    """The state of one sentence that is not kept in arrays."""

    key: object
    options: SearchOptions
    max_tokens: int
    finished: list[Hypothesis] = field(default_factory=list)
    cut: list[Hypothesis] = field(default_factory=list)
    """Hypotheses that the length limit cut off."""
    generator: np.random.Generator | None = None
    trace: AttentionTrace | None = None
    """Attention so far, where the options ask for it."""
    incomplete: list[tuple[int, Hypothesis]] = field(default_factory=list)
    """Hypotheses that ended without some of the constraints, and how many they lack."""
    progress: list[Progress] = field(default_factory=list)
    """Which constraints each hypothesis of the beam meets, where there are some."""

    def plain(self, length: int) -> bool:
        """Whether it is searched without sampling and sparse mask, and without a prefix after `length` tokens."""
        return self.generator is None and not self.options.sparse and len(self.options.prefix) <= length

    def best(self) -> list[Hypothesis]:
        finished, cut = (sorted(each, key=lambda found: -found.score) for each in (self.finished, self.cut))
        incomplete = sorted(self.incomplete, key=lambda each: (each[0], -each[1].score))
        return [*finished, *(found for _, found in incomplete), *cut][: self.options.n_best]

    def hypothesis(self, tokens: Array, sums: Array, length: int, index: int) -> Hypothesis:
        """Return the hypothesis that has, or extends, the one with this index; `sums` ends with its log-probability."""
        log_probability = float(sums[-1])
        score = self._score(log_probability, length)
        attention = None if self.trace is None else self.trace.path(index)
        return Hypothesis(tuple(tokens.tolist()), log_probability, score, attention, sums)

    def is_surpassed(self, log_probability: float, length: int) -> bool:
        """Return whether an output with this log-probability is none of the n best, in a search that counts none."""
        options = self.options
        if options.stop == "full" or self.generator is not None or len(self.finished) < options.n_best:
            return False
        score = self._score(log_probability, length)
        return sum(found.score >= score for found in self.finished) >= options.n_best

    def _score(self, log_probability: float, length: int) -> float:
        return log_probability / float(max(1, length) ** self.options.length_penalty)

    def stops_at(self, beam_size: int) -> float:
        """Return the log-probability that an open hypothesis must exceed for the search to continue."""
        if self.options.stop == "full" or self.generator is not None or beam_size == 1:
            return math.inf if len(self.finished) >= beam_size else -math.inf
        if len(self.finished) < self.options.n_best:
            return -math.inf
        # A log-probability only falls, and weighs least at the greatest length.
        return self.best()[-1].score * float(self.max_tokens**self.options.length_penalty)


_EMPTY_SLOT = _Sentence(None, SearchOptions(), 1)
"""Placeholder in a slot without a sentence."""


class BeamSearch:
    """The searches of several sentences that advance in the same steps; sentences join and leave between steps."""

    def __init__(
        self, beam_size: int, end_id: int, start_id: int | None = None, utf8: Utf8Tokens | None = None
    ) -> None:
        """Hypotheses start after `start_id`, by default the end, and spell text where `utf8` knows the tokens' bytes.

        Raises `ValueError` for a beam without hypotheses.
        """
        if beam_size < 1:
            raise ValueError(f"beam_size must be at least 1, not {beam_size}")
        self.beam_size = beam_size
        self._end, self._start = end_id, end_id if start_id is None else start_id
        self._utf8 = utf8
        self._sentences: list[_Sentence] = []
        self._scores = np.zeros((0, beam_size))
        self._tokens = np.zeros((0, beam_size, 16), np.int64)
        self._sums = np.zeros((0, beam_size, 16))
        self.lengths = np.zeros(0, np.int64)
        """Number of tokens of each sentence's hypotheses so far: `[B]`."""
        self.last_tokens = np.zeros((0, beam_size), np.int64)
        """Input token of each hypothesis for the next step, the start token at first: `[B, K]`."""
        self._states = np.zeros((0, beam_size), np.int8)
        """State of each hypothesis in UTF-8: `[B, K]`."""
        self._live = np.zeros(0, bool)
        self.num_live = 0
        """Number of unfinished sentences."""
        self.deepest = 0
        """Largest number of tokens of the unfinished sentences so far."""
        self.longest = 0
        """Largest output limit of the unfinished sentences, in tokens."""
        self._limits = np.zeros(0, np.int64)
        self._stops = np.zeros(0)
        self._plain = True
        self._traced: list[int] = []
        self._constrained: list[int] = []
        self._guided = False

    def __len__(self) -> int:
        return len(self._sentences)

    @property
    def keys(self) -> list[object]:
        """The key of the sentence in each slot, as given to `add`."""
        return [sentence.key for sentence in self._sentences]

    @property
    def free_slots(self) -> list[int]:
        """Slots of finished sentences: they are computed in every step, to no effect, until a sentence is added."""
        rows: list[int] = np.flatnonzero(~self._live).tolist()
        return rows

    def add(self, key: object, options: SearchOptions, max_tokens: int) -> int:
        """Add a sentence in the first free slot, or in a new one; return its slot.

        Its hypotheses have at most `max_tokens` tokens, the end not counted. Raises `ValueError` for more hypotheses
        than the beam has or a limit the prefix does not fit into.
        """
        if options.n_best > self.beam_size:
            raise ValueError(f"n_best must be at most the beam size {self.beam_size}, not {options.n_best}")
        if max_tokens < max(1, len(options.prefix)):
            raise ValueError(f"max_tokens must be at least 1 and cover the prefix, not {max_tokens}")
        sampling = options.temperature is not None
        generator = np.random.default_rng(options.seed) if sampling else None
        trace = AttentionTrace() if options.attention else None
        progress = [] if options.constraints is None else [Progress()] * self.beam_size
        sentence = _Sentence(key, options, max_tokens, generator=generator, trace=trace, progress=progress)
        row = len(self) if self.num_live == len(self) else self.free_slots[0]
        if row == len(self):
            self._append_row()
        self._sentences[row] = sentence
        # Hypotheses are equal at first: one of them is enough, unless each draws its own continuation.
        self._scores[row] = 0.0 if sampling else -np.inf
        self._scores[row, 0] = 0.0
        self.last_tokens[row], self._states[row] = self._start, START
        self.lengths[row], self._limits[row], self._stops[row], self._live[row] = 0, max_tokens, -np.inf, True
        self._count()
        return row

    def _append_row(self) -> None:
        self._sentences.append(_EMPTY_SLOT)
        self._scores = np.concatenate([self._scores, np.zeros((1, self.beam_size))])
        self._tokens = np.concatenate([self._tokens, np.zeros((1, *self._tokens.shape[1:]), np.int64)])
        self._sums = np.concatenate([self._sums, np.zeros((1, *self._sums.shape[1:]))])
        self.last_tokens = np.concatenate([self.last_tokens, np.zeros((1, self.beam_size), np.int64)])
        self._states = np.concatenate([self._states, np.full((1, self.beam_size), START, np.int8)])
        self.lengths, self._limits = np.append(self.lengths, 0), np.append(self._limits, 0)
        self._stops, self._live = np.append(self._stops, -np.inf), np.append(self._live, False)

    def _all_plain(self) -> bool:
        states = zip(self._sentences, self.lengths.tolist(), self._live.tolist(), strict=True)
        return all(sentence.plain(length) for sentence, length, live in states if live)

    def _count(self) -> None:
        self._plain = self._all_plain()
        self._traced = [row for row, each in enumerate(self._sentences) if each.trace is not None and self._live[row]]
        self._constrained = [row for row, each in enumerate(self._sentences) if each.progress and self._live[row]]
        constraints = (self._sentences[row].options.constraints for row in self._constrained)
        self._guided = any(each is not None and each.guided for each in constraints)
        self.num_live = int(self._live.sum())
        self.deepest = int(self.lengths.max(initial=0))
        self.longest = int(self._limits[self._live].max(initial=0))

    def free(self, rows: Sequence[int]) -> None:
        """Free the slots of finished or cancelled sentences."""
        self.lengths[list(rows)] = 0
        self._live[list(rows)] = False
        self._count()

    @property
    def single(self) -> bool:
        """Whether every sentence is at its start with one distinct hypothesis, the only one that a step must read."""
        return self._plain and not self.deepest

    @property
    def traced(self) -> bool:
        """Whether `advance` needs the attention of a step."""
        return bool(self._traced) or self._guided

    def num_candidates(self, vocab_size: int) -> int:
        """Return how many candidates `advance` needs for each hypothesis."""
        least = max(2 * self.beam_size, NUM_CANDIDATES) if self._constrained else 2 * self.beam_size
        if self._plain:
            return min(least, vocab_size)
        samples = (each.options.sample_from for each in self._sentences if each.generator is not None)
        return min(max(least, *samples, 0), vocab_size)

    def advance(
        self, log_probabilities: Array, candidates: Array, attention: Array | None = None
    ) -> tuple[Array, list[int]]:
        """Advance by one step: candidates `[B, K, C]`, best first, or `[B, 1, C]` where `single`.

        `attention` to the source, `[B, K, S]` or `[B, 1, S]`, is needed where the search is `traced`.
        Returns the index of the hypothesis that each new one extends, `[B, K]`, and the slots of the sentences that
        finished in this step; `best` returns their hypotheses until `add` uses the slots again.
        """
        count, beam = len(self), self.beam_size
        for row in self._traced:
            assert attention is not None
            self._trace(row).read(attention[row])
        if beam == 1 and self._plain and not self._constrained:
            origins = np.zeros((count, 1), np.int64)
            if self._appended(candidates[:, :, 0], log_probabilities[:, :, 0], origins):
                return origins, self._finish_stopped() if (self.lengths >= self._limits).any() else []
        log_probabilities = log_probabilities.astype(np.float64)
        possible = self._possible(candidates)
        width = candidates.shape[1] * candidates.shape[2]
        if not self._plain:
            self._truncate(log_probabilities)
        values = self._scores[:, : candidates.shape[1], None] + log_probabilities
        if not self._plain:
            self._force_prefixes(values, candidates)
        if possible is not None and not possible.all():
            self._rule_out(possible, values)
        flat = values.reshape(count, width)
        order = np.argsort(-flat, axis=1, kind="stable")[:, : 2 * beam]
        if not self._plain:
            self._sample(order, values)
        rows = np.arange(count)[:, None]
        scores, tokens = flat[rows, order], candidates.reshape(count, width)[rows, order]
        origins = order // candidates.shape[2]
        begun = [row for row in self._constrained if self.lengths[row] >= len(self._sentences[row].options.prefix)]
        if begun:
            steps = self._steps(begun, log_probabilities, candidates, flat, order, attention)
            chosen = [self._constrain(row, step, tokens.shape[1]) for row, step in zip(begun, steps, strict=True)]
            tokens[begun], scores[begun], origins[begun] = map(np.array, zip(*chosen, strict=True))
        tokens, scores, origins = self._going_on(tokens, scores, origins)
        self._append(tokens, scores, origins)
        return origins, self._finish_stopped()

    def _going_on(self, tokens: Array, scores: Array, origins: Array) -> tuple[Array, Array, Array]:
        """Finish the hypotheses among the first K that end, and return the K continuations that go on."""
        ends = (tokens == self._end) & (scores > -np.inf)
        if not ends.any():
            return self._beam(tokens, scores, origins)
        self._finish_ended(ends[:, : self.beam_size], scores, origins)
        return self._survivors(ends, tokens, scores, origins)

    def _trace(self, row: int) -> AttentionTrace:
        trace = self._sentences[row].trace
        assert trace is not None
        return trace

    def _appended(self, tokens: Array, log_probabilities: Array, origins: Array) -> bool:
        """Append the best continuations of single hypotheses, `[B, 1]`, where none is the end and all are text."""
        if (tokens == self._end).any():
            return False
        states = None
        if self._utf8 is not None:
            states = self._utf8.after(self._states, tokens)
            if not (self._utf8.possible(states) | ~self._live[:, None]).all():
                return False
        self._append(tokens, self._scores + log_probabilities.astype(np.float64), origins, states)
        return True

    def _possible(self, candidates: Array) -> Array | None:
        """Return whether text can go on after each candidate, `[B, K, C]`; None where any token is text."""
        if self._utf8 is None:
            return None
        following = self._utf8.after(self._states[:, : candidates.shape[1], None], candidates)
        return self._utf8.possible(following) | ~self._live[:, None, None]

    def _rule_out(self, possible: Array, values: Array) -> None:
        """Rule out continuations that are not text; a sentence without any other ends with the whole characters."""
        for row, sentence in enumerate(self._sentences):
            if self.lengths[row] < len(sentence.options.prefix):
                possible[row] = True
        values[~possible] = -np.inf
        for row in np.flatnonzero(self._live & (values == -np.inf).all(axis=(1, 2))).tolist():
            self._cut(row)

    def _truncate(self, log_probabilities: Array) -> None:
        """Apply the sparse mask to the sentences whose options ask for it."""
        sparse = np.array([sentence.options.sparse for sentence in self._sentences], bool)
        if sparse.any():
            kept = log_probabilities[sparse]
            kept[:, :, self.beam_size :] = -np.inf
            log_probabilities[sparse] = kept - np.logaddexp.reduce(kept, axis=2, keepdims=True)

    def _force_prefixes(self, values: Array, candidates: Array) -> None:
        """Make the next token of an unfinished prefix the only candidate, at a log-probability of 0."""
        for row, sentence in enumerate(self._sentences):
            length = int(self.lengths[row])
            if length < len(sentence.options.prefix):
                candidates[row, :, 0] = sentence.options.prefix[length]
                values[row] = -np.inf
                values[row, :, 0] = self._scores[row]

    def _sample(self, order: Array, values: Array) -> None:
        """Replace the first K entries of the order by samples, for sentences that sample (Gumbel-max trick)."""
        for row, sentence in enumerate(self._sentences):
            if sentence.generator is None:
                continue
            assert sentence.options.temperature is not None
            # A constant number of draws, so that other sentences of the batch that need more candidates change nothing.
            noise = sentence.generator.gumbel(size=(self.beam_size, sentence.options.sample_from))
            drawn = values[row, :, : noise.shape[1]]
            drawn = drawn - np.maximum(drawn.max(axis=1, keepdims=True), np.finfo(drawn.dtype).min)
            with np.errstate(over="ignore"):  # at a temperature of almost 0 all but the best are minus infinity
                choice = (drawn / sentence.options.temperature + noise[:, : drawn.shape[1]]).argmax(axis=1)
            order[row, : self.beam_size] = np.arange(self.beam_size) * values.shape[2] + choice

    def _steps(
        self,
        rows: Sequence[int],
        log_probabilities: Array,
        candidates: Array,
        values: Array,
        order: Array,
        attention: Array | None,
    ) -> Iterator[Step]:
        """Yield the candidates of sentences with constraints.

        `values` are log-probabilities of hypotheses with each candidate, `[B, K C]`, `order` their best ones.
        """
        _, count, width = candidates.shape
        own = [place * width + rank for place in range(count) for rank in range(min(2, width))]
        begins = np.ones((len(rows), count), bool) if self._utf8 is None else self._states[rows, :count] == START
        listed = np.exp(log_probabilities[rows]).sum(axis=2)
        chosen = (each[rows] for each in (log_probabilities, candidates, values, order))
        arrays = (self._scores[rows, :count], begins, listed, *chosen)
        for row, *lists in zip(rows, *(each.tolist() for each in arrays), strict=True):
            scores, whole, probability, own_values, tokens, sums, best = lists
            hypotheses = list(zip(scores, self._sentences[row].progress, whole, strict=False))
            weights = None if attention is None else attention[row]
            yield Step(hypotheses, own_values, tokens, probability, sums, dict.fromkeys([*best, *own]), weights)

    def _constrain(self, row: int, step: Step, width: int) -> tuple[list[int], list[float], list[int]]:
        """Choose the continuations of a sentence with constraints, and finish its hypotheses that end.

        Returns `width` tokens, log-probabilities and origins, the first ones of which live on.
        """
        sentence = self._sentences[row]
        constraints = sentence.options.constraints
        assert constraints is not None
        choice = constraints.choose(step, self.beam_size, self._end)
        for each in choice.complete:
            sentence.finished.append(self._ended(row, each.origin, each.score))
            self._stops[row] = sentence.stops_at(self.beam_size)
        for each in choice.incomplete:
            sentence.incomplete.append((constraints.missing(each.progress), self._ended(row, each.origin, each.score)))
        kept, missing = choice.kept[:width], width - min(len(choice.kept), width)
        scores, origins, tokens, progress = zip(*kept, strict=True) if kept else ((), (), (), ())
        sentence.progress = [*progress, *[Progress()] * (self.beam_size - len(kept))]
        return [*tokens, *[0] * missing], [*scores, *[-math.inf] * missing], [*origins, *[0] * missing]

    def _ended(self, row: int, origin: int, score: float) -> Hypothesis:
        """Return a hypothesis that ends with this log-probability."""
        length = int(self.lengths[row])
        sums = np.empty(length + 1)
        sums[:length], sums[length] = self._sums[row, origin, :length], score
        return self._sentences[row].hypothesis(self._tokens[row, origin, :length], sums, length + 1, origin)

    def _finish_ended(self, ends: Array, scores: Array, origins: Array) -> None:
        changed = set()
        for row, place in zip(*(each.tolist() for each in np.nonzero(ends)), strict=True):
            score = float(scores[row, place])
            if self._sentences[row].is_surpassed(score, int(self.lengths[row]) + 1):
                continue
            self._sentences[row].finished.append(self._ended(row, int(origins[row, place]), score))
            changed.add(row)
        for row in changed:
            self._stops[row] = self._sentences[row].stops_at(self.beam_size)

    def _survivors(self, ends: Array, tokens: Array, scores: Array, origins: Array) -> tuple[Array, Array, Array]:
        """Return the first K continuations that are not the end token; an ended sample has no successor."""
        scores = np.where(ends, -np.inf, scores)
        places = np.argsort(ends, axis=1, kind="stable")
        if not self._plain:
            sampling = [row for row, sentence in enumerate(self._sentences) if sentence.generator is not None]
            places[sampling] = np.arange(places.shape[1])
        rows = np.arange(len(self))[:, None]
        return self._beam(tokens[rows, places], scores[rows, places], origins[rows, places])

    def _beam(self, tokens: Array, scores: Array, origins: Array) -> tuple[Array, Array, Array]:
        """Truncate to K continuations, or pad to K in a tiny vocabulary."""
        beam, missing = self.beam_size, self.beam_size - tokens.shape[1]
        if missing > 0:
            scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=-np.inf)
            tokens, origins = (np.pad(each, ((0, 0), (0, missing))) for each in (tokens, origins))
        return tokens[:, :beam], scores[:, :beam], origins[:, :beam]

    def _append(self, tokens: Array, scores: Array, origins: Array, states: Array | None = None) -> None:
        """Append a token to each hypothesis; `states` are those after them, where they are known."""
        if self.deepest == self._tokens.shape[2]:
            self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens)], axis=2)
            self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)], axis=2)
        for row in self._traced:
            self._trace(row).follow(origins[row])
        rows = np.arange(len(self))
        if self.beam_size > 1:
            self._tokens, self._sums = self._tokens[rows[:, None], origins], self._sums[rows[:, None], origins]
        self._tokens[rows, :, self.lengths] = tokens
        self._sums[rows, :, self.lengths] = scores
        if states is None and self._utf8 is not None:
            before = self._states if self.beam_size == 1 else self._states[rows[:, None], origins]
            states = self._utf8.after(before, tokens)
        if states is not None:
            self._states = states
        self._scores, self.last_tokens = scores, tokens
        self.lengths = self.lengths + self._live
        self.deepest += 1
        self._plain = self._plain or self._all_plain()

    def _finish_stopped(self) -> list[int]:
        """Return the slots of sentences that stop now, where the length limit cuts hypotheses off, and free them."""
        best = self._scores.max(axis=1, initial=-np.inf)
        stops = self._stops.copy() if self._constrained else self._stops
        for row in self._constrained:
            best[row], stops[row] = self._constrained_stop(row, best[row])
        stopped: list[int] = np.flatnonzero(((best <= stops) | (self.lengths >= self._limits)) & self._live).tolist()
        for row in stopped:
            if self.lengths[row] == self._sentences[row].max_tokens:
                self._cut(row)
        if stopped:
            self.free(stopped)
        return stopped

    def _constrained_stop(self, row: int, best: float) -> tuple[float, float]:
        """Return the best open log-probability, and the one that it must exceed, of a sentence with constraints.

        Its outputs have lower scores than others, by which an exact search would go on for long. So open hypotheses
        are compared at their present length once there are enough outputs, and hypotheses that lack a phrase are not
        waited for where one has ended.
        """
        sentence, constraints, stop = self._sentences[row], self._sentences[row].options.constraints, self._stops[row]
        assert constraints is not None
        if stop in (-np.inf, np.inf):
            return best, stop
        if sentence.incomplete:
            found = zip(self._scores[row].tolist(), sentence.progress, strict=True)
            best = max((score for score, progress in found if not constraints.missing(progress)), default=-math.inf)
        length = int(self.lengths[row]) + 1
        return best, sentence.best()[-1].score * float(length**sentence.options.length_penalty)

    def _cut(self, row: int) -> None:
        """Add the unfinished hypotheses of a sentence to those that are cut off, down to their last whole character."""
        sentence, length = self._sentences[row], int(self.lengths[row])
        for index, (tokens, score) in enumerate(
            zip(self._tokens[row, :, :length], self._scores[row].tolist(), strict=True)
        ):
            if score > -math.inf:
                whole = length if self._utf8 is None else self._utf8.whole(tokens.tolist())
                sums = np.append(self._sums[row, index, :length], [score][: length == 0])
                sentence.cut.append(sentence.hypothesis(tokens[:whole], sums, length, index))

    def best(self, row: int) -> list[Hypothesis]:
        """Return the n best hypotheses of a sentence: finished ones, best first, then those that were cut off."""
        return self._sentences[row].best()

    def remove(self, rows: Sequence[int]) -> Array:
        """Remove slots; the last of the others fill the gaps. Return the former slot of each that is kept."""
        gone, count = set(rows), len(self) - len(set(rows))
        kept = np.arange(count)
        kept[[row for row in sorted(gone) if row < count]] = [row for row in range(count, len(self)) if row not in gone]
        self._sentences = [self._sentences[row] for row in kept]
        self._scores, self.lengths = self._scores[kept], self.lengths[kept]
        self._tokens, self._sums = self._tokens[kept], self._sums[kept]
        self.last_tokens, self._states = self.last_tokens[kept], self._states[kept]
        self._limits, self._stops, self._live = self._limits[kept], self._stops[kept], self._live[kept]
        self._count()
        return kept
