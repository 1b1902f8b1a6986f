"""Weights of n-best rescoring with the fewest word errors on lists whose references are known.

Minimum error rate training (Och 2003, "Minimum Error Rate Training in Statistical Machine Translation"). Along a line
through the plane of weights, the total of each hypothesis is a linear function of the position on the line. The best
hypothesis of a list changes only where the upper envelope of these functions has a vertex, so that the number of word
errors is piecewise constant, and each line search is exact. Several line searches from several starting points find
weights (coordinate descent with diagonals), which need not be the best of the whole plane.

Shapes: `L` lists, `H` hypotheses of the longest list, `E` intervals of a line.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.backend import Array
from models.decoding.rescoring import Hypothesis, Weights
from models.decoding.word_errors import edit_distance

__all__ = ["RatedList", "Tuned", "errors_along", "rated_list", "tune"]

LARGEST = 100.0
"""Weights are searched from 0 to this, rewards from -this to this."""
_STARTS = tuple((weight, reward * weight) for weight in (0.1, 0.3, 1.0, 3.0, 10.0) for reward in (0.0, 1.0, 3.0))
"""Words have log-probabilities of some -5; a part of it is compensated for."""
_DIRECTIONS = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, -1.0), (1.0, 3.0))
_MARGIN = 0.05
"""A new position keeps this distance from the ends of its interval, or is in the middle of a smaller one."""
_NARROWEST = 1e-9
"""Narrower intervals are not chosen: rounding could move a position out of them."""
_CHUNK = 1 << 18
"""Hypotheses, padding included, whose totals are computed at a time."""

Point = tuple[float, float]
"""Weight of the log-probability, reward for each word."""


class RatedList(NamedTuple):
    """The hypotheses of an utterance by descending score of the first pass, with their word errors; each `[H]`."""

    scores: Array
    log_probabilities: Array
    """Minus infinity for probability 0."""
    words: Array
    errors: Array


@dataclass(frozen=True, slots=True)
class Tuned:
    """Weights, and the word errors that they leave."""

    weights: Weights
    errors: int


def rated_list(hypotheses: Sequence[Hypothesis], log_probabilities: Sequence[float], reference: str) -> RatedList:
    """Return a list as `tune` takes it."""
    words = reference.split()
    order = sorted(range(len(hypotheses)), key=lambda place: (-hypotheses[place].score, place))
    some = [hypotheses[place] for place in order]
    return RatedList(
        np.array([each.score for each in some], np.float64),
        np.array([log_probabilities[place] for place in order], np.float64),
        np.array([each.words for each in some], np.float64),
        np.array([edit_distance(words, each.text.split()) for each in some], np.int64),
    )


def tune(lists: Sequence[RatedList]) -> Tuned:
    """Return the weights with the fewest word errors that the line searches find, the same for the same lists.

    They never have more errors than the first pass, whose weights, 0 and 0, are returned where none have fewer. Of
    weights with as few errors those of the first starting point count. Raises `ValueError` without lists, and for an
    empty list.
    """
    if not lists or not all(len(each.scores) for each in lists):
        raise ValueError("weights are tuned on one or more lists of one or more hypotheses")
    best = Tuned(Weights(lm_weight=0.0), sum(int(each.errors[0]) for each in lists))
    tables = _tables([_ranked_by_model(each) for each in lists])
    for start in _STARTS:
        point, errors = _descend(tables, start)
        if errors < best.errors:
            best = Tuned(Weights(lm_weight=point[0], length_reward=point[1]), errors)
    return best


def _ranked_by_model(one: RatedList) -> RatedList:
    """Return the hypotheses that can be the best one with a positive weight of the log-probability.

    One of probability 0 can be only where all are; then the score of the first pass decides.
    """
    possible = one.log_probabilities > -math.inf
    if possible.any():
        return RatedList(*(values[possible] for values in one))
    scores, _, words, errors = (values[:1] for values in one)
    return RatedList(scores, np.zeros(1), words, errors)


class _Table(NamedTuple):
    """Lists of similar lengths, padded by hypotheses of score minus infinity; each `[L, H]`."""

    scores: Array
    log_probabilities: Array
    words: Array
    errors: Array

    def totals(self, point: Point) -> Array:
        """Return the totals of all hypotheses, `[L, H]`."""
        weight, reward = point
        return np.asarray(self.scores + weight * self.log_probabilities + reward * self.words)

    def best_errors(self, point: Point) -> int:
        """Return the word errors of the best hypotheses."""
        best = self.totals(point).argmax(axis=1)[:, None]  # the first of equal ones, as the ranking has it
        return int(np.take_along_axis(self.errors, best, axis=1).sum())


def _tables(lists: Sequence[RatedList]) -> list[_Table]:
    ordered = sorted(lists, key=lambda each: len(each.scores))
    tables, end = [], len(ordered)
    while end:
        longest = len(ordered[end - 1].scores)
        start = max(0, end - max(1, _CHUNK // longest))
        some = ordered[start:end]
        fills = (-math.inf, 0.0, 0.0, 0)
        columns = zip(*some, strict=True)
        tables.append(_Table(*(_padded(each, longest, fill) for each, fill in zip(columns, fills, strict=True))))
        end = start
    return tables


def _padded(rows: Sequence[Array], length: int, fill: float) -> Array:
    table = np.full((len(rows), length), fill, rows[0].dtype)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table


def _descend(tables: Sequence[_Table], start: Point) -> tuple[Point, int]:
    """Search along lines from a starting point until no line leads to fewer errors."""
    point, errors = start, sum(table.best_errors(start) for table in tables)
    improved = True
    while improved:
        improved = False
        for direction in (*_DIRECTIONS, point):
            found = _along(point, direction, _chosen(*_line(tables, point, direction)))
            left = sum(table.best_errors(found) for table in tables)
            if left < errors:
                point, errors, improved = found, left, True
    return point, errors


def _along(point: Point, direction: Point, position: float) -> Point:
    weight, reward = (float(value + position * step) for value, step in zip(point, direction, strict=True))
    return min(max(weight, 0.0), LARGEST), min(max(reward, -LARGEST), LARGEST)


def _range(point: Point, direction: Point) -> tuple[float, float]:
    """Return the positions on a line between which weights are in their ranges."""
    low, high = -math.inf, math.inf
    for value, step, least in zip(point, direction, (0.0, -LARGEST), strict=True):
        if step:
            ends = sorted(((least - value) / step, (LARGEST - value) / step))
            low, high = max(low, ends[0]), min(high, ends[1])
    return low, high


def errors_along(lists: Sequence[RatedList], point: Point, direction: Point) -> tuple[Array, Array]:
    """Return the positions between which word errors are constant on a line, `[E + 1]`, and the errors, `[E]`.

    The weights at position `t` are `point + t * direction`, for the positions at which they are in their ranges and the
    weight of the log-probability is positive.
    """
    return _line(_tables([_ranked_by_model(each) for each in lists]), point, direction)


def _line(tables: Sequence[_Table], point: Point, direction: Point) -> tuple[Array, Array]:
    low, high = _range(point, direction)
    start, positions, changes = 0, [np.zeros(0)], [np.zeros(0, np.int64)]
    for table in tables:
        errors, steps = _envelopes(table, point, direction, low)
        start += errors
        for position, change in steps:
            positions.append(position)
            changes.append(change)
    position, change = np.concatenate(positions), np.concatenate(changes)
    inside = position < high
    ends, places = np.unique(position[inside], return_inverse=True)
    change = np.bincount(places, change[inside], len(ends)).astype(np.int64)
    first = int(change[0]) if len(ends) and ends[0] == low else 0
    kept = slice(1, None) if len(ends) and ends[0] == low else slice(None)
    levels = np.concatenate([[start + first], start + first + np.cumsum(change[kept])])
    return np.concatenate([[low], ends[kept], [high]]), levels.astype(np.int64)


def _envelopes(table: _Table, point: Point, direction: Point, low: float) -> tuple[int, Iterator[tuple[Array, Array]]]:
    """Return the word errors at the beginning of a line, and where they change in each list, by how much.

    A step goes from the hypothesis that is the best one to the next one: of those with a larger slope, that whose total
    is the first to be equal.
    """
    heights = table.totals(point)
    slopes = direction[0] * table.log_probabilities + direction[1] * table.words
    at_start = heights + low * slopes
    tied = np.where(at_start == at_start.max(axis=1, keepdims=True), slopes, -math.inf)
    best = tied.argmax(axis=1)

    def steps() -> Iterator[tuple[Array, Array]]:
        rows, current = np.arange(len(best)), best
        while len(rows):
            slope, height = slopes[rows, current][:, None], heights[rows, current][:, None]
            gain = slopes[rows] - slope
            with np.errstate(divide="ignore", invalid="ignore"):
                crossing = np.where(gain > 0, (height - heights[rows]) / gain, math.inf)
            crossing = np.maximum(crossing, low)
            first = crossing.min(axis=1)
            going = first < math.inf
            rows, first, crossing, current = rows[going], first[going], crossing[going], current[going]
            steepest = np.where(crossing == first[:, None], slopes[rows], -math.inf).argmax(axis=1)
            yield first, table.errors[rows, steepest] - table.errors[rows, current]
            current = steepest

    return int(table.errors[np.arange(len(best)), best].sum()), steps()


def _chosen(ends: Array, errors: Array) -> float:
    """Return the position on a line with the fewest errors that is closest to 0, a margin away from where they change.

    `ends` `[E + 1]`, `errors` `[E]`. Neighbouring intervals of as many errors are one.
    """
    wide = np.diff(ends) > _NARROWEST
    least = errors[wide].min()
    chosen, closest = 0.0, math.inf
    place = 0
    while place < len(errors):
        low = ends[place]
        while place < len(errors) and errors[place] == least:
            place += 1
        high = ends[place]
        place += high == low
        if high - low > _NARROWEST:
            margin = min((high - low) / 2, _MARGIN)
            position = min(max(0.0, float(low) + margin), float(high) - margin)
            if abs(position) < closest:
                chosen, closest = position, abs(position)
    return chosen
