"""Word error rates: edit distances between hypotheses and references, in words that white space separates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ListErrors", "WordErrors", "edit_distance", "list_errors"]


def edit_distance(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Return the least number of substitutions, insertions and deletions that turn one sequence into the other.

    Bit-parallel: a step for each word of the hypothesis updates a whole column of the table of distances, whose
    vertical differences (+1 and -1) are the bits of two integers (Hyyrö 2003, "A bit-vector algorithm for computing
    Levenshtein and Damerau edit distances", figure 3).
    """
    if not reference:
        return len(hypothesis)
    places: dict[str, int] = {}
    for place, word in enumerate(reference):
        places[word] = places.get(word, 0) | 1 << place
    distance = len(reference)
    every, last = (1 << distance) - 1, 1 << (distance - 1)
    increases, decreases = every, 0  # vertical differences of the column
    for word in hypothesis:
        equal = places.get(word, 0)
        diagonal = (((equal & increases) + increases) ^ increases) | equal | decreases
        right_increases = (decreases | ~(diagonal | increases)) & every
        right_decreases = increases & diagonal
        distance += bool(right_increases & last) - bool(right_decreases & last)
        right_increases, right_decreases = right_increases << 1 | 1, right_decreases << 1
        increases = (right_decreases | ~(diagonal | right_increases)) & every
        decreases = right_increases & diagonal & every
    return distance


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Edit distances, summed over utterances."""

    errors: int = 0
    """Substitutions, insertions and deletions."""
    words: int = 0
    """Words of the references."""

    @property
    def rate(self) -> float:
        """Return the word error rate, a fraction, which may exceed 1; not a number without words of references."""
        return self.errors / self.words if self.words else math.nan

    def __add__(self, other: "WordErrors") -> "WordErrors":
        return WordErrors(self.errors + other.errors, self.words + other.words)


@dataclass(frozen=True, slots=True)
class ListErrors:
    """Word errors before and after rescoring, summed over lists."""

    first_pass: WordErrors = WordErrors()
    """Errors of the hypotheses with the best score in the first pass."""
    rescored: WordErrors = WordErrors()
    """Errors of the hypotheses that rescoring ranks first."""
    oracle: WordErrors = WordErrors()
    """Errors of the hypotheses closest to the references: no ranking has fewer."""

    def __add__(self, other: "ListErrors") -> "ListErrors":
        return ListErrors(
            self.first_pass + other.first_pass, self.rescored + other.rescored, self.oracle + other.oracle
        )


def list_errors(reference: str, texts: Sequence[str], first: int, best: int) -> ListErrors:
    """Return the word errors of one list.

    `first` and `best` are the places of the best hypothesis before and after rescoring.
    """
    words = reference.split()
    distances = [edit_distance(words, text.split()) for text in texts]
    chosen = (distances[first], distances[best], min(distances))
    return ListErrors(*(WordErrors(errors, len(words)) for errors in chosen))
