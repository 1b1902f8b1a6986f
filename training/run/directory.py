"""Run directories: the recipe, the checkpoints and the history of a training."""

import json
import math
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor

from training.data.identity import SplitIdentity
from training.recipe import LoopSettings, Recipe
from training.recipe.loading import load_recipe
from training.run import checkpoint
from training.run.paths import RunPaths

__all__ = ["Evaluation", "Progress", "RunDirectory", "TrainedData", "end_of_training", "git_revision"]


_MADE = ("training/results/*.jsonl", "docs/results.md", "docs/figures/results-*.svg")
"""Files that `softserve-train table` writes: rows that are trained after others have the same revision."""


def git_revision() -> str:
    """Return the commit of the code, `-dirty` appended where files differ, or `unknown` outside a checkout.

    The results of tables may differ.
    """
    others = [f":(top,exclude){pattern}" for pattern in _MADE]
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        differ = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", *others)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}-dirty" if differ else commit


def _git(*arguments: str) -> str:
    call = ["git", *arguments]
    return subprocess.run(call, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout.strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """One evaluation on the development set."""

    epoch: int
    step: int
    train_loss: float
    """Mean loss a target since the last evaluation (nats)."""
    metric: float
    seconds: float
    """Training time so far, over all sessions of the run."""
    processor_seconds: float = 0.0
    """Time of this process on processors in that time; 0 in runs of earlier versions."""


@dataclass(kw_only=True, slots=True)
class Progress:
    """Progress of a run. `epoch` and `batch` name the next batch."""

    maximize: bool = False
    """Whether a larger metric is better."""
    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    wall_seconds: float = 0.0
    """Time of all sessions, batches, evaluations and checkpoints included."""
    evaluation_seconds: float = 0.0
    """Time of the last evaluation."""
    loss_sum: float = 0.0
    """Summed training loss since the last evaluation."""
    loss_count: int = 0
    history: list[Evaluation] = field(default_factory=list)

    @property
    def best(self) -> Evaluation | None:
        """The evaluation with the best metric; of equal ones the last, which was trained longer; NaN is the worst."""
        sign = -1 if self.maximize else 1

        def badness(evaluation: Evaluation) -> tuple[bool, float]:
            return math.isnan(evaluation.metric), sign * evaluation.metric

        return min(reversed(self.history), key=badness, default=None)

    @property
    def evaluated(self) -> bool:
        """Return whether the model of the last step has been evaluated."""
        return bool(self.history) and self.history[-1].step == self.step

    @property
    def targets_per_second(self) -> float:
        """Return the targets trained on in a second since the last evaluation."""
        seconds = self.seconds - (self.history[-1].seconds if self.history else 0.0)
        return self.loss_count / seconds if seconds > 0 else 0.0

    def time_used(self, loop: LoopSettings) -> float:
        """Return the fraction of `loop.minutes` that is used with one more evaluation, 0 without a limit."""
        return 0.0 if loop.minutes is None else (self.wall_seconds + self.evaluation_seconds) / (60 * loop.minutes)

    def evaluations_since_improvement(self) -> int:
        """Return the number of evaluations since one had a better metric than all before it."""
        metrics = [evaluation.metric for evaluation in self.history]
        if self.best is None:
            return 0
        return len(metrics) if math.isnan(self.best.metric) else len(metrics) - 1 - metrics.index(self.best.metric)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedData:
    """A version of the data that a run was trained on."""

    splits: Mapping[str, SplitIdentity]
    epochs: int | None = None
    """Epochs that were trained on it; None for the version of the last session."""


def end_of_training(progress: Progress, loop: LoopSettings) -> Literal["", "steps", "time", "epochs", "patience"]:
    """Return what ended the training of a run, an empty text where it has not ended."""
    if loop.max_steps is not None and progress.step >= loop.max_steps and progress.evaluated:
        return "steps"
    if progress.time_used(loop) >= 1 and progress.evaluated:
        return "time"
    if progress.epoch >= loop.epochs:
        return "epochs"
    return "patience" if progress.evaluations_since_improvement() >= loop.patience else ""


class RunDirectory(RunPaths):
    """`runs/<name>/`: recipe, tokenizer, provenance, command, last.pt, best.pt, history.json, TensorBoard events.

    `data.json` has the identity of the data, see `training.data.identity`. `best.safetensors` has the weights of
    best.pt in a format that other programs read.
    """

    def recipe(self, overrides: Sequence[str] = ()) -> Recipe:
        """Return the resolved recipe of the run, with overrides such as `export.version=2`.

        Raises `FileNotFoundError` where `path` holds no run, and the errors of `load_recipe`.
        """
        file = self.path / "recipe.yaml"
        if not file.is_file():
            wrong = "is not a run directory (no recipe.yaml)" if self.path.is_dir() else "does not exist"
            others = sorted(each.parent.name for each in self.path.parent.glob("*/recipe.yaml"))
            there = f"; runs in {self.path.parent}: {', '.join(others)}" if others else ""
            raise FileNotFoundError(f"{self.path} {wrong}{there}")
        return load_recipe(file, overrides)

    def write_command(self, recipe: Path, overrides: Sequence[str]) -> None:
        """Note the file of the recipe and the overrides that the run was started or continued with."""
        content = {"recipe": str(recipe.resolve()), "overrides": list(overrides)}
        (self.path / "command.json").write_text(json.dumps(content, indent=2), encoding="utf-8")

    def command(self) -> tuple[str, list[str]] | None:
        """Return what `write_command` noted, None where it did not."""
        file = self.path / "command.json"
        if not file.is_file():
            return None
        content = json.loads(file.read_text(encoding="utf-8"))
        return content["recipe"], content["overrides"]

    @property
    def started(self) -> bool:
        """Return whether there is a checkpoint that training continues from."""
        return self.last.is_file() or self.initial.is_file()

    def write_data(self, versions: Sequence[TrainedData]) -> None:
        """Note the versions of the data, the one of the coming session last."""
        _write_text(self.path / "data.json", json.dumps([asdict(version) for version in versions], indent=2))

    def data(self) -> list[TrainedData]:
        """Return what `write_data` noted, nothing for runs of versions that did not."""
        file = self.path / "data.json"
        if not file.is_file():
            return []
        return [
            TrainedData(
                splits={name: SplitIdentity(**split) for name, split in version["splits"].items()},
                epochs=version["epochs"],
            )
            for version in json.loads(file.read_text(encoding="utf-8"))
        ]

    def provenance(self) -> dict[str, str]:
        """Return `git_revision`, `torch` and `precision`; values of sessions that differ are separated by commas."""
        content: dict[str, str] = json.loads((self.path / "provenance.json").read_text())
        return content

    def note_session(self, precision: str) -> list[str]:
        """Note revision, torch and precision of a session; return a line for each that differs from the last's."""
        file = self.path / "provenance.json"
        noted = self.provenance()
        changes = []
        for name, value in {"git_revision": git_revision(), "torch": torch.__version__, "precision": precision}.items():
            last = noted.get(name, value).rpartition(", ")[2]
            if last != value:
                changes.append(f"{name} was {last}, is {value}: the run is not exactly one of a single session")
            noted[name] = f"{noted[name]}, {value}" if last != value else noted.get(name, value)
        file.write_text(json.dumps(noted, indent=2))
        return changes

    def training_seconds(self) -> float:
        """Return the training time up to the last evaluation."""
        return float(self._history()[-1]["seconds"])

    def trained_epochs(self) -> int:
        """Return the number of epochs that have been evaluated, or partly trained and evaluated inside."""
        return int(self._history()[-1]["epoch"]) if (self.path / "history.json").is_file() else 0

    def history(self) -> list[Evaluation]:
        """Return the evaluations so far; none before the first one."""
        return [Evaluation(**each) for each in self._history()] if (self.path / "history.json").is_file() else []

    def _history(self) -> list[dict[str, Any]]:
        content: list[dict[str, Any]] = json.loads((self.path / "history.json").read_text())
        return content

    def progress(self, *, maximize: bool) -> Progress:
        """Return the progress of the last checkpoint, or where that was removed, of the last evaluation."""
        history = self.history()
        if self.last.is_file():
            content = checkpoint.load(self.last, torch.device("cpu"), mapped=True)["progress"]
            return Progress(**content | {"history": history})
        last = history[-1]
        return Progress(
            maximize=maximize,
            epoch=last.epoch,
            step=last.step,
            seconds=last.seconds,
            processor_seconds=last.processor_seconds,
            history=history,
        )

    def clear(self) -> None:
        """Remove the directory of an earlier run; raises `FileExistsError` for one that holds something else."""
        if not self.path.is_dir():
            return
        if any(self.path.iterdir()) and not (self.path / "recipe.yaml").is_file():
            raise FileExistsError(f"{self.path} is there and holds no run: give the recipe another name, or --runs")
        shutil.rmtree(self.path)

    def start(self, recipe: Recipe) -> None:
        """Write the resolved recipe and the revision of the code."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_recipe(recipe)
        provenance = {"git_revision": git_revision(), "torch": torch.__version__}
        (self.path / "provenance.json").write_text(json.dumps(provenance, indent=2))

    def write_recipe(self, recipe: Recipe) -> None:
        _write_text(self.path / "recipe.yaml", yaml.safe_dump(recipe.model_dump(), sort_keys=False))

    def write_best(self, weights: Mapping[str, Tensor]) -> None:
        """Write the weights of the best evaluation, none of which may share memory with another."""
        checkpoint.save(self.best, {"model": dict(weights)})
        whole = {name: value.contiguous() for name, value in weights.items()}
        checkpoint.replace_file(self.best_weights, lambda temporary: save_file(whole, temporary))

    def write_history(self, progress: Progress) -> None:
        _write_text(self.path / "history.json", json.dumps([asdict(e) for e in progress.history], indent=2))


def _write_text(path: Path, text: str) -> None:
    checkpoint.replace_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
