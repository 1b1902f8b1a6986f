"""Compare `lin` and a bias with the same layer and a cache of the words before, added after training.

    for name in ptb swda wikitext2; do softserve-train table components-$name --data-dir data; done
    python -m benchmarks.components --data-dir data [--tables components-ptb components-swda]

A cache of constant weight has no parameters and takes no training: both rows of a seed are one trained model.
Sharpness, window and weight of the cache are chosen on the first 50,000 tokens of the validation set with the first
seed, for all seeds; the test set is read once. Texts are read as one stream, in SwDA the history begins with each
dialogue. The interval is that of the paired bootstrap over seeds and over blocks of the test text, 500 tokens each.

Shapes: `T` positions, `d` hidden size, `V` classes.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from torch import Tensor

from training.data.corpora import get_corpus
from training.run.directory import RunDirectory
from training.run.session import load_trained
from training.search.tables.definitions import Table, get_table
from training.search.tables.records import Result, path_of, read
from training.softmax import GeneralizedSoftmax, History
from training.softmax.components import Cache
from training.tasks.language_model import LanguageModelTask

_POSITIONS = 256
"""Positions whose history is held at a time."""
_BLOCK = 500
"""Tokens of a block of the bootstrap."""
_RESAMPLES = 2000
_TUNED = 50_000
"""Tokens of the validation set that the cache is tuned on."""
_THETAS = (0.1, 0.2, 0.4, 0.8, 1.6)
_WINDOWS = (500, 2000)
_WEIGHTS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)


@dataclass(frozen=True, slots=True)
class Text:
    """A text as a model read it."""

    hidden: Tensor
    """`[T, d]`"""
    targets: Tensor
    """`[T]`"""
    first: Tensor
    """`[T]`: the first position of each position's document."""

    def head(self, count: int) -> "Text":
        """Return the first positions."""
        return Text(self.hidden[:count], self.targets[:count], self.first[:count])

    def parts(self, window: int) -> Iterator[tuple[Tensor, Tensor, History]]:
        """Yield hidden states `[1, n, d]`, targets `[1, n]` and the history of some positions at a time."""
        for start in range(0, len(self.targets), _POSITIONS):
            end, before = min(start + _POSITIONS, len(self.targets)), max(0, start - window)
            places, positions = torch.arange(before, end - 1), torch.arange(start, end)[:, None]
            visible = (places < positions) & (places >= self.first[start:end, None])
            history = History(self.targets[None, before : end - 1], self.hidden[None, before:end], visible[None])
            yield self.hidden[None, start:end], self.targets[None, start:end], history


@torch.no_grad()
def _read(task: LanguageModelTask, split: str) -> Text:
    """Return a split as a trained model reads it, in one stream."""
    task.model.eval()
    pairs = [task.context_vectors(batch) for batch in task.batches(split).epoch(0)]
    hidden, targets = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    return Text(hidden, targets, _document_starts(task, split))


def _document_starts(task: LanguageModelTask, split: str) -> Tensor:
    """Return the first position of each position's document, `[T]`: a dialogue of SwDA, else the whole text."""
    lengths = [len(sentence) + 1 for sentence in task._encoded(split)]
    if task.recipe.data.corpus != "swda":
        return torch.zeros(sum(lengths), dtype=torch.long)
    dialogues = list(get_corpus("swda").texts(split, task.data_dir, "dialogue"))
    starts: list[int] = []
    first = 0
    for place, length in enumerate(lengths):
        if place and dialogues[place] != dialogues[place - 1]:
            first = len(starts)
        starts += [first] * length
    return torch.tensor(starts)


def _with_cache(layer: GeneralizedSoftmax, cache: dict[str, Any]) -> GeneralizedSoftmax:
    """Return a layer with the parameters of a trained one and a cache of constant weight."""
    classes, size = layer.weight.shape
    found = GeneralizedSoftmax(classes, size, ["lin", {"name": "cache", **cache}], bias=layer.bias is not None)
    found.load_state_dict(layer.state_dict())
    return found


