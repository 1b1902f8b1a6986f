"""Compare the time of an update with float32 and with bfloat16 products.

    python -m benchmarks.training_step --recipe training/recipes/next-word-lstm.yaml --data-dir DIR

Both models start from the same weights and see the same batches, interleaved; medians and their ratio are printed, and
the mean training loss of each. On a processor without bfloat16 products the comparison is that of an emulation.
"""

import dataclasses
import itertools
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import tyro

from benchmarks.timing import medians_of
from training.data.batching import TensorBatch
from training.device import choose_device, native_bfloat16
from training.recipe import Recipe
from training.recipe.loading import load_recipe
from training.recipe.overrides import Overrides
from training.run.directory import RunDirectory
from training.run.optimization import Optimization
from training.run.session import open_task, start_run, use_threads
from training.search.tables.records import processor
from training.tasks.task import Task

__all__ = ["Options", "main", "measure"]


@dataclasses.dataclass(kw_only=True, slots=True)
class Options:
    """The recipe whose updates are compared, and how many are measured."""

    recipe: Path
    data_dir: Path = Path("data")
    overrides: Overrides = ()
    """Changes of the recipe's fields."""
    updates: int = 60
    """Updates of each side, after one to warm up."""
    threads: int | None = None
    """Threads of the CPU; without it torch's default."""
    device: str = "cpu"
    """`cuda` for a GPU."""


@dataclasses.dataclass(slots=True)
class _Side:
    """A model in training, the batches left to it, and its losses."""

    task: Task[Any]
    optimization: Optimization
    batches: Iterator[Any]
    losses: list[float] = dataclasses.field(default_factory=list)

    def update(self) -> None:
        self.optimization.zero_grad()
        batch = next(self.batches)
        if isinstance(batch, TensorBatch):
            batch = batch.to(self.task.device)
        with self.optimization.autocast():
            total, count = self.task.loss(batch)
        self.optimization.backward(total / count)
        self.optimization.step()
        self.losses.append(float(total.detach()) / count)


def _side(recipe: Recipe, directory: Path, data_dir: Path, device: torch.device) -> _Side:
    run = RunDirectory(directory / recipe.loop.precision)
    start_run(recipe, run, data_dir)
    torch.manual_seed(recipe.seed)
    task = open_task(recipe, run, data_dir, device)
    task.model.train()
    batches = task.batches("train")
    optimization = Optimization(task.model, recipe.loop, task.device, epoch_updates=len(batches))
    return _Side(task, optimization, itertools.chain.from_iterable(map(batches.epoch, itertools.count())))


def measure(options: Options) -> Mapping[str, tuple[float, float]]:
    """Return the median seconds of an update and the mean training loss for each precision."""
    use_threads(options.threads)
    device, sides = choose_device(options.device), dict[str, _Side]()
    with tempfile.TemporaryDirectory() as directory:
        for name in ("float32", "bfloat16"):
            recipe = load_recipe(options.recipe, [*options.overrides, f"loop.precision={name}"])
            sides[name] = _side(recipe, Path(directory), options.data_dir, device)
    medians = medians_of({name: side.update for name, side in sides.items()}, options.updates)
    return {name: (medians[name], statistics.mean(side.losses)) for name, side in sides.items()}


def main(options: Options) -> None:
    found, device = measure(options), choose_device(options.device)
    native = "native" if native_bfloat16(device) else "emulated"
    print(f"{processor(device)}, {torch.get_num_threads()} threads, bfloat16 {native}")
    for name, (seconds, loss) in found.items():
        speed = found["float32"][0] / seconds
        time_and_speed = f"{1000 * seconds:8.1f} ms an update, {speed:5.2f} x float32's speed"
        print(f"{name:<9} {time_and_speed}, mean loss {loss:.4f}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
