"""The findings of the comparison tables: rows better or worse than the first row, and whether training had ended."""

from collections.abc import Iterable, Sequence
from typing import Literal

from training.search.tables.definitions import Table
from training.search.tables.summary import RowSummary

__all__ = ["findings", "standing", "verdict_of"]

Verdict = Literal["better", "worse", "undecided", "one seed"]

_ABOUT = """\
## Findings

A row is better or worse than the first row of its table where the 95 % confidence interval of the difference, over at
least two seeds, does not contain 0; otherwise the difference is undecided. An asterisk marks differences whose interval
does not contain 0 at a confidence by Bonferroni's correction either, which divides the 5 % of error by the number of
compared rows. A training had ended where a later evaluation was no better than the best one: the order of rows that
were still improving says nothing about longer trainings."""

_HEADER = (
    "question",
    "metric",
    "compared with",
    "better",
    "worse",
    "undecided",
    "one seed",
    "trainings that had ended",
)


def findings(tables: Iterable[tuple[Table, Sequence[RowSummary]]]) -> str:
    """Return a section in Markdown with a line for each table that has differences of rows."""
    lines = [_line(table, summaries) for table, summaries in tables if _compared(summaries)]
    if not lines:
        return ""
    rows = [_HEADER, ["---"] * len(_HEADER), *lines]
    return f"{_ABOUT}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows)


def verdict_of(summary: RowSummary, *, maximize: bool, confidence: float = 0.95) -> Verdict:
    """Return how a row compares with the first one; `confidence` is that of the interval of the difference."""
    difference = summary.difference
    if difference is None or (interval := difference.interval_at(confidence)) is None:
        return "one seed"
    low, high = interval
    if low <= 0 <= high:
        return "undecided"
    return "better" if (low > 0) == maximize else "worse"


def standing(table: Table, summaries: Sequence[RowSummary]) -> list[str]:
    """Return a line for each row that has a difference from the first one: its interval, and how it compares."""
    lines = []
    for each in _compared(summaries):
        assert each.difference is not None
        verdict, count = verdict_of(each, maximize=table.maximize), each.difference.count
        seeds = f", {count} of {len(table.seeds)} seeds" if count > 1 else ""
        lines.append(f"{each.row} {_difference(table, each)}: {verdict}{seeds}")
    return lines


def _compared(summaries: Sequence[RowSummary]) -> list[RowSummary]:
    return [each for each in summaries if each.difference is not None]


def _line(table: Table, summaries: Sequence[RowSummary]) -> Sequence[str]:
    compared = _compared(summaries)
    found: dict[Verdict, list[str]] = {"better": [], "worse": [], "undecided": [], "one seed": []}
    for each in compared:
        verdict = verdict_of(each, maximize=table.maximize)
        corrected = verdict_of(each, maximize=table.maximize, confidence=1 - 0.05 / len(compared))
        found[verdict].append(_named(table, each, verdict, certain=corrected == verdict))
    results = [each for summary in summaries for each in summary.results if each.status == "finished"]
    ended = sum(each.ended(maximize=table.maximize) for each in results)
    first = next(iter(table.rows))
    anchor = "".join(letter for letter in table.title.lower() if letter.isalnum() or letter in " -").replace(" ", "-")
    question = f"{table.question} [{table.title}](#{anchor})"
    unit = f" × {table.scale:g}" if table.scale != 1 else ""
    metric = f"{table.metric}{unit}, {'larger' if table.maximize else 'smaller'} is better"
    cells = ("; ".join(found[verdict]) for verdict in ("better", "worse", "undecided", "one seed"))
    return question, metric, f"`{first}`", *cells, f"{ended} of {len(results)}"


def _named(table: Table, summary: RowSummary, verdict: Verdict, *, certain: bool) -> str:
    """Return a row's name, with the difference and its interval where the row is better or worse."""
    if verdict not in {"better", "worse"}:
        return f"`{summary.row}`"
    return f"`{summary.row}` {_difference(table, summary)}{' *' if certain else ''}"


def _difference(table: Table, summary: RowSummary) -> str:
    """Return the difference from the first row, with its interval over seeds where there is one."""
    assert summary.difference is not None
    value, digits = f"{summary.difference.value:+.{table.digits}f}", table.digits
    if summary.interval is None:
        return value
    low, high = summary.interval
    return f"{value} [{low:+.{digits}f}, {high:+.{digits}f}]"