@torch.no_grad()
def _tuned(layer: GeneralizedSoftmax, text: Text) -> dict[str, Any]:
    """Return theta, window and weight of the cache with the least perplexity on a text."""
    plain = _log_probabilities(layer, text, 0)
    best: tuple[float, dict[str, Any]] = (-np.inf, {})
    for theta, window in itertools.product(_THETAS, _WINDOWS):
        cache = Cache(*layer.weight.shape, theta=theta, window=window)
        parts = [
            (found := cache.distribution(hidden, history))
            .target_log_prob(targets[0])
            .where(found.log_mass > -torch.inf, torch.nan)
            for hidden, targets, history in text.parts(window)
        ]
        cached = torch.cat(parts).double()
        for weight in _WEIGHTS:
            mixed = torch.logaddexp(plain + np.log1p(-weight), cached + np.log(weight))
            total = float(torch.where(cached.isnan(), plain, mixed).sum())
            best = max(best, (total, {"theta": theta, "window": window, "weight": weight}), key=lambda pair: pair[0])
    return best[1]


@torch.no_grad()
def _log_probabilities(layer: GeneralizedSoftmax, text: Text, window: int) -> Tensor:
    """Return the log-probability of every target, float64: `[T]`."""
    return torch.cat(
        [
            layer.target_log_prob(hidden, targets, history=history if layer.reads_history else None)[0]
            for hidden, targets, history in text.parts(window)
        ]
    ).double()


def _interval(differences: NDArray[np.float64], counts: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of the mean difference of a token.

    differences `[seeds, blocks]` are sums over the tokens of a block, whose numbers are counts `[blocks]`.
    """
    generator = np.random.default_rng(0)
    seeds, blocks = differences.shape
    means = []
    for _ in range(_RESAMPLES):
        some, where = generator.integers(seeds, size=seeds), generator.integers(blocks, size=blocks)
        means.append(differences[some][:, where].sum(1).mean() / counts[where].sum())
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _blocks(values: Tensor) -> NDArray[np.float64]:
    return np.array([part.sum().item() for part in values.split(_BLOCK)])


def _compared(table: Table, results: list[Result], runs: Path, data_dir: Path) -> None:
    """Print the rows of a table: the trained models, and the same with a cache."""
    cache: dict[str, Any] = {}
    differences, rows, counts = [], [], np.zeros(0)
    for result in sorted(results, key=lambda each: each.seed):
        task = load_trained(RunDirectory(runs / f"table-{table.name}" / f"lin-{result.seed}"), data_dir, "cpu")
        assert isinstance(task, LanguageModelTask)
        layer = task.model.output_layer
        cache = cache or _tuned(layer, _read(task, "dev").head(_TUNED))
        text = _read(task, "test")
        found, seconds = [], []
        for each in (layer, _with_cache(layer, cache)):
            started = time.process_time()
            found.append(_log_probabilities(each, text, cache["window"]))
            seconds.append(time.process_time() - started)
        differences.append(_blocks(found[1] - found[0]))
        counts = _blocks(torch.ones_like(found[0]))
        rows.append((*(float(torch.exp(-each.mean())) for each in found), result.seconds / 60, *seconds))
        assert abs(rows[-1][0] / result.test["perplexity"] - 1) < 1e-2, "another model than that of the table"
    low, high = _interval(np.stack(differences), counts)
    values = np.array(rows)
    gain = 1 - np.exp(-np.stack(differences).sum(1).mean() / counts.sum())
    settings = ", ".join(f"{name} {value:g}" for name, value in cache.items())
    for name, place in (("`lin`, bias", 0), (f"`lin`, bias, cache ({settings})", 1)):
        difference = f"{100 * gain:.1f} % ({100 * (1 - np.exp(-low)):.1f} to {100 * (1 - np.exp(-high)):.1f})"
        print(
            f"| {table.title.rpartition(', on ')[2]} | {name} | {values[:, place].mean():.1f} "
            f"({', '.join(f'{each:.1f}' for each in values[:, place])}) | {difference if place else ''} | "
            f"{results[0].parameters:,} | {values[:, 2].mean():.1f} | {values[:, 3 + place].mean():.1f} |",
            flush=True,
        )


def main(
    tables: tuple[str, ...] = ("components-ptb", "components-swda", "components-wikitext2"),
    runs: Path = Path("runs"),
    results: Path = Path("training/results"),
    data_dir: Path = Path("data"),
) -> None:
    """Print a Markdown table of the finished runs of some tables.

    Args:
        tables: Names of tables whose row `lin` is trained.
        runs: Parent of the directories of the runs.
        results: Directory of the result files.
        data_dir: Directory that holds the corpora.
    """
    torch.set_num_threads(1)
    print("| corpus | output layer | test perplexity (seeds) | less by (95 %) | parameters | training, min | test, s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in tables:
        finished = [each for each in read(path_of(get_table(name), results)) if each.status == "finished"]
        if finished:
            _compared(get_table(name), finished, runs, data_dir)


if __name__ == "__main__":
    tyro.cli(main)
