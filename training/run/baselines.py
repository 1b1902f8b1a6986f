"""Baselines of a run: metrics of simple methods on its data, kept in its directory and shown next to its own."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from training.run.directory import Evaluation, Progress
from training.run.paths import RunPaths
from training.tasks.task import Task

__all__ = ["Baseline", "best_baseline", "read_baselines", "verdict", "write_baselines"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """The metric of a simple method on the splits that a model is selected and judged by."""

    name: str
    dev: float
    test: float


def write_baselines(run: RunPaths, task: Task[Any], report: Callable[[str], object]) -> None:
    """Measure the task's baselines on dev and test, report them, and keep them in the run directory."""
    started = time.monotonic()
    if methods := task.baselines():
        report("measuring what simple methods reach on the data")
    found = []
    for name, metric in methods.items():
        found.append(Baseline(name=name, dev=metric("dev"), test=metric("test")))
        report(f"baseline {name}: dev {task.metric} {found[-1].dev:.3f}")
    if methods:
        report(f"baselines took {time.monotonic() - started:.0f} s")
    run.baselines.write_text(json.dumps([asdict(each) for each in found], indent=2), encoding="utf-8")


def read_baselines(run: RunPaths) -> list[Baseline]:
    """Return what `write_baselines` kept; none where it did not."""
    if not run.baselines.is_file():
        return []
    return [Baseline(**each) for each in json.loads(run.baselines.read_text(encoding="utf-8"))]


def best_baseline(run: RunPaths, *, maximize: bool) -> Baseline | None:
    """Return the baseline that is best on the development set."""
    return (max if maximize else min)(read_baselines(run), key=lambda each: each.dev, default=None)


def verdict(run: RunPaths, progress: Progress, metric: str) -> str | None:
    """Return a line for a run whose best model is behind the best baseline, with the likely cause."""
    baseline, best = best_baseline(run, maximize=progress.maximize), progress.best
    if baseline is None or best is None:
        return None
    behind = best.metric < baseline.dev if progress.maximize else best.metric > baseline.dev
    if not behind:
        return None
    return (
        f"behind {baseline.name}, which has dev {metric} {baseline.dev:.3f} against {best.metric:.3f}; "
        f"{_likely_cause(progress.history, best)}"
    )


def _likely_cause(history: Sequence[Evaluation], best: Evaluation) -> str:
    if len(history) > 1 and history[-1].train_loss > 0.98 * history[0].train_loss:
        return "the training loss has hardly fallen: try another loop.learning_rate, or more loop.warmup_steps"
    if best is history[-1]:
        return "it was still improving: more loop.epochs, with --restart, continue to improve it"
    return (
        "it was better before, while the training loss went on falling: overfitting, against which more texts, more "
        "dropout, a smaller network or a pretrained one help"
    )
