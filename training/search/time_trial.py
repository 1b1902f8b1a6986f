"""How long a recipe trains here: a timed trial of a few real steps and one evaluation."""

import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from training.recipe import Recipe
from training.run.directory import RunDirectory
from training.run.loop import Trainer
from training.run.session import open_task, start_run

__all__ = ["TimeTrial", "time_trial"]

_WARM_UP = 3
"""Steps before those that are timed."""
_FEWEST_STEPS, _LONGEST = 40, 3
"""Steps that are timed where they take no longer than so many times the wanted time: batches differ in their length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeTrial:
    """The times that a trial measured, in seconds."""

    preparation: float
    """Reading data, building the vocabulary, loading weights."""
    step: float
    """An update, making its batch included."""
    evaluation: float
    """An evaluation on the development set, with its checkpoint."""
    epoch_steps: int
    """Updates an epoch."""
    metric: str
    """Name of the metric that models are selected by."""
    baselines: Mapping[str, float]
    """What simple methods reach in it on the development set."""
    baselines_time: float
    """Measuring them on the development set and on a test set of the same size."""

    @property
    def epoch(self) -> float:
        """Return the time of an epoch and its evaluation."""
        return self.epoch_steps * self.step + self.evaluation

    @property
    def start(self) -> float:
        """Return the time before the first epoch."""
        return self.preparation + self.baselines_time

    def seconds(self, epochs: int) -> float:
        """Return the expected time of so many epochs."""
        return self.start + epochs * self.epoch

    def epochs_within(self, seconds: float) -> int:
        """Return how many epochs end within a time, at least one."""
        return max(1, int((seconds - self.start) / self.epoch))


def time_trial(recipe: Recipe, data_dir: Path, device: torch.device, *, seconds: float = 8.0) -> TimeTrial:
    """Return the times of a recipe's steps and evaluations, measured for some `seconds` and one evaluation.

    Slow steps are measured for up to three times as long.

    The run of the trial is in a temporary directory. Raises the errors that `training.run.session.train` does.
    """
    started = time.monotonic()
    loop = recipe.loop.model_copy(update={"epochs": 10**6, "patience": 10**6, "evaluate_steps": None, "minutes": None})
    settings = recipe.model_copy(update={"loop": loop, "tune": None})
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself warns
        run = RunDirectory(Path(place) / recipe.name)
        start_run(settings, run, data_dir)
        torch.manual_seed(settings.seed)
        task = open_task(settings, run, data_dir, device)
        trainer = Trainer(task, run, loop)
        trainer.fit(_quiet, _WARM_UP)
        preparation = time.monotonic() - started
        saving = _time_of_steps(trainer, 0)  # each session loads a first batch and saves a checkpoint
        count, spent = 0, 0.0
        while spent < seconds or (count < _FEWEST_STEPS and spent < _LONGEST * seconds):
            wanted = max(5, min(200, int(5 * max(1, count) / spent) if spent else 5))
            count, spent = count + wanted, spent + max(1e-3, _time_of_steps(trainer, wanted) - saving)
        evaluation = time.monotonic()
        task.evaluate(task.batches("dev"))
        evaluation = time.monotonic() - evaluation + saving
        fitting = time.monotonic()
        methods = task.baselines()
        measuring = time.monotonic()
        baselines = {name: metric("dev") for name, metric in methods.items()}
        return TimeTrial(
            preparation=preparation,
            step=spent / count,
            evaluation=evaluation,
            epoch_steps=-(-len(task.batches("train")) // loop.accumulate),
            metric=task.metric,
            baselines=baselines,
            baselines_time=measuring - fitting + 2 * (time.monotonic() - measuring),
        )


def _time_of_steps(trainer: Trainer, steps: int) -> float:
    """Return the time of a session of so many steps, in seconds."""
    started = time.monotonic()
    trainer.fit(_quiet, steps)
    return time.monotonic() - started


def _quiet(line: str) -> None:
    del line
