"""Statistics of a table's rows: means over seeds, differences from the first row, rank correlation with the paper."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.search.tables.definitions import Table
from training.search.tables.records import Result

__all__ = ["Correlation", "Mean", "RowSummary", "correlation", "spearman", "summarize"]

_LEAST_ROWS = 6
"""The page has no rank correlation of fewer rows, of which hardly any is significant."""
_PERMUTATIONS = 20_000


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of some numbers and their spread."""

    value: float
    deviation: float | None
    """Sample standard deviation, None for a single number."""
    count: int
    low: float
    high: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> "Mean | None":
        """Return None without numbers."""
        if not numbers:
            return None
        deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
        return cls(statistics.fmean(numbers), deviation, len(numbers), min(numbers), max(numbers))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the mean by Student's t distribution, None for a single number."""
        return self.interval_at(0.95)

    def interval_at(self, confidence: float) -> tuple[float, float] | None:
        """Return the interval of the mean that has a `confidence` between 0 and 1, None for a single number."""
        if self.deviation is None:
            return None
        from scipy.stats import t

        width = float(t.ppf((1 + confidence) / 2, self.count - 1)) * self.deviation / math.sqrt(self.count)
        return self.value - width, self.value + width


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSummary:
    """A row over its seeds."""

    row: str
    paper: float | None
    test: Mean | None
    """The table's metric on its test split; None where no seed finished."""
    further: Sequence[Mean | None]
    """The table's further metrics on its test split."""
    dev: Mean | None
    """The best validation metric of the seeds that finished."""
    difference: Mean | None
    """The test metric minus that of the table's first row with the same seed; None for the first row itself and a row
    that did not learn."""
    interval: tuple[float, float] | None
    """95 % confidence interval of the difference over seeds, where there are several."""
    over_examples: tuple[float, float] | None
    """95 % bootstrap interval of the difference over test examples, where there is one seed."""
    parameters: int | None
    """Parameters of the whole model; None where no seed finished."""
    results: Sequence[Result]
    """All results of the row, those that failed or diverged too."""

    @property
    def learned(self) -> bool:
        """Return whether the validation metric changed from one evaluation to another in each training."""
        return not any(_is_constant(each) for each in self.results)


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rank correlation of the rows with the paper."""

    value: float
    rows: int
    p: float
    """Two-sided, by random permutations."""


def summarize(table: Table, found: Mapping[tuple[str, int], Result]) -> list[RowSummary]:
    """Return a summary of each row, in the unit of the page."""
    summaries, first = [], next(iter(table.rows))
    tests = {key: table.scale * each.test[table.metric] for key, each in found.items() if each.status == "finished"}
    for name, row in table.rows.items():
        results = [found[name, seed] for seed in table.seeds if (name, seed) in found]
        finished = [each for each in results if each.status == "finished"]
        dev = [table.scale * each.dev for each in finished if each.dev is not None]
        pairs = [
            (tests[name, seed], tests[first, seed])
            for seed in table.seeds
            if {(name, seed), (first, seed)} <= set(tests)
        ]
        compared = name != first and not any(map(_is_constant, results))
        difference = Mean.of([own - other for own, other in pairs]) if compared else None
        summary = RowSummary(
            row=name,
            paper=row.paper,
            test=Mean.of([tests[name, each.seed] for each in finished]),
            further=[
                Mean.of([table.scale * each.test[metric] for each in finished if metric in each.test])
                for metric in table.further_metrics
            ],
            dev=Mean.of(dev),
            difference=difference,
            interval=None if difference is None else difference.interval,
            over_examples=None
            if difference is None or len(pairs) > 1
            else _over_examples(table, finished, pairs[0][1]),
            parameters=finished[0].parameters if finished else None,
            results=results,
        )
        summaries.append(summary)
    return summaries


def _is_constant(result: Result) -> bool:
    metrics = [point.metric for point in result.curve]
    return len(metrics) > 1 and len(set(metrics)) == 1


def _over_examples(table: Table, finished: Sequence[Result], reference: float) -> tuple[float, float] | None:
    """Return the interval relative to that metric of the first row, in the unit of the page."""
    for interval in (each.interval for each in finished if each.interval is not None):
        if math.isclose(table.scale * interval.reference, reference, rel_tol=1e-4):
            return table.scale * interval.low, table.scale * interval.high
    return None


def correlation(summaries: Sequence[RowSummary]) -> Correlation | None:
    """Return the rank correlation of the means with the paper's numbers over the rows that have both.

    None for fewer than six rows, or if all rows of a side are equal.
    """
    pairs = [(each.test.value, each.paper) for each in summaries if each.test is not None and each.paper is not None]
    if len(pairs) < _LEAST_ROWS:
        return None
    from scipy.stats import permutation_test, rankdata

    ours, papers = ([pair[side] for pair in pairs] for side in (0, 1))
    value = spearman(ours, papers)
    if math.isnan(value):
        return None
    test = permutation_test(
        (rankdata(ours),),
        lambda ranks, axis: (ranks * rankdata(papers)).sum(axis),  # grows with the correlation
        permutation_type="pairings",
        n_resamples=_PERMUTATIONS,
        rng=np.random.default_rng(0),
    )
    return Correlation(value, len(pairs), float(test.pvalue))


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation of pairs of numbers; equal ones share their mean rank. NaN for constants."""
    from scipy.stats import rankdata

    try:
        return statistics.correlation(list(rankdata(first)), list(rankdata(second)))
    except statistics.StatisticsError:
        return math.nan
