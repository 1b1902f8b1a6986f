"""The report of the results in Markdown, as it goes into docs/how-to/gpu.md."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu.goals import GOALS, verdict
from benchmarks.gpu.parts import PART_ROW
from benchmarks.gpu.results import Result

__all__ = ["report"]

_TITLES = {
    "tests": "Device tests",
    "process": "In process",
    "http": "Through HTTP",
    "steps": "Parts of a batch or decoding",
    "peers": "Other libraries, in process",
    "servers": "Other servers",
    "costs": "Fitted cost of batches",
    "losses": "Losses of output layers, ms",
    "training": "Training steps",
}
"""Heading of each part."""
_HEADINGS = {
    "per_second": "per second",
    "requests_per_second": "requests/s",
    "texts_per_second": "texts/s",
    "tokens_per_second": "tokens/s",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "batch_items_mean": "texts per batch",
    "batch_items_p99": "p99",
    "queue_ms_mean": "queue, ms",
    "tokenize_ms_mean": "tokenization, ms",
    "inference_ms_mean": "inference, ms",
    "padding_ratio_mean": "padding",
    "client_processor_share": "client's processor",
    "device_busy_percent": "device busy, %",
    "memory_before_mb": "memory before, MB",
    "memory_most_mb": "at most, MB",
    "memory_after_mb": "after, MB",
}
"""Heading of a value; that of others is their name."""


def report(
    found: Mapping[tuple[str, str], Result], parts: Sequence[str], machine: Mapping[str, str], *, on_gpu: bool
) -> str:
    """Return a table for each part, the goals, and the rows without values with the reason."""
    lines = [", ".join(f"{name}: {value}" for name, value in machine.items())]
    for part in parts:
        rows = [each for (name, row), each in found.items() if name == part and row != PART_ROW]
        lines += ["", f"**{_TITLES[part]}**", "", *_tables([each for each in rows if each.status == "measured"])]
    lines += ["", "**Goals**", "", "| goal | required | result |", "| --- | --- | --- |"]
    for goal in GOALS:
        bound = f"at least {goal.least:,g}" if goal.least is not None else f"at most {goal.most:,g}"
        lines.append(f"| {goal.name} | {bound} {goal.unit}".rstrip() + f" | {verdict(goal, found, on_gpu=on_gpu)} |")
    without = [each for each in found.values() if each.status != "measured" and each.part in parts]
    lines += ["", "**Not measured**", ""] if without else []
    lines += [f"* {_TITLES[each.part]}, {each.row}: {each.status}; {each.reason}" for each in without]
    return "\n".join(lines)


def _tables(rows: Sequence[Result]) -> Iterator[str]:
    """Yield a table for each set of columns."""
    if not rows:
        yield "Nothing was measured."
    flat = [(each.row, _flat(each.values)) for each in rows]
    for columns in dict.fromkeys(tuple(values) for _, values in flat):
        yield f"| measured | {' | '.join(_HEADINGS.get(name, name) for name in columns)} |"
        yield f"| --- |{' --- |' * len(columns)}"
        for row, values in flat:
            if tuple(values) == columns:
                yield f"| {row} | {' | '.join(map(_shown, values.values()))} |"
        yield ""


def _flat(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return values of which those of operations, which are mappings, become columns of one name each."""
    nested = {name: value for name, value in values.items() if isinstance(value, dict) and "fixed_ms" in value}
    found = {name: value for name, value in values.items() if name not in nested}
    for name, terms in nested.items():
        found |= {f"{name}: {term}": value for term, value in terms.items() if term != "errors"}
    return found


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
