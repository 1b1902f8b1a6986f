"""Links between the words of sentence pairs, learnt from the pairs alone.

The model is that of fast_align (Dyer, Chahuneau and Smith 2013, "A Simple, Fast, and Effective Reparameterization of
IBM Model 2"): each target word is a translation of one source word, which stands near the diagonal, or of a null word.
It is fitted in both directions by expectation maximization; a link is one that both directions have.

Shapes: `C` pairs with equal numbers of words, `B` pairs of any length, `M` source words, `N` target words, `U` pairs of
words that stand in one sentence pair. Column 0 of `[.., M + 1]` is the null word.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from models.text.words import words_of
from training.data.entities import TextPair

__all__ = ["DiagonalModel", "StatisticalAligner", "WordPair"]

Ids = NDArray[np.int64]
Numbers = NDArray[np.float64]
WordPair = tuple[Sequence[int], Sequence[int]]
"""Source and target words of a sentence pair, numbered from 1 on."""

_NULL_PROBABILITY = 0.08
"""Prior probability that a word has no link, as in fast_align."""
_FIRST_TENSION = 0.0
"""The first iteration is one of IBM Model 1, so that words in another order than the source's are not missed; from a
tension of 4, which fast_align starts with, AER of 200 sentences was 0.090 after 2,000 pairs of Tatoeba, so 0.072."""
_TENSIONS = 0.1, 40.0
"""Smallest and largest diagonal tension."""
_HALVINGS = 40
_CONCENTRATION = 0.01
"""Of the Dirichlet prior of translation probabilities, as in fast_align."""
_MOST_PAIRS = 200_000
"""Pairs that a model is fitted to, evenly spaced; more of them change few links and take longer."""
_MOST_WORDS = 80
"""Longer sentences are left out when the model is fitted."""
_BLOCK = 500_000
"""Pairs of words that are computed at once."""
_LEAST = 1e-6
"""Translations with a lower probability are not kept."""
_UNSEEN = 1e-12
"""Probability of translations that are not kept."""
_COPIED = 0.5
"""Probability of an unseen translation that is spelled the same, such as a number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    """Pairs with equal numbers of words."""

    cells: NDArray[np.int32]
    """Place in `known` of each source word and target word, `[C, N, M + 1]`."""
    known: NDArray[np.int64]
    """The pairs of words of the block, as places in those of the corpus."""


class _Shapes:
    """The diagonal prior for all numbers of words that blocks have, in one row for each target word."""

    def __init__(self, shapes: Iterable[tuple[int, int]]) -> None:
        """`shapes` are the numbers of source and target words."""
        self._places: dict[tuple[int, int], tuple[int, int]] = {}
        distances: list[Numbers] = []
        widths: list[int] = []
        start = 0
        for source, target in shapes:
            self._places[source, target] = len(widths), start
            distances.append(_distances(np.array([source]), np.array([target]), source, target).ravel())
            widths += [source] * target
            start += source * target
        self._distances = np.concatenate(distances)
        self._widths = np.array(widths)
        self._starts = np.cumsum(self._widths) - self._widths

    def prior(self, shape: tuple[int, int], tension: float) -> Numbers:
        """Return the prior probability of each link, `[N, M + 1]`."""
        source, target = shape
        _, start = self._places[shape]
        distances = self._distances[start : start + source * target].reshape(1, target, source)
        found: Numbers = _prior(distances, np.ones_like(distances, bool), tension)[0]
        return found

    def add(self, rows: Numbers, shape: tuple[int, int], linked: Numbers) -> None:
        """Add to `rows`, one for each row of the prior, how many target words have a link: `[N]`."""
        first, _ = self._places[shape]
        rows[first : first + shape[1]] += linked

    def distance(self, posterior: Numbers, shape: tuple[int, int]) -> float:
        """Return the sum of distances of links with expected numbers `[N, M]`."""
        source, target = shape
        _, start = self._places[shape]
        return float(self._distances[start : start + source * target] @ posterior.ravel())

    def zeros(self) -> Numbers:
        return np.zeros(len(self._widths))

    def best_tension(self, rows: Numbers, distance: float) -> float:
        """Return the tension with the highest expected likelihood.

        It is concave in the tension: its derivative is the distance that the prior expects less the observed one.
        """
        low, high = _TENSIONS
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            weights = np.exp(-middle * self._distances)
            expected = np.add.reduceat(weights * self._distances, self._starts) / np.add.reduceat(weights, self._starts)
            if rows @ expected > distance:
                low = middle
            else:
                high = middle
        return (low + high) / 2


def _distances(source_lengths: Ids, target_lengths: Ids, source: int, target: int) -> Numbers:
    """Return the distance of each link from the diagonal, in [0, 1]: lengths `[B]` -> `[B, target, source]`."""
    ours = np.arange(1, source + 1) / np.maximum(source_lengths, 1)[:, None]
    theirs = np.arange(1, target + 1) / np.maximum(target_lengths, 1)[:, None]
    return np.abs(ours[:, None, :] - theirs[:, :, None])


