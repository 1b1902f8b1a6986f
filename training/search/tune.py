"""Hyperparameter search on the development set, with Optuna: a grid or TPE, resumable, each trial a run of its own."""

import contextlib
import fcntl
import itertools
import json
import math
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import optuna
import torch
from optuna import distributions
from optuna.trial import FrozenTrial, TrialState

from training.recipe import Range, Recipe, TuneSettings, Value, is_number
from training.recipe.dotted_path import differences
from training.run.directory import Evaluation, RunDirectory
from training.run.interruption import Interrupted
from training.run.locking import EXCLUSIVE_NOW, lock
from training.run.loop import Trainer
from training.run.session import open_task, start_run
from training.tasks.registry import TASKS

__all__ = ["Search", "TrialResult", "clear_search"]

_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
_STUDY = "study.db"
_SEARCHING = "searching.lock"
"""Locked, shared, by every process that searches."""
_PRUNING_STARTS_AFTER = 3
"""Complete trials before the median means something."""


class _ImpossibleValues(Exception):
    """Values of one trial that exclude each other."""


optuna.logging.set_verbosity(optuna.logging.WARNING)  # the trainer reports


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialResult:
    """A finished trial."""

    number: int
    values: Mapping[str, Value]
    metric: float
    """The best on the development set; infinitely bad where training diverged, the values exclude each other or a GPU's
    memory does not suffice."""
    pruned: bool
    """Whether it was ended early because others were better."""
    epochs: int
    seconds: float

    @property
    def failed(self) -> bool:
        return math.isinf(self.metric)


