"""The training loop: updates, evaluations, checkpoints that resume exactly, early stopping.

Several processes may run it together (`training.run.distributed`); only the first writes and reports.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from training.data.batching import TensorBatch
from training.data.loading import load
from training.recipe import LoopSettings
from training.run import checkpoint
from training.run.baselines import best_baseline
from training.run.directory import Evaluation, Progress, RunDirectory, end_of_training
from training.run.distributed import ALONE, Group
from training.run.interruption import Interrupted, SignalHold
from training.run.optimization import Optimization, resolved_precision, scheduled_updates
from training.run.progress import RunProgress
from training.run.snapshots import Snapshots
from training.tasks.task import Task

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["Trainer"]

_BOARD_STEPS = 50
"""Steps between two events of TensorBoard, and on a GPU between two readings of the loss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Session:
    """One call of `Trainer.fit`: when it stops, and where it reports."""

    stop_at: float
    """The step to stop at."""
    report: Callable[[str], None]
    on_evaluation: Callable[[Evaluation], None] | None
    signals: SignalHold
    shown: RunProgress
    board: "SummaryWriter | None"
    """The writer of TensorBoard events; only the first process has one."""


class Trainer:
    """Trains a task in a run directory, from its last checkpoint if there is one."""

    def __init__(self, task: Task[Any], run: RunDirectory, settings: LoopSettings, group: Group = ALONE) -> None:
        """The processes of a `group` must see the same run directory and start from the same weights.

        Raises `ValueError` for a precision that the task's device does not train in, and for averaged weights of a
        network with batch normalization, whose running statistics are not theirs (Izmailov et al. 2018).
        """
        if settings.average > 1 and any(isinstance(each, nn.BatchNorm2d) for each in task.model.modules()):
            raise ValueError("loop.average: weights of a network with batch normalization cannot be averaged")
        self.task = task
        task.group = group
        self.run = run
        self.settings = settings
        self.group = group
        self.progress = Progress(maximize=task.maximize)
        self._snapshots = Snapshots(settings.average)
        self._train = task.batches("train")
        self._dev = task.batches("dev")
        self._epoch_updates = math.ceil(len(self._train) / settings.accumulate)
        self._optimization = Optimization(task.model, settings, task.device, epoch_updates=self._epoch_updates)
        if settings.compile:
            task.model.compile()
        self._losses: list[Tensor] = []
        """Summed loss of this process in each step since they were last read."""
        self._started = time.monotonic()
        """When training had begun if all sessions had followed each other."""
        self._targets = 0
        """Targets of the last step, of all processes."""
        self._read_steps = 1 if task.device.type == "cpu" else _BOARD_STEPS
        """Steps between two readings of losses, which wait for the device."""

    def fit(
        self,
        report: Callable[[str], None] = print,
        stop_after: int | None = None,
        on_evaluation: Callable[[Evaluation], None] | None = None,
    ) -> Progress:
        """Train to the last epoch or step, or until patience ends; `stop_after` ends this session after so many steps.

        `on_evaluation` is called after each evaluation, once it is saved; an exception of it ends the
        training. SIGINT and SIGTERM save a checkpoint and raise `Interrupted`, which says so.
        """
        self._start(report)
        self._started = time.monotonic() - self.progress.wall_seconds
        shown = self._shown(report, stop_after)
        quiet = contextlib.nullcontext()
        with SignalHold() as signals, self._board() as board, shown.shown() if self.group.is_first else quiet:
            session = _Session(
                stop_at=math.inf if stop_after is None else self.progress.step + stop_after,
                report=report,
                on_evaluation=on_evaluation,
                signals=signals,
                shown=shown,
                board=board,
            )
            while not self._ended():
                if not self._train_epoch(session):
                    self._save()
                    break
                self._evaluate(session, epoch_ended=True)
            self._end_if_interrupted(signals)
            if self.group.is_first and end_of_training(self.progress, self.settings) == "time":
                report(f"ended after {self.progress.step} updates: the time of loop.minutes is used")
        return self.progress

    def _start(self, report: Callable[[str], None]) -> None:
        """Load the last checkpoint, or the parameters that a new run starts from."""
        if self.group.is_first:
            for line in self.run.note_session(resolved_precision(self.settings, self.task.device)):
                report(line)
            updates = scheduled_updates(self._epoch_updates, self.settings)
            if self.settings.average > 1 and updates < self.settings.snapshot_steps:
                report(f"loop.average has no effect: {updates} updates are fewer than loop.snapshot_steps")
        if not self.run.last.is_file():
            if self.run.initial.is_file():
                self.task.model.load_state_dict(checkpoint.load(self.run.initial, self.task.device)["model"])
            else:
                started = self.task.initialize()
                if started is not None and self.group.is_first:
                    report(started)
            return
        processes = self._load()
        ended = self._ended()
        if ended:
            report(f"nothing to train: {self.progress.epoch} of {self.settings.epochs} epochs are trained{ended}")
            return
        place = f"resuming at epoch {self.progress.epoch + 1} of {self.settings.epochs}, step {self.progress.step}"
        other = f", not exactly: in {self.group.size} instead of {processes} processes"
        report(place if processes == self.group.size else place + other)

    def _ended(self) -> str:
        """Return why training has come to its end, an empty string where it has not."""
        progress, most = self.progress, self.settings.max_steps
        match end_of_training(progress, self.settings):
            case "steps":
                return f", and {progress.step} of {most} steps; --restart trains with another loop.max_steps"
            case "time":
                return f", and the time of loop.minutes: {self.settings.minutes:g}, is used; --restart trains longer"
            case "epochs":
                return "; a higher loop.epochs continues"
            case "patience":
                without = progress.evaluations_since_improvement()
                return f", the last {without} evaluations without improvement; a higher loop.patience continues"
            case _:
                return ""

    def _epoch_step(self) -> int:
        """Return the number of steps of this epoch that are done."""
        return math.ceil(self.progress.batch / self.settings.accumulate)

    def _shown(self, report: Callable[[str], None], stop_after: int | None) -> RunProgress:
        shown = RunProgress(
            report,
            epochs=self.settings.epochs,
            epoch_steps=self._epoch_updates,
            epoch=self.progress.epoch,
            step=self._epoch_step(),
        )
        if stop_after is not None:
            shown.limit(stop_after)
        if self.settings.minutes is not None:
            shown.limit_time(60 * self.settings.minutes - self.progress.wall_seconds)
        if self.settings.max_steps is not None:
            shown.limit(self.settings.max_steps - self.progress.step)
        return shown

    def _board(self) -> "contextlib.AbstractContextManager[SummaryWriter | None]":
        """Return the writer of TensorBoard events; only the first process has one."""
        if not self.group.is_first:
            return contextlib.nullcontext()
        from torch.utils.tensorboard import SummaryWriter

        return contextlib.closing(SummaryWriter(str(self.run.path), purge_step=self.progress.step))

    def _train_epoch(self, session: _Session) -> bool:
        """Train to the end of the epoch, with the evaluations inside it; False where training or the session ended."""
        progress, since_save = self.progress, time.monotonic()
        self.task.model.train()
        for batches in self._rest_of_epoch():
            if self._evaluation_due():
                self._evaluate(session, epoch_ended=False)
                self.task.model.train()
            if self._ended() or progress.step >= session.stop_at:
                return False
            norm, rate = self._step(batches), self._optimization.learning_rate
            if progress.step % self._read_steps == 0:
                self._show(session, norm, rate)
            # Clocks and signals differ, and all processes take part in saving.
            due = self.group.is_first and time.monotonic() - since_save > 60 * self.settings.checkpoint_minutes
            if self.group.summed(due or session.signals.number is not None):
                self._save()
                since_save = time.monotonic()
                self._end_if_interrupted(session.signals)
        return True

    def _rest_of_epoch(self) -> Iterator[list[Any]]:
        """Return the batches of each step of the epoch that is not done."""
        progress, workers = self.progress, self.settings.workers
        batches = load(self._train, progress.epoch, first=progress.batch, workers=workers, device=self.task.device)
        return iter(lambda: list(itertools.islice(batches, self.settings.accumulate)), [])

    def _evaluation_due(self) -> bool:
        """Return whether the model is to be evaluated inside an epoch, and has not been."""
        step, every, most = self.progress.step, self.settings.evaluate_steps, self.settings.max_steps
        due = (every is not None and step > 0 and step % every == 0) or (most is not None and step >= most)
        return (due or self._optimization.time_used >= 1) and not self.progress.evaluated

    def _end_if_interrupted(self, signals: SignalHold) -> None:
        """Raise `Interrupted` if any process got a signal; the state must be saved."""
        numbers = [number for number in self.group.gathered(signals.number) if number is not None]
        if numbers:
            epoch = min(self.progress.epoch + 1, self.settings.epochs)
            place = f"epoch {epoch} of {self.settings.epochs}, step {self.progress.step}"
            raise Interrupted(numbers[0], f"interrupted; {place} is saved in {self.run.path}: the same command resumes")

    def _step(self, batches: Sequence[Any]) -> Tensor:
        """Make one update by the mean loss over all targets of the batches; return the norm of its gradients."""
        progress = self.progress
        with self._timed():
            self._optimization.zero_grad()
            losses, divisor, self._targets = [], 0, 0
            for batch in batches:
                loss, count = self._backward(self.group.share(batch), divisor)
                losses.append(loss)
                divisor, self._targets = divisor or max(1, count), self._targets + count
            self.group.sum_gradients(self.task.model.parameters())
            self._note_time()
            norm = self._optimization.step(divisor / max(1, self._targets))
            self._losses.append(torch.stack(losses).sum())
        progress.loss_count += self._targets
        progress.step += 1
        progress.batch += len(batches)
        if self.settings.average > 1 and progress.step % self.settings.snapshot_steps == 0:
            self._snapshots.take(self.task.model)
        return norm

    def _note_time(self) -> None:
        """Note the time of all sessions; of several processes, whose clocks differ, that of the first counts."""
        if self.settings.minutes is not None:
            self.progress.wall_seconds = self.group.from_first(time.monotonic() - self._started)
            self._optimization.time_used = self.progress.time_used(self.settings)

    def _backward(self, batch: Any | None, divisor: int) -> tuple[Tensor, int]:
        """Add the gradients of the batch's summed loss over `divisor`, or over its number of targets with 0.

        Returns this process's summed loss, and the number of targets of all processes.
        """
        if batch is None:
            return torch.zeros((), device=self.task.device), int(self.group.summed(0))
        if isinstance(batch, TensorBatch):
            batch = batch.to(self.task.device)
        with self._optimization.autocast():
            total, own = self.task.loss(batch)
        count = int(self.group.summed(own))
        self._optimization.backward(total / (divisor or max(1, count)))
        return total.detach(), count

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the time within the block as training."""
        started, used = time.monotonic(), time.process_time()
        yield
        self.progress.seconds += time.monotonic() - started
        self.progress.processor_seconds += time.process_time() - used

    def _read_losses(self) -> float:
        """Add the losses of steps since the last call to the progress, and return the last one.

        Raises `FloatingPointError` naming the first step whose loss is no finite number.
        """
        progress, loss = self.progress, math.nan
        if self._losses:
            with self._timed():
                losses = self.group.summed_each(torch.stack(self._losses).tolist())
            for step, loss in enumerate(losses, progress.step - len(losses)):
                if not math.isfinite(loss):
                    raise FloatingPointError(f"the loss is {loss} at step {step}; try a lower learning_rate")
                progress.loss_sum += loss
            self._losses.clear()
        return loss

    def _show(self, session: _Session, norm: Tensor, rate: float) -> None:
        """Show a step: its loss, the norm of its gradients, and the learning rate of the next."""
        progress, loss = self.progress, self._read_losses() / max(1, self._targets)
        speed = progress.targets_per_second
        session.shown.step(progress.epoch, self._epoch_step(), loss, rate, speed)
        if session.board is not None and progress.step % _BOARD_STEPS == 0:
            values = {"loss": loss, "learning_rate": rate, "gradient_norm": float(norm), "targets_per_second": speed}
            for name, value in values.items():
                session.board.add_scalar(f"train/{name}", value, progress.step)

    def _evaluate(self, session: _Session, *, epoch_ended: bool) -> None:
        """Evaluate on the development set, keep the model if it is the best so far, and save a checkpoint."""
        self._read_losses()
        session.shown.evaluating()
        progress, started = self.progress, time.monotonic()
        metric, weights = self._measured(session.signals)
        evaluation = Evaluation(
            epoch=progress.epoch + 1,
            step=progress.step,
            train_loss=progress.loss_sum / max(1, progress.loss_count),
            metric=metric,
            seconds=progress.seconds,
            processor_seconds=progress.processor_seconds,
        )
        progress.history.append(evaluation)
        progress.loss_sum, progress.loss_count = 0.0, 0
        if epoch_ended:
            progress.epoch, progress.batch = progress.epoch + 1, 0
        if session.board is not None:
            session.board.add_scalar(f"dev/{self.task.metric}", metric, progress.step)
            others = ""
            if (baseline := best_baseline(self.run, maximize=self.task.maximize)) is not None:
                session.board.add_scalar(f"dev/{self.task.metric}, {baseline.name}", baseline.dev, progress.step)
                others = f" ({baseline.name} {baseline.dev:.3f})"
            session.report(
                f"epoch {evaluation.epoch}{'' if epoch_ended else f', step {progress.step}'}: "
                f"train loss {evaluation.train_loss:.4f}, dev {self.task.metric} {metric:.3f}{others}, "
                f"{progress.seconds:.0f} s of training"
            )
            if progress.best is evaluation:
                self.run.write_best(weights)
            self.run.write_history(progress)
        progress.evaluation_seconds = self.group.from_first(time.monotonic() - started)
        self._note_time()
        self._save()
        if session.on_evaluation is not None:
            session.on_evaluation(evaluation)

    def _measured(self, signals: SignalHold) -> tuple[float, dict[str, Tensor]]:
        """Return the metric on the development set and the weights that have it, the mean of snapshots with `average`.

        A signal ends the evaluation of a single process at once: it changes nothing, and is repeated when resumed.
        """
        own, alone = self._own_state(), self.group.size == 1
        try:
            with self._snapshots.averaged(self.task.model):
                with signals.released() if alone else contextlib.nullcontext():
                    value = self.task.evaluate(self._dev).value
                weights = {name: value.clone() for name, value in self.task.model.state_dict().items()}
                return self.group.from_first(value), weights
        except Interrupted as interrupted:
            if signals.number is None:
                signals.number = interrupted.number
                self._restore(own)
                self._save()
                self._end_if_interrupted(signals)
            raise

    def _own_state(self) -> dict[str, Any]:
        """Return what differs between the processes of a group."""
        return {"task": self.task.state_dict(), "random": checkpoint.random_state(self.task.device)}

    def _restore(self, own: dict[str, Any]) -> None:
        self.task.load_state_dict(own["task"])
        checkpoint.set_random_state(own["random"], self.task.device)

    def _save(self) -> None:
        self._read_losses()
        first, *others = self.group.gathered(self._own_state())
        if not self.group.is_first:
            return
        content = {
            **first,
            **self._optimization.state_dict(),
            "others": others,
            "model": self.task.model.state_dict(),
            "snapshots": self._snapshots.state(),
            "progress": asdict(self.progress),
        }
        checkpoint.save(self.run.last, content)

    def _load(self) -> int:
        """Load the last checkpoint, and return the number of processes that wrote it.

        With another number now, resuming is not exact: the state of the task is lost, since it is that of other rows of
        the batches, and processes without a random state start from the seed.
        """
        content = checkpoint.load(self.run.last, self.task.device)
        self.task.model.load_state_dict(content["model"])
        self._optimization.load_state_dict(content)
        self._snapshots.load(content.get("snapshots", []))
        history = [Evaluation(**evaluation) for evaluation in content["progress"].pop("history")]
        self.progress = Progress(**content["progress"], history=history)
        states, rank = [content, *content.get("others", [])], self.group.rank
        if len(states) == self.group.size:
            self._restore(states[rank])
        elif rank < len(states):
            checkpoint.set_random_state(states[rank]["random"], self.task.device)
        else:
            torch.manual_seed(self.task.recipe.seed + rank)
        return len(states)
