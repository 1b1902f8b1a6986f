"""Compare output layers of classifiers with thousands of classes, on generated data whose Bayes error is known.

    python -m benchmarks.large_classes --classes 1000                                # a quarter of an hour
    python -m benchmarks.large_classes --classes 10000 --steps 1000 --rates 0.001 0.003 0.01 0.03
    python -m benchmarks.large_classes --classes 100000 --examples 10 --seeds 1 --rates 0.003     # not run in full yet

Classes are the leaves of a tree with ten children of each node. Each node has a random vector, and the mean of a class
is the sum of the vectors of its leaf and of all ancestors of it. An example is that mean and normal noise, and the
frequencies of classes follow Zipf's law. So the probability of each class given an example is known, and with it the
best accuracy and log-loss that any model can have. The noise is chosen so that the best accuracy is about 80 %.

The same network is trained with each output layer, for as many updates, on a finite training set. Of the same learning
rates, each layer has the one with the highest accuracy on validation examples for its accuracy, and the one with the
smallest log-loss for log-loss and calibration: a larger rate often improves the first and worsens the second.

Trainings run one after the other with one thread. Their results are kept in a file of JSON lines, so that an
interrupted run continues. The costs of layers are measured apart from the trainings, in interleaved rounds.

Shapes: `N` examples, `V` classes, `D` features, `d` hidden size.
"""

import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.losses import extra_megabytes
from benchmarks.timing import medians_of
from training.search.tables.summary import Mean
from training.softmax import GeneralizedSoftmax
from training.tasks.reliability import Reliability

__all__ = ["LAYERS", "Cost", "Outcome", "Quality", "Task", "Trial", "costs", "kept", "main", "outcome", "quality"]

_FEATURES, _INNER, _HIDDEN = 64, 256, 128
_BRANCHES = 10
_DECAY = 0.8
"""Length of the vectors of a level of the tree, relative to those of the level above."""
_BAYES_ACCURACY = 0.8
_BATCH = 256
_VALIDATION, _TEST = 4000, 10_000
_VALIDATION_SEED, _TEST_SEED, _NOISE_SEED, _TRAINING_SEED = 1, 2, 3, 100
_ROWS = 256
"""Examples whose probabilities are computed together."""
_LEAST = 1e-7
"""The smallest probability in a log-loss: sparse layers give most classes the probability 0."""
_NEGATIVES = 500
_BASE = "softmax"


@dataclass(frozen=True, slots=True)
class Trial:
    """A training with an output layer."""

    classes: int
    layer: str
    rate: float
    """Learning rate of Adam at the start, which falls to 0 along half a cosine."""
    seed: int
    steps: int
    examples: int
    """Mean number of training examples of a class."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of the probabilities of some examples."""

    accuracy: float
    log_loss: float
    """Mean negative logarithm of the probability of the true class, or of 1e-7 where that is larger."""
    clipped: float
    """Fraction of the examples whose true class has a probability below 1e-7."""
    calibration_error: float
    """Expected calibration error, 15 bins of equal width."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The quality after a training."""

    validation: Quality
    test: Quality


@dataclass(frozen=True, slots=True)
class Cost:
    """Time and memory of training with an output layer."""

    step_ms: float
    """Median processor time of an update of network and output layer, one thread, in milliseconds."""
    memory_mb: float
    """Most memory of model, optimizer and updates, beyond that of data and libraries, in megabytes."""


