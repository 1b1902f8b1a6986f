"""The training loop: one optimizer, one schedule, checkpoints that resume exactly, early stopping.

Several processes may run it together (`training.distributed`); only the first evaluates, writes and reports.
"""

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from training import checkpoint
from training.checkpoint import Evaluation, Progress, RunDirectory
from training.distributed import Group
from training.interruption import Interrupted, SignalHold
from training.progress import RunProgress
from training.recipe import LoopSettings
from training.snapshots import Snapshots
from training.tasks.task import Task

__all__ = ["Trainer", "learning_rate_factor", "native_bfloat16"]


def native_bfloat16(device: torch.device) -> bool:
    """Return whether the device multiplies bfloat16 matrices in hardware; emulation is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def learning_rate_factor(step: int, total: int, settings: LoopSettings) -> float:
    """Return the factor of the learning rate: linear warm-up, then the decay that the settings name.

    `cosine` ends at `final_learning_rate` (Loshchilov and Hutter 2017, eq. 5), `inverse-sqrt` falls with the root of
    the steps (Vaswani et al. 2017, eq. 3).
    """
    if step < settings.warmup_steps:
        return (step + 1) / settings.warmup_steps
    if settings.schedule == "inverse-sqrt":
        return math.sqrt(max(1, settings.warmup_steps) / (step + 1))
    rest = min(1.0, (step - settings.warmup_steps) / max(1, total - settings.warmup_steps))
    low = settings.final_learning_rate
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * rest))


_ALONE = Group()


class Trainer:
    """Trains a task in a run directory, from its last checkpoint if there is one."""

    def __init__(self, task: Task[Any], run: RunDirectory, settings: LoopSettings, group: Group = _ALONE) -> None:
        """The processes of a `group` must see the same run directory and start from the same weights."""
        self.task = task
        self.run = run
        self.settings = settings
        self.group = group
        self.progress = Progress(maximize=task.maximize)
        self._snapshots = Snapshots(settings.average)
        self._train = task.batches("train")
        self._dev = task.batches("dev")
        total = len(self._train) * (settings.schedule_epochs or settings.epochs)
        self._optimizer = torch.optim.AdamW(
            task.model.parameters(),
            lr=settings.learning_rate,
            betas=(0.9, settings.adam_beta2),
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: learning_rate_factor(step, total, settings)
        )

    def fit(
        self,
        report: Callable[[str], None] = print,
        stop_after: int | None = None,
        on_evaluation: Callable[[Evaluation], None] | None = None,
    ) -> Progress:
        """Train to the last epoch or until patience ends; `stop_after` ends this session after that many steps.

        `on_evaluation` is called after each evaluation, once it is saved; an exception of it ends the
        training. SIGINT and SIGTERM save a checkpoint and raise `Interrupted`, which says so.
        """
        self._start(report)
        stop_at = math.inf if stop_after is None else self.progress.step + stop_after
        shown = self._shown(report, stop_after)
        quiet = contextlib.nullcontext()
        with SignalHold() as signals, self._board() as board, shown.shown() if self.group.is_first else quiet:
            while not self._ended():
                if not self._train_epoch(stop_at, board, shown, signals):
                    self._save()
                    break
                shown.evaluating()
                self._evaluate(board, report, signals)
                self._save()
                if on_evaluation is not None:
                    on_evaluation(self.progress.history[-1])
            self._end_if_interrupted(signals)
        return self.progress

    def _start(self, report: Callable[[str], None]) -> None:
        """Load the last checkpoint, or the parameters that a new run starts from."""
        if not self.run.last.is_file():
            self.task.initialize()
            return
        self._load()
        ended = self._ended()
        epochs = f"{self.progress.epoch} of {self.settings.epochs} epochs are trained"
        place = f"resuming at epoch {self.progress.epoch + 1} of {self.settings.epochs}, step {self.progress.step}"
        report(f"nothing to train: {epochs}{ended}" if ended else place)

    def _ended(self) -> str:
        """Return why training has come to its end, an empty string where it has not."""
        if self.progress.epoch >= self.settings.epochs:
            return "; a higher loop.epochs continues"
        without = self.progress.evaluations_since_best()
        if without >= self.settings.patience:
            return f", the last {without} without improvement; a higher loop.patience continues"
        return ""

    def _shown(self, report: Callable[[str], None], stop_after: int | None) -> RunProgress:
        progress = self.progress
        shown = RunProgress(
            report,
            epochs=self.settings.epochs,
            epoch_steps=len(self._train),
            epoch=progress.epoch,
            batch=progress.batch,
        )
        if stop_after is not None:
            shown.limit(stop_after)
        return shown

    def _board(self) -> contextlib.AbstractContextManager[SummaryWriter | None]:
        """Return the writer of TensorBoard events; only the first process has one."""
        if not self.group.is_first:
            return contextlib.nullcontext()
        return contextlib.closing(SummaryWriter(str(self.run.path), purge_step=self.progress.step))

    def _train_epoch(
        self, stop_at: float, board: SummaryWriter | None, shown: RunProgress, signals: SignalHold
    ) -> bool:
        """Trains to the end of the epoch; False where `stop_at` came first."""
        progress, since_save = self.progress, time.monotonic()
        self.task.model.train()
        for index, batch in enumerate(self._train.epoch(progress.epoch)):
            if index < progress.batch:
                continue
            if progress.step >= stop_at:
                return False
            loss, rate = self._step(batch), float(self._schedule.get_last_lr()[0])
            shown.step(progress.epoch, progress.batch, loss, rate)
            if board is not None and progress.step % 50 == 0:
                board.add_scalar("train/loss", loss, progress.step)
                board.add_scalar("train/learning_rate", rate, progress.step)
            # Clocks and signals differ, and all processes take part in saving.
            due = self.group.is_first and time.monotonic() - since_save > 60 * self.settings.checkpoint_minutes
            if self.group.summed(due or signals.number is not None):
                self._save()
                since_save = time.monotonic()
                self._end_if_interrupted(signals)
        return True

    def _end_if_interrupted(self, signals: SignalHold) -> None:
        """Raise `Interrupted` if any process got a signal; the state must be saved."""
        numbers = [number for number in self.group.gathered(signals.number) if number is not None]
        if numbers:
            epoch = min(self.progress.epoch + 1, self.settings.epochs)
            place = f"epoch {epoch} of {self.settings.epochs}, step {self.progress.step}"
            raise Interrupted(numbers[0], f"interrupted; {place} is saved in {self.run.path}: the same command resumes")

    def _step(self, batch: Any) -> float:
        """Make one update, and return the mean loss of a target."""
        progress, started = self.progress, time.monotonic()
        self._optimizer.zero_grad(set_to_none=True)
        own, count = self._backward(self.group.share(batch))
        self.group.sum_gradients(self.task.model.parameters())
        nn.utils.clip_grad_norm_(self.task.model.parameters(), self.settings.clip_norm)
        self._optimizer.step()
        self._schedule.step()
        summed = self.group.summed(float(own))
        if not math.isfinite(summed):
            raise FloatingPointError(f"the loss is {summed} at step {progress.step}; try a lower learning_rate")
        progress.loss_sum += summed
        progress.loss_count += count
        progress.step += 1
        progress.batch += 1
        if self.settings.average > 1 and progress.step % self.settings.snapshot_steps == 0:
            self._snapshots.take(self.task.model)
        progress.seconds += time.monotonic() - started
        return summed / count

    def _backward(self, batch: Any | None) -> tuple[Tensor, int]:
        """Add the batch's gradients; return its summed loss, and the number of targets of all processes."""
        if batch is None:
            return torch.zeros(()), int(self.group.summed(0))
        with self._autocast():
            total, own = self.task.loss(batch)
        count = int(self.group.summed(own))
        (total / count).backward()
        return total.detach(), count

    def _evaluate(self, board: SummaryWriter | None, report: Callable[[str], None], signals: SignalHold) -> None:
        """End an epoch: evaluate on the development set, and keep the model if it is the best so far."""
        progress = self.progress
        metric, weights = self._measured(signals)
        evaluation = Evaluation(
            epoch=progress.epoch + 1,
            step=progress.step,
            train_loss=progress.loss_sum / max(1, progress.loss_count),
            metric=metric,
            seconds=progress.seconds,
        )
        progress.history.append(evaluation)
        progress.epoch, progress.batch, progress.loss_sum, progress.loss_count = progress.epoch + 1, 0, 0.0, 0
        if board is None:
            return
        board.add_scalar(f"dev/{self.task.metric}", metric, progress.step)
        report(
            f"epoch {evaluation.epoch}: train loss {evaluation.train_loss:.4f}, "
            f"dev {self.task.metric} {metric:.3f}, {progress.seconds:.0f} s of training"
        )
        if progress.best is evaluation:
            checkpoint.save(self.run.best, {"model": weights})
        self.run.write_history(progress)

    def _measured(self, signals: SignalHold) -> tuple[float, dict[str, Tensor]]:
        """Return the metric on the development set and the weights that have it, the mean of snapshots with `average`.

        A signal ends the evaluation of a single process at once: it changes nothing, and is repeated when resumed.
        """
        own, alone = self._own_state(), self.group.size == 1
        try:
            with self._snapshots.averaged(self.task.model):
                with signals.released() if alone else contextlib.nullcontext():
                    value = self.task.evaluate(self._dev).value if self.group.is_first else math.nan
                weights = {name: value.clone() for name, value in self.task.model.state_dict().items()}
                return self.group.from_first(value), weights
        except Interrupted as interrupted:
            if signals.number is None:
                signals.number = interrupted.number
                self._restore(own)
                self._save()
                self._end_if_interrupted(signals)
            raise

    def _autocast(self) -> contextlib.AbstractContextManager[None]:
        wanted = self.settings.precision
        enabled = wanted == "bfloat16" or (wanted == "auto" and native_bfloat16(self.task.device))
        return torch.autocast(self.task.device.type, dtype=torch.bfloat16, enabled=enabled)

    def _own_state(self) -> dict[str, Any]:
        """Return what differs between the processes of a group."""
        return {"task": self.task.state_dict(), "random": checkpoint.random_state(self.task.device)}

    def _restore(self, own: dict[str, Any]) -> None:
        self.task.load_state_dict(own["task"])
        checkpoint.set_random_state(own["random"], self.task.device)

    def _save(self) -> None:
        first, *others = self.group.gathered(self._own_state())
        if not self.group.is_first:
            return
        content = {
            **first,
            "others": others,
            "model": self.task.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
            "snapshots": self._snapshots.state(),
            "progress": asdict(self.progress),
        }
        checkpoint.save(self.run.last, content)

    def _load(self) -> None:
        """Load the last checkpoint; raises `ValueError` if resuming exactly takes another number of processes."""
        content = checkpoint.load(self.run.last, self.task.device)
        states = [content, *content.get("others", [])]
        if len(states) != self.group.size:
            raise ValueError(f"{self.run.path} was trained in {len(states)} processes, not {self.group.size}")
        self.task.model.load_state_dict(content["model"])
        self._optimizer.load_state_dict(content["optimizer"])
        self._schedule.load_state_dict(content["schedule"])
        self._snapshots.load(content.get("snapshots", []))
        history = [Evaluation(**evaluation) for evaluation in content["progress"].pop("history")]
        self.progress = Progress(**content["progress"], history=history)
        self._restore(states[self.group.rank])
