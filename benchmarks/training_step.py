"""Compare the time of an update with float32 and with bfloat16 products.

    python -m benchmarks.training_step --recipe training/recipes/next-word.yaml --data-dir DIR

Both models start from the same weights and see the same batches, interleaved; medians and their ratio are printed, and
the mean training loss of each. On a processor without bfloat16 products the comparison is that of an emulation.
"""

import dataclasses
import itertools
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import tyro

from training.device import native_bfloat16
from training.optimization import Optimization
from training.overrides import Overrides
from training.recipe import Recipe, load_recipe
from training.run_directory import RunDirectory
from training.running import use_threads
from training.tasks.task import Task
from training.trained import open_task, start_run


@dataclasses.dataclass(kw_only=True, slots=True)
class Options:
    """Which updates, and how many."""

    recipe: Path
    data_dir: Path = Path("data")
    overrides: Overrides = ()
    """Changes of the recipe's fields."""
    updates: int = 60
    """Updates of each side, after 5 to warm up."""
    threads: int | None = None
    """Threads of the CPU; without it torch's default."""


@dataclasses.dataclass(slots=True)
class _Side:
    """A model in training, the seconds of its updates and their losses."""

    task: Task[Any]
    optimization: Optimization
    seconds: list[float] = dataclasses.field(default_factory=list)
    losses: list[float] = dataclasses.field(default_factory=list)

    def update(self, batch: Any) -> None:
        started = time.perf_counter()
        self.optimization.zero_grad()
        with self.optimization.autocast():
            total, count = self.task.loss(batch)
        self.optimization.backward(total / count)
        self.optimization.step()
        self.losses.append(float(total.detach()) / count)
        self.seconds.append(time.perf_counter() - started)


def _side(recipe: Recipe, precision: str, directory: Path, data_dir: Path) -> _Side:
    recipe = recipe.model_copy(update={"loop": recipe.loop.model_copy(update={"precision": precision})})
    run = RunDirectory(directory / precision)
    start_run(recipe, run, data_dir)
    torch.manual_seed(recipe.seed)
    task = open_task(recipe, run, data_dir, torch.device("cpu"))
    task.model.train()
    return _Side(task, Optimization(task.model, recipe.loop, task.device, epoch_updates=len(task.batches("train"))))


def main(options: Options) -> None:
    use_threads(options.threads)
    recipe = load_recipe(options.recipe, options.overrides)
    native = "native" if native_bfloat16(torch.device("cpu")) else "emulated"
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, bfloat16 {native}")
    with tempfile.TemporaryDirectory() as directory:
        sides = {name: _side(recipe, name, Path(directory), options.data_dir) for name in ("float32", "bfloat16")}
    warmup = 5
    for batch in itertools.islice(sides["float32"].task.batches("train").epoch(0), warmup + options.updates):
        for side in sides.values():
            side.update(batch)
    medians = {name: statistics.median(side.seconds[warmup:]) for name, side in sides.items()}
    for name, side in sides.items():
        loss = statistics.mean(side.losses[warmup:])
        ratio = medians["float32"] / medians[name]
        time_and_speed = f"{1000 * medians[name]:8.1f} ms an update, {ratio:5.2f} x float32's speed"
        print(f"{name:<9} {time_and_speed}, mean loss {loss:.4f}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
