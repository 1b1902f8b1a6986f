"""Trained trials of a grid compared on a split: mean and spread over seeds."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.recipe import Value, is_number
from training.search.analyses.tables import Cell, Rows
from training.search.tune import TrialResult

__all__ = ["Measured", "grid_rows", "groups_of", "losses_of", "metrics_of", "name_of", "shown_rows"]

SEED = "seed"
"""The field whose values are repetitions of the same thing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A trial and its metrics on a split."""

    result: TrialResult
    metrics: Mapping[str, float]
    losses: Sequence[float]
    """Training loss of each epoch, or between the evaluations of a run that has several in an epoch."""


def groups_of(trials: Sequence[Measured]) -> list[tuple[dict[str, Value], list[Measured]]]:
    """Return the trials of equal settings, the seed aside; numbers in order, after other values."""
    paths = [path for path in trials[0].result.values if path != SEED]
    groups: dict[tuple[Value, ...], list[Measured]] = {}
    for trial in trials:
        groups.setdefault(tuple(trial.result.values[path] for path in paths), []).append(trial)
    ordered = sorted(groups, key=lambda values: [_rank(value) for value in values])
    return [(dict(zip(paths, values, strict=True)), groups[values]) for values in ordered]


def _rank(value: Value) -> tuple[bool, float, str]:
    return is_number(value), float(value) if is_number(value) else 0.0, str(value)


def grid_rows(trials: Sequence[Measured]) -> Rows:
    """Return a row for each setting: mean over seeds of each metric, and sample standard deviation where possible."""
    assert trials
    names = metrics_of(trials)
    paths = [path for path in trials[0].result.values if path != SEED]
    rows = Rows([*paths, "seeds", *(column for name in names for column in (name, f"{name} +-"))])
    for values, group in groups_of(trials):
        cells: list[Cell] = [*values.values(), len(group)]
        for name in names:
            found = [trial.metrics[name] for trial in group if name in trial.metrics]
            cells += [statistics.fmean(found) if found else None, statistics.stdev(found) if len(found) > 1 else None]
        rows.add(cells)
    return rows


def shown_rows(trials: Sequence[Measured]) -> Rows:
    """Return a row for each metric and a column for each setting: `grid_rows`, short enough for a terminal."""
    groups = groups_of(trials)
    rows = Rows(["", *(name_of(values) for values, _ in groups)])
    rows.add(["seeds", *(len(group) for _, group in groups)])
    for name in metrics_of(trials):
        found = [[trial.metrics[name] for trial in group if name in trial.metrics] for _, group in groups]
        rows.add([name, *(_mean(values) for values in found)])
    return rows


def metrics_of(trials: Sequence[Measured]) -> list[str]:
    """Return the names of all metrics; language models with and without `sparse_k` have different ones."""
    return list(dict.fromkeys(name for trial in trials for name in trial.metrics))


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4g}{spread}"


def name_of(values: Mapping[str, Value]) -> str:
    """Return the name of a setting in tables and plots."""
    parts = ((path.rpartition(".")[2], value) for path, value in values.items())
    return ", ".join(f"without {name}" if value is None else f"{name} = {value}" for name, value in parts) or "all"


def losses_of(history: Path) -> list[float]:
    """Return the training loss before each evaluation, from a run's history."""
    return [float(each["train_loss"]) for each in json.loads(history.read_text(encoding="utf-8"))]