class Task:
    """A generator of examples and their classes.

    Attributes: `means` `[V, D]` of the classes, their `prior` probabilities `[V]`, and `noise`, the standard deviation
    of each feature about its mean.
    """

    def __init__(self, classes: int, seed: int = 0) -> None:
        """Draw the tree. Raises `ValueError` unless `classes` is a power of ten."""
        levels = round(math.log10(classes))
        if levels < 1 or _BRANCHES**levels != classes:
            raise ValueError(f"the number of classes must be a power of {_BRANCHES}, not {classes}")
        generator = torch.Generator().manual_seed(seed)
        self.means = torch.zeros(1, _FEATURES)
        for level in range(levels):
            own = torch.randn(_BRANCHES ** (level + 1), _FEATURES, generator=generator)
            self.means = self.means.repeat_interleave(_BRANCHES, 0) + own * _DECAY**level / math.sqrt(_FEATURES)
        self.prior = 1 / (1.0 + torch.randperm(classes, generator=generator))
        self.prior /= self.prior.sum()
        self.noise = self._chosen_noise()

    def examples(self, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return features `[N, D]` and classes `[N]`, the same ones for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        classes = torch.multinomial(self.prior, count, replacement=True, generator=generator)
        noise = torch.randn(count, _FEATURES, generator=generator)
        return self.means[classes] + self.noise * noise, classes

    def log_probabilities(self, inputs: Tensor) -> Tensor:
        """Return the exact log-probabilities of all classes given features: `[N, D]` -> `[N, V]` (Bayes' rule)."""
        scores = (inputs @ self.means.t() - self.means.square().sum(1) / 2) / self.noise**2 + self.prior.log()
        return functional.log_softmax(scores, 1)

    def _chosen_noise(self) -> float:
        """Return the noise with which the best accuracy is `_BAYES_ACCURACY`, by bisection of its logarithm."""
        low, high = 0.01, 1.0
        for _ in range(10):
            self.noise = math.sqrt(low * high)
            found = quality(self.log_probabilities, *self.examples(2000, _NOISE_SEED)).accuracy
            low, high = (self.noise, high) if found > _BAYES_ACCURACY else (low, self.noise)
        return math.sqrt(low * high)


class _SampledSoftmax(nn.Module):
    """A softmax whose loss compares the true class with a sample of the others (Bengio and Senécal 2008).

    The sample is drawn by the frequencies of classes. The scores of sampled classes are corrected by the logarithms of
    the expected counts, so that the sum of their exponentials is an unbiased estimate of that of all other classes
    (Blanc and Rendle 2018).
    """

    prior: Tensor

    def __init__(self, prior: Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(_HIDDEN, len(prior))
        nn.init.normal_(self.linear.weight, std=_HIDDEN**-0.5)  # as in `GeneralizedSoftmax`
        nn.init.zeros_(self.linear.bias)
        self.register_buffer("prior", prior)

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Return the loss, summed over examples: `[N, d]`, `[N]` -> `[]`."""
        others = torch.multinomial(self.prior, _NEGATIVES, replacement=True)
        weight, bias = self.linear.weight, self.linear.bias
        scores = hidden @ weight[others].t() + bias[others] - (_NEGATIVES * self.prior[others]).log()
        scores = scores.masked_fill(others == target[:, None], -math.inf)
        true = (hidden * weight[target]).sum(1) + bias[target]
        joined = torch.cat([true[:, None], scores], 1)
        return functional.cross_entropy(joined, torch.zeros_like(target), reduction="sum")

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Return the log-probabilities of the softmax over all classes: `[N, d]` -> `[N, V]`."""
        return functional.log_softmax(self.linear(hidden), 1)


class _AdaptiveSoftmax(nn.Module):
    """The adaptive softmax of torch (Grave et al. 2017), with a tenth of the classes, the most frequent, in its head.

    Its classes have to be sorted by falling frequency: `places` are the positions of classes in that order.
    """

    places: Tensor

    def __init__(self, prior: Tensor) -> None:
        super().__init__()
        classes = len(prior)
        cutoffs = [classes // 10, classes // 2]
        self.layer = nn.AdaptiveLogSoftmaxWithLoss(_HIDDEN, classes, cutoffs, head_bias=True)
        self.register_buffer("places", prior.argsort(descending=True).argsort())

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Return the loss, summed over examples: `[N, d]`, `[N]` -> `[]`."""
        log_probabilities: Tensor = self.layer(hidden, self.places[target]).output
        return -log_probabilities.sum()

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Return the log-probabilities of all classes: `[N, d]` -> `[N, V]`."""
        return self.layer.log_prob(hidden)[:, self.places]


def _general(prior: Tensor, **options: Any) -> nn.Module:
    return GeneralizedSoftmax(len(prior), _HIDDEN, kernels="lin", bias=True, **options)


LAYERS: Mapping[str, Callable[[Tensor], nn.Module]] = {
    _BASE: _general,
    "sparse-softmax, k = 20": functools.partial(_general, sparse_k=20),
    "sparse-softmax, k = 100": functools.partial(_general, sparse_k=100),
    "entmax 1.5": functools.partial(_general, alpha=1.5),
    "adaptive softmax": _AdaptiveSoftmax,
    "sampled softmax": _SampledSoftmax,
}
"""Functions by name that make an output layer for the prior probabilities of classes, `[V]`."""


class _Model:
    """A network with an output layer, and its optimizer."""

    def __init__(self, prior: Tensor, trial: Trial) -> None:
        torch.manual_seed(trial.seed)
        self.network = nn.Sequential(
            nn.Linear(_FEATURES, _INNER), nn.GELU(), nn.Linear(_INNER, _HIDDEN), nn.LayerNorm(_HIDDEN)
        )
        self.layer: Any = LAYERS[trial.layer](prior)
        parameters = [*self.network.parameters(), *self.layer.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=trial.rate, fused=True)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, trial.steps)

    def update(self, inputs: Tensor, classes: Tensor) -> None:
        """Make a training step with features `[N, D]` and classes `[N]`."""
        self.optimizer.zero_grad()
        (self.layer.loss(self.network(inputs), classes) / len(classes)).backward()
        self.optimizer.step()
        self.schedule.step()

    def log_probabilities(self, inputs: Tensor) -> Tensor:
        """Return the log-probabilities of all classes: `[N, D]` -> `[N, V]`."""
        found: Tensor = self.layer.log_prob(self.network(inputs))
        return found


@torch.no_grad()
def quality(log_probabilities: Callable[[Tensor], Tensor], inputs: Tensor, classes: Tensor) -> Quality:
    """Return the quality of a function of features `[N, D]` that returns log-probabilities `[N, V]`."""
    confidence, correct, true = [], [], []
    for rows, targets in zip(inputs.split(_ROWS), classes.split(_ROWS), strict=True):
        found = log_probabilities(rows)
        largest, predicted = found.max(1)
        confidence.append(largest.double().exp())
        correct.append(predicted == targets)
        true.append(found.gather(1, targets[:, None])[:, 0].double())
    right, losses = torch.cat(correct).numpy(), -torch.cat(true)
    means, fractions, counts = Reliability(torch.cat(confidence).numpy(), right).points()
    return Quality(
        accuracy=float(right.mean()),
        log_loss=float(losses.clamp_max(-math.log(_LEAST)).mean()),
        clipped=float((losses > -math.log(_LEAST)).double().mean()),
        calibration_error=float(np.abs(means - fractions) @ counts / len(right)),
    )


def outcome(task: Task, trial: Trial) -> Outcome:
    """Train a network with an output layer, and return its quality."""
    inputs, classes = task.examples(trial.examples * trial.classes, _TRAINING_SEED + trial.seed)
    model = _Model(task.prior, trial)
    for batch in _batches(len(classes), trial.steps):
        model.update(inputs[batch], classes[batch])
    validation = quality(model.log_probabilities, *task.examples(_VALIDATION, _VALIDATION_SEED))
    return Outcome(validation, quality(model.log_probabilities, *task.examples(_TEST, _TEST_SEED)))


def costs(task: Task, layers: Sequence[str], rounds: int) -> dict[str, Cost]:
    """Return the costs of output layers by name; all of them make an update in each round."""
    inputs, targets = task.examples(_BATCH, _TRAINING_SEED)
    trials = {layer: Trial(len(task.prior), layer, 0.001, 1, rounds + 1, 1) for layer in layers}
    memory = {layer: _memory(task.prior, trial, inputs, targets) for layer, trial in trials.items()}
    models = {layer: _Model(task.prior, trial) for layer, trial in trials.items()}
    calls = {layer: functools.partial(model.update, inputs, targets) for layer, model in models.items()}
    times = medians_of(calls, rounds, clock=time.process_time)
    return {layer: Cost(1000 * times[layer], memory[layer]) for layer in layers}


def _memory(prior: Tensor, trial: Trial, inputs: Tensor, classes: Tensor) -> float:
    """Return the megabytes of a model and two updates, the second time, when libraries are loaded."""

    def train() -> None:
        model = _Model(prior, trial)
        for _ in range(2):
            model.update(inputs, classes)

    train()
    return extra_megabytes(train, torch.device("cpu"))


def _batches(examples: int, steps: int) -> Iterator[Tensor]:
    """Generate the indices of the examples of each step; every epoch has another order, and whole batches only."""
    size = min(_BATCH, examples)
    per_epoch = examples // size
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(examples)
        start = step % per_epoch * size
        yield order[start : start + size]


def kept(file: Path, key: Mapping[str, Any], compute: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the result that a file has for a key, or compute the result and add a line to the file."""
    if file.is_file():
        for line in file.read_text(encoding="utf-8").splitlines():
            content = json.loads(line)
            if content["key"] == key:
                found: Mapping[str, Any] = content["result"]
                return found
    result = compute()
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"key": key, "result": result}) + "\n")
    return result


def _outcome(task: Task, trial: Trial, file: Path) -> Outcome:
    found = kept(file, asdict(trial), lambda: asdict(outcome(task, trial)))
    return Outcome(Quality(**found["validation"]), Quality(**found["test"]))


def _costs(task: Task, layers: Sequence[str], rounds: int, file: Path) -> dict[str, Cost]:
    key = {"classes": len(task.prior), "layers": list(layers), "rounds": rounds}
    found = kept(file, key, lambda: {name: asdict(cost) for name, cost in costs(task, layers, rounds).items()})
    return {name: Cost(**cost) for name, cost in found.items()}


def main(
    classes: tuple[int, ...] = (1000, 10_000),
    layers: tuple[str, ...] = tuple(LAYERS),
    rates: tuple[float, ...] = (0.0003, 0.001, 0.003, 0.01),
    seeds: int = 3,
    steps: int = 2000,
    examples: int = 50,
    rounds: int = 21,
    results: Path = Path("runs/large-classes.jsonl"),
) -> None:
    """Print a table for each number of classes.

    Args:
        classes: Numbers of classes, powers of ten.
        layers: Names of output layers, the softmax first.
        rates: Learning rates, each of which is tried with the first seed.
        seeds: Trainings with each of the two chosen learning rates.
        steps: Updates of a training, of 256 examples each.
        examples: Mean number of training examples of a class.
        rounds: Updates of which the median time is taken.
        results: File of results; those that are in it are not computed again.
    """
    torch.set_num_threads(1)
    results.parent.mkdir(parents=True, exist_ok=True)
    for count in classes:
        print(f"\n{count:,} classes, {steps:,} updates, {examples * count:,} training examples\n")
        print(
            "| output layer | accuracy, % | minus softmax | log-loss | below 1e-7, % | ECE, % | learning rates "
            "| update, ms | ratio | memory, MB |"
        )
        print("| --- " * 10 + "|")
        task = Task(count)
        exact = [quality(task.log_probabilities, *task.examples(_TEST, _TEST_SEED))]
        print(f"| exact probabilities | {_cells(exact, exact, [])} | | | | |", flush=True)
        spent = _costs(task, layers, rounds, results)
        base: list[Quality] = []
        for layer in layers:
            trials = [Trial(count, layer, rate, 1, steps, examples) for rate in rates]
            chosen = _chosen(task, trials, results)
            accurate, likely = (_tests(task, trial, seeds, results) for trial in chosen)
            cost, ratio = spent[layer], spent[layer].step_ms / spent[layers[0]].step_ms
            both = ", ".join(f"{trial.rate:g}" for trial in chosen)
            columns = f"{both} | {cost.step_ms:.1f} | {ratio:.2f} | {cost.memory_mb:.0f}"
            print(f"| {layer} | {_cells(accurate, likely, base)} | {columns} |", flush=True)
            base = base or accurate


def _chosen(task: Task, trials: Sequence[Trial], file: Path) -> tuple[Trial, Trial]:
    """Return the trials with the highest accuracy and with the smallest log-loss on validation examples."""
    found = {trial: _outcome(task, trial, file).validation for trial in trials}
    return max(trials, key=lambda trial: found[trial].accuracy), min(trials, key=lambda trial: found[trial].log_loss)


def _tests(task: Task, trial: Trial, seeds: int, file: Path) -> list[Quality]:
    """Return the quality on the test set of trainings that differ from a trial in their seeds."""
    return [_outcome(task, replace(trial, seed=seed), file).test for seed in range(1, seeds + 1)]


def _cells(accurate: Sequence[Quality], likely: Sequence[Quality], base: Sequence[Quality]) -> str:
    """Return columns of the means and standard deviations over seeds.

    Accuracy and its difference from that of `base` are of the first trainings, log-loss and calibration of the second.
    """
    accuracy = [100 * each.accuracy for each in accurate]
    cells = [
        _spread(accuracy, 2),
        _difference([own - 100 * other.accuracy for own, other in zip(accuracy, base, strict=False)]),
        _spread([each.log_loss for each in likely], 3),
        _spread([100 * each.clipped for each in likely], 2),
        _spread([100 * each.calibration_error for each in likely], 1),
    ]
    return " | ".join(cells)


def _spread(numbers: Sequence[float], digits: int) -> str:
    deviation = f" ± {statistics.stdev(numbers):.{digits}f}" if len(numbers) > 1 else ""
    return f"{statistics.mean(numbers):.{digits}f}{deviation}"


def _difference(numbers: Sequence[float]) -> str:
    """Return the mean of differences and its 95 % confidence interval, if there are several."""
    mean = Mean.of(numbers)
    if mean is None:
        return ""
    interval = "" if mean.interval is None else " [{:+.2f}, {:+.2f}]".format(*mean.interval)
    return f"{mean.value:+.2f}{interval}"


if __name__ == "__main__":
    tyro.cli(main)
