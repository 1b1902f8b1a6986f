"""The training loop: one optimizer, one schedule, checkpoints that resume exactly, early stopping.

Several processes may run it together (`training.distributed`); only the first evaluates, writes and reports.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from training import checkpoint
from training.checkpoint import Evaluation, Progress, RunDirectory
from training.distributed import Group
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
        total = len(self._train) * settings.epochs
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
        training.
        """
        if self.run.last.is_file():
            self._load()
            report(f"resuming at epoch {self.progress.epoch + 1}, step {self.progress.step}")
        else:
            self.task.initialize()
        stop_at = math.inf if stop_after is None else self.progress.step + stop_after
        with self._board() as board:
            epochs, patience = self.settings.epochs, self.settings.patience
            while self.progress.epoch < epochs and self.progress.evaluations_since_best() < patience:
                if not self._train_epoch(stop_at, board):
                    self._save()
                    break
                self._evaluate(board, report)
                self._save()
                if on_evaluation is not None:
                    on_evaluation(self.progress.history[-1])
        return self.progress

    def _board(self) -> contextlib.AbstractContextManager[SummaryWriter | None]:
        """Return the writer of TensorBoard events; only the first process has one."""
        if not self.group.is_first:
            return contextlib.nullcontext()
        return contextlib.closing(SummaryWriter(str(self.run.path), purge_step=self.progress.step))

    def _train_epoch(self, stop_at: float, board: SummaryWriter | None) -> bool:
        """Trains to the end of the epoch; False where `stop_at` came first."""
        progress, since_save = self.progress, time.monotonic()
        self.task.model.train()
        with _bar(progress.epoch, len(self._train), progress.batch, shown=self.group.is_first) as advance:
            for index, batch in enumerate(self._train.epoch(progress.epoch)):
                if index < progress.batch:
                    continue
                if progress.step >= stop_at:
                    return False
                loss = self._step(batch)
                advance(loss, float(self._schedule.get_last_lr()[0]))
                if board is not None and progress.step % 50 == 0:
                    board.add_scalar("train/loss", loss, progress.step)
                    board.add_scalar("train/learning_rate", self._schedule.get_last_lr()[0], progress.step)
                # Clocks differ, and all processes take part in saving.
                if self.group.from_first(time.monotonic() - since_save > 60 * self.settings.checkpoint_minutes):
                    self._save()
                    since_save = time.monotonic()
        return True

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

    def _evaluate(self, board: SummaryWriter | None, report: Callable[[str], None]) -> None:
        """End an epoch: evaluate on the development set, and keep the model if it is the best so far."""
        progress = self.progress
        with self._snapshots.averaged(self.task.model):
            value = self.task.evaluate(self._dev).value if self.group.is_first else math.nan
            metric = self.group.from_first(value)
            weights = {name: value.clone() for name, value in self.task.model.state_dict().items()}
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

    def _autocast(self) -> contextlib.AbstractContextManager[None]:
        wanted = self.settings.precision
        enabled = wanted == "bfloat16" or (wanted == "auto" and native_bfloat16(self.task.device))
        return torch.autocast(self.task.device.type, dtype=torch.bfloat16, enabled=enabled)

    def _save(self) -> None:
        own = {"task": self.task.state_dict(), "random": checkpoint.random_state(self.task.device)}
        first, *others = self.group.gathered(own)
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
        own = states[self.group.rank]
        self.task.model.load_state_dict(content["model"])
        self.task.load_state_dict(own["task"])
        self._optimizer.load_state_dict(content["optimizer"])
        self._schedule.load_state_dict(content["schedule"])
        self._snapshots.load(content.get("snapshots", []))
        history = [Evaluation(**evaluation) for evaluation in content["progress"].pop("history")]
        self.progress = Progress(**content["progress"], history=history)
        checkpoint.set_random_state(own["random"], self.task.device)


@contextlib.contextmanager
def _bar(epoch: int, total: int, completed: int, *, shown: bool) -> Iterator[Callable[[float, float], None]]:
    """Show a progress bar for one epoch; the yielded function advances it by a batch."""
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  lr {task.fields[rate]:.2e}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, transient=True, disable=not shown) as bar:
        task: TaskID = bar.add_task("", total=total, completed=completed, epoch=epoch + 1, loss=math.nan, rate=0.0)
        yield lambda loss, rate: bar.update(task, advance=1, loss=loss, rate=rate)