class Search:
    """Searches what the `tune` section of a recipe says, in `directory`: `study.db` and a run directory per trial.

    Opening a directory again goes on with its search. Finished trials are kept, and grid points among them are
    not repeated; one that was interrupted counts as failed and is tried again, from its start. Lists in a grid may grow
    between two calls, and so may ranges and `trials`. Several processes can search in one directory at once.
    """

    def __init__(self, recipe: Recipe, directory: Path, data_dir: Path, device: torch.device) -> None:
        """Raises `ValueError` for a recipe without `tune`, or a directory that holds another recipe's search."""
        if recipe.tune is None:
            raise ValueError(f"recipe {recipe.name!r} has no section `tune`, which says what to search")
        self.recipe, self.settings = recipe, recipe.tune
        task = TASKS[recipe.task]
        self.metric, self.maximize = task.metric_of(recipe), task.maximize
        self._worst = -math.inf if self.maximize else math.inf
        self.directory, self._data_dir, self._device = directory, data_dir, device
        self._space = {path: _distribution(self.settings, path) for path in self.settings.parameters}
        directory.mkdir(parents=True, exist_ok=True)
        median = optuna.pruners.MedianPruner(n_startup_trials=_PRUNING_STARTS_AFTER)
        self.study = optuna.create_study(
            storage=f"sqlite:///{directory / _STUDY}",
            study_name=recipe.name,
            load_if_exists=True,
            direction="maximize" if self.maximize else "minimize",
            pruner=median if self.settings.pruning == "median" else optuna.pruners.NopPruner(),
        )
        self._check_same_search()

    @staticmethod
    def exists(directory: Path) -> bool:
        """Return whether a directory holds a search."""
        return (directory / _STUDY).is_file()

    def _check_same_search(self) -> None:
        """Raise `ValueError` if the study is of another recipe, or its values do not fit those of earlier trials."""
        recipe = self.recipe.model_dump_json(exclude={"tune", "export"})
        started = self.study.user_attrs.get("recipe", recipe)
        # Fields that recipes did not have when the search was started have their defaults.
        if type(self.recipe).model_validate_json(started).model_dump_json(exclude={"tune", "export"}) != recipe:
            changed = ", ".join(path for path, _, _ in differences(json.loads(started), json.loads(recipe)))
            raise ValueError(
                f"{self.directory} was started with another recipe, {changed} differ: give it the same --set, or "
                "another name; tune --restart deletes it"
            )
        self.study.set_user_attr("recipe", recipe)
        for trial in self.study.trials:
            for path in self._space.keys() & trial.distributions.keys():
                try:
                    distributions.check_distribution_compatibility(trial.distributions[path], self._space[path])
                except ValueError as error:
                    raise ValueError(
                        f"{self.directory} searched other kinds of values for {path}; tune --restart deletes it"
                    ) from error

    def run(self, report: Callable[[str], None] = print) -> None:
        """Train the trials that are left, besides those that other processes train.

        Raises `Interrupted` on SIGINT and SIGTERM.
        """
        try:
            self._run(report)
        except Interrupted as error:
            message = (
                f"interrupted; the same command continues the search in {self.directory}, the trial from its start"
            )
            raise Interrupted(error.number, message) from None

    def _run(self, report: Callable[[str], None]) -> None:
        with lock(self.directory / _SEARCHING, fcntl.LOCK_SH):
            while (begun := self._begin(report)) is not None:
                trial, held = begun
                with held:
                    values = self._values(trial.params)
                    report(f"trial {trial.number}: " + ", ".join(f"{path} = {value}" for path, value in values.items()))
                    try:
                        self._train(trial, values, report)
                    except BaseException:
                        with self._alone():
                            self._retry(trial, report)
                        raise
                    finally:
                        self._lock_file(trial.number).unlink()

    def _begin(self, report: Callable[[str], None]) -> tuple[optuna.Trial, IO[str]] | None:
        """Return the next trial and the lock that its process holds; None where none is left."""
        with self._alone():
            for running in self.study.get_trials(states=(TrialState.RUNNING,)):
                with contextlib.suppress(BlockingIOError), lock(self._lock_file(running.number), EXCLUSIVE_NOW):
                    self._retry(running, report)  # no process holds its lock: its own has ended
            if not self._prepare_next():
                return None
            trial = self.study.ask(self._space)
            return trial, lock(self._lock_file(trial.number), EXCLUSIVE_NOW)

    def _lock_file(self, number: int) -> Path:
        return self.directory / f"trial-{number}.lock"

    def _alone(self) -> IO[str]:
        """Return a lock under which one process at a time begins and ends trials."""
        return lock(self.directory / "lock", fcntl.LOCK_EX)

    def _retry(self, trial: optuna.Trial | FrozenTrial, report: Callable[[str], None]) -> None:
        """Ends an interrupted trial, and puts its values at the head of the queue."""
        report(f"trial {trial.number} was interrupted")
        self.study.tell(trial.number, state=TrialState.FAIL)
        shutil.rmtree(self.directory / f"trial-{trial.number}", ignore_errors=True)
        if self.settings.sampler == "tpe":  # a grid lists its missing points itself
            self.study.enqueue_trial(trial.params)

    def _prepare_next(self) -> bool:
        """Return whether a trial is left, which the study's next `ask` then returns."""
        begun = self.study.get_trials(states=(*_FINISHED, TrialState.RUNNING))
        # One generator a trial: a search that is interrupted goes on with the values it would have had.
        seed = random.Random(f"{self.recipe.seed}-{len(begun)}").getrandbits(32)
        if self.settings.sampler == "tpe":
            self.study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)  # away from running trials
            return len(begun) < (self.settings.trials or 0)
        done = [self._values(trial.params) for trial in begun]
        left = [point for point in self._grid() if point not in done]
        if left and not self.study.get_trials(states=(TrialState.WAITING,)):
            self.study.enqueue_trial(left[0])
        return bool(left)

    def _grid(self) -> list[dict[str, Value]]:
        """Return the points of the grid to try, shuffled by the seed, so that `trials` takes some from everywhere."""
        lists = [choices for choices in self.settings.parameters.values() if isinstance(choices, list)]
        points = [dict(zip(self.settings.parameters, point, strict=True)) for point in itertools.product(*lists)]
        random.Random(self.recipe.seed).shuffle(points)
        return points[: self.settings.trials]

    def _values(self, drawn: Mapping[str, Value]) -> dict[str, Value]:
        """Return the drawn values as the recipe spells them: Optuna makes a grid's 2 a 2.0."""
        values = {}
        for path, value in drawn.items():
            choices = self.settings.parameters.get(path)
            values[path] = next((one for one in choices if one == value), value) if isinstance(choices, list) else value
        return values

    def _train(self, trial: optuna.Trial, values: Mapping[str, Value], report: Callable[[str], None]) -> None:
        """Trains one trial and tells the study how it went."""
        run = RunDirectory(self.directory / f"trial-{trial.number}")
        shutil.rmtree(run.path, ignore_errors=True)
        metric, state = self._worst, TrialState.COMPLETE
        try:
            metric = self._fit(trial, self._trainer(run, values), report)
        except optuna.TrialPruned:
            state = TrialState.PRUNED
            report(f"trial {trial.number} is worse than the median was and ends here")
        except (_ImpossibleValues, FloatingPointError, OverflowError, torch.OutOfMemoryError) as error:
            report(f"trial {trial.number} failed: {error}")
        run.last.unlink(missing_ok=True)  # three times as large as best.pt, and nothing goes on from it
        with self._alone():
            self.study.tell(trial, None if state is TrialState.PRUNED else metric, state)

    def _fit(self, trial: optuna.Trial, trainer: Trainer, report: Callable[[str], None]) -> float:
        """Return the best metric on the development set; raises `TrialPruned` where other trials were better."""

        def look(evaluation: Evaluation) -> None:
            trial.report(evaluation.metric, len(trainer.progress.history))
            trial.set_user_attr("seconds", evaluation.seconds)
            trial.set_user_attr("epochs", evaluation.epoch)
            if evaluation.epoch < trainer.settings.epochs and trial.should_prune():
                raise optuna.TrialPruned

        progress = trainer.fit(lambda line: report(f"trial {trial.number}, {line}"), on_evaluation=look)
        assert progress.best is not None
        if math.isnan(progress.best.metric):
            raise FloatingPointError(f"the {self.metric} is nan after all evaluations")
        return progress.best.metric

    def _trainer(self, run: RunDirectory, values: Mapping[str, Value]) -> Trainer:
        """Return the trainer of a trial in its new run directory.

        Raises `ValueError` where the recipe cannot be trained without the trial's values either, such as for its data.
        """
        try:
            return self._trainer_of(self.recipe.with_values(values), run)
        except ValueError as error:
            self._check_recipe(str(error))
            raise _ImpossibleValues(error) from error

    def _trainer_of(self, recipe: Recipe, run: RunDirectory) -> Trainer:
        start_run(recipe, run, self._data_dir)
        torch.manual_seed(recipe.seed)
        return Trainer(open_task(recipe, run, self._data_dir, self._device), run, recipe.loop)

    def _check_recipe(self, message: str) -> None:
        """Raise the `ValueError` of the recipe itself, if it has that message."""
        with tempfile.TemporaryDirectory() as directory:
            try:
                self._trainer_of(self.recipe.with_values({}), RunDirectory(Path(directory) / "run"))
            except ValueError as error:
                if str(error) == message:
                    raise

    def num_running(self) -> int:
        """Return the number of trials that other processes train."""
        return len(self.study.get_trials(states=(TrialState.RUNNING,)))

    def results(self) -> list[TrialResult]:
        """Return all finished trials, the best first, pruned ones last."""
        results = [self._result(trial) for trial in self.study.get_trials(states=_FINISHED)]
        sign = -1 if self.maximize else 1
        return sorted(results, key=lambda result: (result.pruned, sign * result.metric, result.number))

    def _result(self, trial: FrozenTrial) -> TrialResult:
        pruned, best = trial.state is TrialState.PRUNED, max if self.maximize else min
        metric = best(trial.intermediate_values.values()) if pruned else trial.value
        assert metric is not None
        return TrialResult(
            number=trial.number,
            values=self._values(trial.params),
            metric=metric,
            pruned=pruned,
            epochs=trial.user_attrs.get("epochs", len(trial.intermediate_values)),
            seconds=trial.user_attrs.get("seconds", 0.0),
        )


def _distribution(settings: TuneSettings, path: str) -> distributions.BaseDistribution:
    """Return the values of one field as a distribution of Optuna."""
    choices = settings.parameters[path]
    if isinstance(choices, Range):
        if choices.integer:
            return distributions.IntDistribution(int(choices.low), int(choices.high), log=choices.log)
        return distributions.FloatDistribution(choices.low, choices.high, log=choices.log)
    numbers = [choice for choice in choices if is_number(choice)]
    if settings.sampler == "grid" and len(numbers) == len(choices):
        # A grid's points are given, not drawn; and unlike categories, an interval may grow from call to call.
        return distributions.FloatDistribution(min(numbers), max(numbers))
    return distributions.CategoricalDistribution(choices)


def clear_search(directory: Path) -> None:
    """Delete a search; raises `ValueError` where a process searches, `FileExistsError` for another directory."""
    if not directory.exists():
        return
    if any(directory.iterdir()) and not Search.exists(directory):
        raise FileExistsError(f"{directory} is there and holds no search: give the recipe another name, or --runs")
    try:
        with lock(directory / _SEARCHING, EXCLUSIVE_NOW):
            shutil.rmtree(directory)
    except BlockingIOError as error:
        raise ValueError(f"another process is searching in {directory}") from error
