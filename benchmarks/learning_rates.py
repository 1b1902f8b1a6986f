"""Whether a search of the learning rate would pay: the best development metric at multiples of what `new` writes.

    python -m benchmarks.learning_rates --data-dir data                  # some minutes a training

The data are those of `benchmarks.own_data`; nothing but `loop.learning_rate` differs between the columns. No test set
is looked at. A learning-rate range test, or any search before the training, can gain at most the difference between
the column `x 1` and the best one.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import tyro
import yaml

from benchmarks.own_data import ROWS

_ROWS = ("book", "Banking77, 3,000 texts", "200 texts in 10 classes", "1,000 images in 10 classes")
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def main(data_dir: Path = Path("data"), only: tuple[str, ...] = _ROWS, factors: tuple[float, ...] = _FACTORS) -> None:
    """Print a Markdown table.

    Args:
        data_dir: Directory that holds the corpora.
        only: Names of the rows of `benchmarks.own_data`.
        factors: What the learning rate of the recipe is multiplied by.
    """
    print(f"| data | learning rate | {' | '.join(f'x {factor:g}' for factor in factors)} |")
    print("| --- " * (2 + len(factors)) + "|")
    for name in only:
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary)
            row = ROWS[name]
            row.write(place, data_dir)
            kind, file, *options = row.new
            _call(place, "new", kind, file, "--name", "own", "--data-dir", ".", *options)
            rate = float(yaml.safe_load((place / "own.yaml").read_text(encoding="utf-8"))["loop"]["learning_rate"])
            found = [f"{_best(place, rate * factor):.4g}" for factor in factors]
        print(f"| {name} | {rate:g} | {' | '.join(found)} |", flush=True)


def _best(place: Path, rate: float) -> float:
    """Train with a learning rate and return the best metric of the development set."""
    options = ("--restart", "--no-baselines", "--set", f"loop.learning_rate={rate}")
    _call(place, "run", "own.yaml", "--data-dir", ".", *options)
    history = json.loads((place / "runs" / "own" / "history.json").read_text(encoding="utf-8"))
    metrics = [float(each["metric"]) for each in history]
    return min(metrics) if metrics[0] > 1 else max(metrics)  # perplexities lie above 1, shares below


def _call(directory: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "training.cli", *arguments]
    subprocess.run(command, cwd=directory, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    tyro.cli(main)
