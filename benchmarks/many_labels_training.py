"""Measure time and peak memory of training a classifier of very many labels, of `softserve-train run` as a whole.

    python -m benchmarks.many_labels_training              # 10,000 labels, and 100 with as many texts

The texts are generated: each label has three words of its own in order, between words that all labels share. A small
encoder is trained from scratch for an epoch, with baselines, evaluations and checkpoints, in a process of its own. The
memory is its largest resident set, by `wait4`.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tyro

__all__ = ["labelled_texts", "measure"]

_SHARED = ("please", "the", "about", "today", "again", "my", "with", "thanks")
_SYLLABLES = ("ba", "do", "ki", "lu", "me", "no", "pa", "ri", "so", "tu")
_RECIPE = """
name: many-labels
task: text-classification
data: {files: {train: texts.tsv}, max_tokens: 32, batch_tokens: 4096}
network: {hidden_size: HIDDEN, inner_size: INNER, heads: 4, layers: 2, vocab_size: 1000}
loop: {epochs: 1, warmup_steps: 20}
"""


def main(labels: tuple[int, ...] = (100, 10_000), texts: int = 40_000, hidden_size: int = 128) -> None:
    """Print a row for each number of labels.

    Args:
        labels: Numbers of labels.
        texts: Number of texts of all labels together, those of validation and test included.
        hidden_size: Hidden size of the encoder.
    """
    print("| labels | texts | peak memory, MB | seconds |")
    print("| --- | --- | --- | --- |")
    for count in labels:
        with tempfile.TemporaryDirectory() as directory:
            print(measure(count, texts, hidden_size, Path(directory)), flush=True)


def measure(labels: int, texts: int, hidden_size: int, directory: Path) -> str:
    """Train in a process of its own, and return the row; raises `SystemExit` where training fails."""
    recipe = _RECIPE.replace("HIDDEN", str(hidden_size)).replace("INNER", str(4 * hidden_size))
    (directory / "recipe.yaml").write_text(recipe, encoding="utf-8")
    (directory / "texts.tsv").write_text("\n".join(labelled_texts(labels, texts)) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "training.cli", "run", str(directory / "recipe.yaml"), "--device", "cpu"]
    started = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--data-dir", str(directory), "--runs", str(directory / "runs")], stdout=sys.stderr
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"training ended with status {process.returncode}")
    return f"| {labels:,} | {texts:,} | {usage.ru_maxrss / 1e3:.0f} | {time.perf_counter() - started:.0f} |"


def labelled_texts(labels: int, texts: int) -> Iterator[str]:
    """Yield lines of label, tab and text, equally many of each label; each label has three words of its own."""
    generator = np.random.default_rng(0)
    words = [first + second for first in _SYLLABLES for second in _SYLLABLES]
    for number in range(texts):
        label = number % labels
        own = [words[label // 10_000 % 100], words[label // 100 % 100], words[label % 100]]
        before, after = (" ".join(generator.choice(_SHARED, 4)) for _ in range(2))
        yield f"label {label}\t{before} {' '.join(own)} {after}"


if __name__ == "__main__":
    tyro.cli(main)