def _prior(distances: Numbers, seen: NDArray[np.bool_], tension: float) -> Numbers:
    """Return the probability of each link and of none (section 2 of the paper): `[B, N, M]` -> `[B, N, M + 1]`."""
    weights = np.where(seen, np.exp(-tension * distances), 0)
    total = np.maximum(weights.sum(axis=2, keepdims=True), 1e-300)
    null = np.full((*weights.shape[:2], 1), _NULL_PROBABILITY)
    return np.concatenate([null, (1 - _NULL_PROBABILITY) * weights / total], axis=2)


class DiagonalModel:
    """Translation probabilities of words and the tension towards the diagonal, in one direction."""

    def __init__(self, keys: Ids, probabilities: Numbers, width: int, tension: float) -> None:
        """`keys` `[U]` are sorted and are `source * width + target`; `probabilities` `[U]` are those of each key."""
        self._keys, self._probabilities, self._width = keys, probabilities, width
        self.tension = tension

    @classmethod
    def fit(
        cls,
        pairs: Sequence[WordPair],
        *,
        iterations: int,
        concentration: float = _CONCENTRATION,
        report: Callable[[int, float], object] = lambda number, likelihood: None,
    ) -> Self:
        """Return the model of pairs after some iterations.

        `concentration` is that of a Dirichlet prior (variational EM), 0 without one (EM). `report` is called with the
        number of each iteration, from 1 on, and the log-likelihood of the pairs before it. Raises `ValueError` where no
        pair has words on both sides.
        """
        width = 1 + max((word for _, target in pairs for word in target), default=0)
        shapes = _by_shape(pairs)
        if not shapes:
            raise ValueError("no pair has words on both sides")
        priors = _Shapes(shapes)
        blocks, keys = _blocks(shapes, width)
        sources = keys // width
        probabilities, tension = np.full(len(keys), 1 / width), _FIRST_TENSION
        for number in range(1, iterations + 1):
            counts, rows, distance, likelihood = np.zeros(len(keys)), priors.zeros(), 0.0, 0.0
            for shape, block in blocks:
                joint = probabilities[block.known][block.cells] * priors.prior(shape, tension)
                total = joint.sum(axis=2)
                likelihood += float(np.log(total).sum())
                joint /= total[:, :, None]
                counts[block.known] += np.bincount(block.cells.ravel(), joint.ravel(), len(block.known))
                linked = joint.sum(axis=0)[:, 1:]
                priors.add(rows, shape, linked.sum(axis=1))
                distance += priors.distance(linked, shape)
            report(number, likelihood)
            probabilities = _estimated(counts, sources, width, concentration)
            tension = priors.best_tension(rows, distance)
        kept = probabilities > _LEAST
        return cls(keys[kept], probabilities[kept], width, tension)

    def best(self, source: Ids, target: Ids, source_lengths: Ids, target_lengths: Ids, same: NDArray[np.bool_]) -> Ids:
        """Return the most probable link of each target word, 0 for the null word, from 1 on for source words.

        `source` `[B, M]` and `target` `[B, N]` are padded, lengths are `[B]`, unknown words are 0, and `same`
        `[B, N, M]` says which words are spelled the same. The result is `[B, N]`, of any value where padded.
        """
        known = np.concatenate([np.zeros_like(source[:, :1]), source], axis=1)
        wanted = known[:, None, :] * self._width + target[:, :, None]
        missing_word = (target == 0)[:, :, None] | np.pad(source == 0, ((0, 0), (1, 0)))[:, None, :]
        places = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        found = (self._keys[places] == wanted) & ~missing_word & (target < self._width)[:, :, None]
        unseen = np.where(np.pad(same, ((0, 0), (0, 0), (1, 0))), _COPIED, _UNSEEN)
        translations = np.where(found, self._probabilities[places], unseen)
        seen = np.arange(source.shape[1]) < source_lengths[:, None]
        distances = _distances(source_lengths, target_lengths, source.shape[1], target.shape[1])
        prior = _prior(distances, np.broadcast_to(seen[:, None, :], distances.shape), self.tension)
        best: Ids = (translations * prior).argmax(axis=2)
        return best


def _by_shape(pairs: Sequence[WordPair]) -> dict[tuple[int, int], list[WordPair]]:
    """Return the pairs with each number of source and target words, but for empty and too long ones."""
    found: dict[tuple[int, int], list[WordPair]] = defaultdict(list)
    for source, target in pairs:
        if 0 < len(source) <= _MOST_WORDS and 0 < len(target) <= _MOST_WORDS:
            found[len(source), len(target)].append((source, target))
    return found


