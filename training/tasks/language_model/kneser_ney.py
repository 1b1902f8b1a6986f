"""N-gram models with modified Kneser-Ney smoothing (Chen and Goodman 1998), interpolated down to uniform words.

    p_n(w | h) = max(0, c(h w) - D_c(h w)) / c(h) + gamma(h) p_(n-1)(w | h without its first word)

`c` is the number of occurrences for the highest order, and that of different words before for the others. The discounts
`D_1`, `D_2`, `D_3+` of an order follow from the numbers of n-grams that occur once to four times, and `gamma(h)` is the
share that the discounts left.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["KneserNey"]

_START = -1
"""Stands before the first word of a text."""


class KneserNey:
    """An n-gram model of words that are numbers below the size of the vocabulary."""

    def __init__(self, texts: Iterable[Sequence[int]], vocab_size: int, order: int = 5) -> None:
        """Each text ends in a word of its own, such as that of the sentence's end, which is predicted too."""
        self._vocab_size, self._order = vocab_size, order
        counts: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(order)]
        for words in texts:
            for gram in _grams(words, order):
                counts[-1][gram] += 1
        for n in range(order - 1, 0, -1):  # counts of different words before
            counts[n - 1].update(gram[1:] for gram in counts[n])
        self._counts = counts
        self._discounts = [_discounts(each.values()) for each in counts]
        self._totals: list[dict[tuple[int, ...], int]] = []
        self._left: list[dict[tuple[int, ...], float]] = []
        for each, discounts in zip(counts, self._discounts, strict=True):
            totals: defaultdict[tuple[int, ...], int] = defaultdict(int)
            left: defaultdict[tuple[int, ...], float] = defaultdict(float)
            for gram, count in each.items():
                totals[gram[:-1]] += count
                left[gram[:-1]] += discounts[min(count, 3)]
            self._totals.append(totals)
            self._left.append(left)

    def log_probabilities(self, words: Sequence[int]) -> list[float]:
        """Return the natural logarithm of each word's probability, given those before it in the text."""
        return [math.log(self.probability(gram)) for gram in _grams(words, self._order)]

    def probability(self, gram: Sequence[int]) -> float:
        """Return the probability of the last word after those before it."""
        found = 1.0 / self._vocab_size
        whole = tuple(gram)
        for n in range(1, len(whole) + 1):
            part = whole[-n:]
            total = self._totals[n - 1].get(part[:-1], 0)
            if not total:
                break  # no longer context was seen either
            count = self._counts[n - 1].get(part, 0)
            kept = count - self._discounts[n - 1][min(count, 3)]
            found = (kept + self._left[n - 1][part[:-1]] * found) / total
        return found


def _grams(words: Sequence[int], order: int) -> Iterator[tuple[int, ...]]:
    padded = [_START] * (order - 1) + list(words)
    return (tuple(padded[end - order : end]) for end in range(order, len(padded) + 1))


def _discounts(counts: Iterable[int]) -> tuple[float, float, float, float]:
    """Return the discounts of n-grams that occur 0, 1, 2, and 3 or more times."""
    number = Counter(min(count, 5) for count in counts)
    once, twice, thrice, four = (number[each] for each in (1, 2, 3, 4))
    if not (once and twice):
        return 0.0, 0.5, 0.5, 0.5  # too few n-grams to estimate them from
    share = once / (once + 2 * twice)
    third = 3 - 4 * share * four / thrice if thrice else 3.0
    found = (1 - 2 * share * twice / once, 2 - 3 * share * thrice / twice, third)
    return 0.0, *(min(max(value, 0.1), most) for value, most in zip(found, (1.0, 2.0, 3.0), strict=True))  # type: ignore[return-value]
