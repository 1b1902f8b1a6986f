"""Interpolated modified Kneser-Ney n-gram language model, in NumPy.

A count-based baseline for the neural language models. Sources:

* S. F. Chen and J. Goodman, "An empirical study of smoothing techniques for language modeling", Computer
  Speech and Language 13 (1999), "Modified Kneser-Ney smoothing": interpolation, three discounts an order.
* K. Heafield et al., "Scalable modified Kneser-Ney language model estimation", ACL 2013, section 3: adjusted
  counts (an n-gram that starts a sentence has no left neighbour to count, so it keeps its raw count),
  interpolation of the lowest order with the uniform distribution, fallback discounts.

Shapes legend
    V    words in the closed vocabulary, the end of sentence among them; id V is the begin symbol
    T    positions in a stream: every sentence as begin, words, end, one after another
    N    predicted positions in a stream (T less the begin symbols)
    G_n  distinct n-grams seen in training; G_1 is fixed at V + 1 (every id, the begin symbol last)

Storage. An n-gram's id is its rank in the sorted `keys` of its order, where a key is
``id of its first n - 1 words * (V + 1) + its last word``. Equal contexts are therefore neighbours, looking an
n-gram up is one binary search an order, and whole streams are counted and scored with array operations.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["KneserNey"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# For an order whose counts of counts cannot give discounts: half of each count up to three, as KenLM's
# --discount_fallback has it. Entry k comes off a count of k; 3 stands for three or more.
FALLBACK_DISCOUNTS = (0.0, 0.5, 1.0, 1.5)
ABSENT = -1


@dataclass(frozen=True)
class _Level:
    """What one order n >= 2 adds to the one below: p(w | c) = alpha(c w) + gamma(c) * p(w | shorter c)."""

    keys: Ints  # [G_n], ascending
    alpha: Floats  # [G_n]
    gamma: Floats  # [G_(n-1)], indexed by the context's id


class KneserNey:
    """Modified Kneser-Ney over integer token ids, fitted when built (module docstring has the sources).

    Sentences hold word ids only: the model itself puts a begin symbol in front, which is context and never
    predicted, and predicts `end_id` after the last word. As in SRILM and KenLM, a context that reaches back
    to the start of its sentence stops at one begin symbol: the order - 1 of them that a fixed-width context
    would have tell nothing more, and would make one event be discounted again at every order.

    `discounts[n - 1]` is (0, D1, D2, D3+) of order n, for each order that occurs in training.
    """

    def __init__(self, sentences: Iterable[Sequence[int]], *, vocab_size: int, end_id: int, order: int = 5) -> None:
        """Count `sentences`; raise ValueError where an argument or an id is out of range."""
        if order < 1:
            raise ValueError(f"order must be at least 1, got {order}")
        if vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1, got {vocab_size}")
        if not 0 <= end_id < vocab_size:
            raise ValueError(f"end_id must lie in [0, {vocab_size}), got {end_id}")
        self.order, self.vocab_size, self.end_id = order, vocab_size, end_id
        self.discounts: list[Floats] = []
        self._levels: list[_Level] = []
        self._fit(self._stream(sentences, "sentences"))

    def log_probs(self, sentence: Sequence[int]) -> Floats:
        """Natural log-probability of each word and of the end, [len(sentence) + 1]."""
        return np.log(self._probabilities(self._stream([sentence], "sentence")))

    def perplexity(self, sentences: Iterable[Sequence[int]]) -> float:
        """exp of the mean negative log-probability over all words and ends."""
        return float(np.exp(-np.log(self._probabilities(self._stream(sentences, "sentences"))).mean()))

    def distribution(self, context: Sequence[int]) -> Floats:
        """Probability of every next word, [V], after `context`, the sentence so far from its start."""
        history = self._stream([context], "context")[:-1]  # without the end: what follows is being asked
        probability, ids = self._base.copy(), history
        for level in self._levels:
            context_id = ids[-1]
            if context_id == ABSENT:
                break
            low, high = np.searchsorted(level.keys, self._key(np.array([context_id, context_id + 1]), 0))
            probability *= level.gamma[context_id]
            probability[level.keys[low:high] % (self.vocab_size + 1)] += level.alpha[low:high]
            ids = self._find(level, self._contexts(ids, history), history)
        return probability

    # ---- streams --------------------------------------------------------------------------------------

    def _stream(self, sentences: Iterable[Sequence[int]], name: str) -> Ints:
        """All sentences as begin, words, end, one after another: [T]."""
        words: list[int] = []
        lengths: list[int] = []
        for sentence in sentences:
            words.extend(sentence)
            lengths.append(len(sentence))
        if not lengths:
            raise ValueError(f"{name} must hold at least one sentence")
        ends = np.cumsum(np.array(lengths, dtype=np.int64) + 2) - 1
        stream = np.full(len(words) + 2 * len(lengths), self.vocab_size, dtype=np.int64)
        stream[ends] = self.end_id
        inside = np.ones(len(stream), dtype=np.bool_)
        inside[ends] = False
        inside[np.append(0, ends[:-1] + 1)] = False
        stream[inside] = self._checked(words, name)
        return stream

    def _checked(self, words: list[int], name: str) -> Ints:
        """The ids as an array, once it is sure that none is a special symbol or outside the vocabulary."""
        ids = np.array(words) if words else np.zeros(0, dtype=np.int64)
        if ids.dtype.kind not in "iu":
            raise ValueError(f"{name} must hold integer ids, got {ids.dtype}")
        if ids.size and (ids.min() < 0 or ids.max() >= self.vocab_size):
            raise ValueError(f"{name} must hold ids in [0, {self.vocab_size}), got {ids.min()}..{ids.max()}")
        if (ids == self.end_id).any():
            raise ValueError(f"{name} must not hold end_id ({self.end_id}): the model adds it itself")
        return ids.astype(np.int64)

    def _key(self, contexts: Ints, words: Ints | int) -> Ints:
        """Keys of the n-grams made of these (n-1)-gram ids and words; negative where a context is absent."""
        return contexts * (self.vocab_size + 1) + words

    def _contexts(self, ids: Ints, stream: Ints) -> Ints:
        """Id of the n-gram that ends just before each position, [T], given those that end at it, [T].

        A begin symbol has no context, so no n-gram ever crosses a sentence boundary.
        """
        contexts = np.append(ABSENT, ids[:-1])
        contexts[stream == self.vocab_size] = ABSENT
        return contexts

    # ---- fitting --------------------------------------------------------------------------------------

    def _fit(self, stream: Ints) -> None:
        """Count all orders upwards, then turn each one's adjusted counts into alpha and gamma."""
        ids, keys = stream, np.arange(self.vocab_size + 1)
        raw = np.bincount(stream, minlength=self.vocab_size + 1)
        all_keys, all_counts = [], []
        for _ in range(1, self.order):
            longer_ids, longer_keys, longer_raw = self._count(self._contexts(ids, stream), stream)
            all_keys.append(keys)
            all_counts.append(_adjusted(raw, ids, longer_ids, len(longer_keys)))
            ids, keys, raw = longer_ids, longer_keys, longer_raw
            if not len(keys):  # no sentence is that long
                break
        else:
            all_keys.append(keys)
            all_counts.append(raw)  # the highest order has no longer n-grams to count: raw counts
        self._base = self._lowest(all_counts[0][: self.vocab_size])  # begin is left out: never predicted
        for below, keys, counts in zip(all_keys, all_keys[1:], all_counts[1:], strict=False):
            self._levels.append(self._level(keys, counts, len(below)))

    def _count(self, contexts: Ints, stream: Ints) -> tuple[Ints, Ints, Ints]:
        """Of the n-grams `contexts` + `stream`: ids at each position [T], keys [G_n], raw counts [G_n]."""
        present = contexts != ABSENT
        keys, inverse, raw = np.unique(
            self._key(contexts[present], stream[present]), return_inverse=True, return_counts=True
        )
        ids = np.full(len(stream), ABSENT)
        ids[present] = inverse
        return ids, keys, raw

    def _lowest(self, counts: Ints) -> Floats:
        """Unigram distribution [V]: discounted counts, their discounts spread evenly over the vocabulary."""
        alpha, gamma = self._discounted(counts, np.zeros(len(counts), dtype=np.int64), 1)
        alpha += gamma[0] / self.vocab_size
        return alpha

    def _level(self, keys: Ints, counts: Ints, contexts: int) -> _Level:
        """One order from its adjusted counts [G_n], over that many contexts."""
        return _Level(keys, *self._discounted(counts, keys // (self.vocab_size + 1), contexts))

    def _discounted(self, counts: Ints, context: Ints, contexts: int) -> tuple[Floats, Floats]:
        """Chen and Goodman's two terms: alpha [G_n] of each n-gram, gamma [contexts] of each context."""
        discounts = _discounts(counts)
        self.discounts.append(discounts)
        taken: Floats = discounts[np.minimum(counts, 3)]
        total = np.bincount(context, weights=counts, minlength=contexts)
        spread = np.bincount(context, weights=taken, minlength=contexts)
        divisor = np.maximum(total, 1.0)
        # A context that nothing follows (an n-gram that only ever ends sentences) passes all mass down.
        gamma = np.where(total > 0, spread / divisor, 1.0)
        alpha: Floats = (counts - taken) / divisor[context]
        return alpha, gamma

    # ---- scoring --------------------------------------------------------------------------------------

    def _find(self, level: _Level, contexts: Ints, stream: Ints) -> Ints:
        """Ids [T] of the n-grams `contexts` + `stream`, ABSENT where training had none."""
        wanted = self._key(contexts, stream)
        at = np.minimum(np.searchsorted(level.keys, wanted), len(level.keys) - 1)
        return np.where(level.keys[at] == wanted, at, ABSENT)

    def _probabilities(self, stream: Ints) -> Floats:
        """Probability of each word and end given all before it in its sentence, [N]; lowest order first."""
        probability = np.append(self._base, 1.0)[stream]  # 1: a filler for begin, dropped at the end
        ids = stream
        for level in self._levels:
            contexts = self._contexts(ids, stream)
            ids = self._find(level, contexts, stream)
            known = contexts != ABSENT
            probability[known] *= level.gamma[contexts[known]]
            found = ids != ABSENT
            probability[found] += level.alpha[ids[found]]
        predicted: Floats = probability[stream != self.vocab_size]
        return predicted


def _adjusted(raw: Ints, ids: Ints, longer_ids: Ints, longer: int) -> Ints:
    """Counts [G_n] for an order below the highest: how many different words come before each n-gram.

    An n-gram without any left neighbour is one that begins with the begin symbol: it keeps its raw count
    (Heafield et al. 2013, section 3.2), because every sentence start would otherwise weigh the same.
    """
    present = longer_ids != ABSENT
    suffix = np.zeros(longer, dtype=np.int64)
    suffix[longer_ids[present]] = ids[present]  # all occurrences of one (n+1)-gram write the same suffix
    neighbours = np.bincount(suffix, minlength=len(raw))
    return np.where(neighbours > 0, neighbours, raw)


def _discounts(counts: Ints) -> Floats:
    """(0, D1, D2, D3+) of one order from its counts of counts (Chen and Goodman 1999).

    Falls back to FALLBACK_DISCOUNTS where no n-gram has a count of exactly 1, 2, 3 or 4, or where the formula
    leaves (0, k]: a discount of 0 would give unseen words no mass, one above k a seen word negative mass.
    """
    of_counts = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype(np.float64)
    if not of_counts.all():
        return np.array(FALLBACK_DISCOUNTS)
    k = np.arange(1.0, 4.0)
    y = of_counts[0] / (of_counts[0] + 2 * of_counts[1])
    discounts = k - (k + 1) * y * of_counts[1:] / of_counts[:-1]
    if (discounts <= 0).any() or (discounts > k).any():
        return np.array(FALLBACK_DISCOUNTS)
    return np.append(0.0, discounts)