def _blocks(
    shapes: Mapping[tuple[int, int], Sequence[WordPair]], width: int
) -> tuple[list[tuple[tuple[int, int], _Block]], Ids]:
    """Return blocks with their shape, and the sorted keys of all pairs of words, `[U]`."""
    found: list[tuple[tuple[int, int], NDArray[np.int32], Ids]] = []
    for (source, target), pairs in shapes.items():
        size = max(1, _BLOCK // ((source + 1) * target))
        for some in (pairs[first : first + size] for first in range(0, len(pairs), size)):
            ours = np.array([[0, *each] for each, _ in some], np.int64)
            theirs = np.array([each for _, each in some], np.int64)
            keys, places = np.unique(ours[:, None, :] * width + theirs[:, :, None], return_inverse=True)
            cells = places.reshape(len(some), target, source + 1).astype(np.int32)
            found.append(((source, target), cells, keys))
    everything = np.unique(np.concatenate([keys for _, _, keys in found]))
    blocks = [
        (shape, _Block(cells=cells, known=np.searchsorted(everything, keys).astype(np.int64)))
        for shape, cells, keys in found
    ]
    return blocks, everything


def _estimated(counts: Numbers, sources: Ids, width: int, concentration: float) -> Numbers:
    """Return translation probabilities of expected counts, by the mean-field rule with a Dirichlet prior: `[U]`."""
    totals = np.asarray(np.bincount(sources, counts), np.float64)
    if not concentration:
        probabilities: Numbers = counts / np.maximum(totals, 1e-300)[sources]
        return probabilities
    ours, theirs = _digamma(counts + concentration), _digamma(totals + concentration * width)
    return np.asarray(np.exp(np.maximum(ours - theirs[sources], -300)))


def _digamma(values: Numbers) -> Numbers:
    return np.asarray(torch.special.digamma(torch.from_numpy(values)).numpy())


class StatisticalAligner:
    """Links the words of sentence pairs: those that a model of each direction finds most probable."""

    def __init__(
        self,
        forward: DiagonalModel,
        backward: DiagonalModel,
        source_words: Mapping[str, int],
        target_words: Mapping[str, int],
    ) -> None:
        self._forward, self._backward = forward, backward
        self._source_words, self._target_words = source_words, target_words

    @classmethod
    def fit(
        cls, pairs: Sequence[TextPair], *, iterations: int = 5, report: Callable[[str], object] = lambda line: None
    ) -> Self:
        """Return the aligner of pairs, of 200,000 at most; the same pairs always give the same aligner.

        `report` is called with a line about each iteration. Raises `ValueError` where no pair has words on both sides.
        """
        chosen = pairs[:: -(-len(pairs) // _MOST_PAIRS)] if pairs else pairs
        source_words: dict[str, int] = {}
        target_words: dict[str, int] = {}
        numbered = [
            (
                [source_words.setdefault(word, len(source_words) + 1) for word in _spellings(source)],
                [target_words.setdefault(word, len(target_words) + 1) for word in _spellings(target)],
            )
            for source, target in chosen
        ]
        turned = [(target, source) for source, target in numbered]

        def fitted(direction: str, some: Sequence[WordPair]) -> DiagonalModel:
            words = max(1, sum(len(target) for _, target in some))

            def reported(number: int, likelihood: float) -> None:
                perplexity = np.exp(-likelihood / words)
                report(f"word alignment, {direction}, iteration {number} of {iterations}: perplexity {perplexity:.1f}")

            return DiagonalModel.fit(some, iterations=iterations, report=reported)

        forward, backward = fitted("source to target", numbered), fitted("target to source", turned)
        return cls(forward, backward, source_words, target_words)

    def links(self, pairs: Sequence[TextPair]) -> list[NDArray[np.bool_]]:
        """Return which target word is linked with which source word, of each pair `[N, M]`.

        Words are those of `models.text.words.words_of`; unseen ones are linked where they are spelled the same.
        """
        ours, theirs = ([_spellings(pair[side]) for pair in pairs] for side in (0, 1))
        source_lengths, target_lengths = (np.array([len(words) for words in side]) for side in (ours, theirs))
        source, target = _padded(ours, self._source_words), _padded(theirs, self._target_words)
        joint: dict[str, int] = {}
        for words in itertools.chain(ours, theirs):
            for word in words:
                joint.setdefault(word, len(joint) + 1)
        one, other = _padded(ours, joint), _padded(theirs, joint)
        same = (one[:, None, :] == other[:, :, None]) & (one > 0)[:, None, :]
        forward = self._forward.best(source, target, source_lengths, target_lengths, same)
        backward = self._backward.best(target, source, target_lengths, source_lengths, same.transpose(0, 2, 1))
        linked = forward[:, :, None] == np.arange(1, source.shape[1] + 1)
        linked &= backward[:, None, :] == np.arange(1, target.shape[1] + 1)[:, None]
        sizes = zip(linked, target_lengths.tolist(), source_lengths.tolist(), strict=True)
        return [each[:rows, :columns] for each, rows, columns in sizes]


def _spellings(text: str) -> list[str]:
    """Return the words of a text, case folded."""
    return [text[start:end].casefold() for start, end in words_of(text)]


def _padded(texts: Sequence[Sequence[str]], numbers: Mapping[str, int]) -> Ids:
    """Return the numbers of words, 0 where unknown and where padded: `[B, M]`, `M` being at least 1."""
    found = np.zeros((len(texts), max(1, *map(len, texts))), np.int64)
    for row, words in enumerate(texts):
        found[row, : len(words)] = [numbers.get(word, 0) for word in words]
    return found
