"""Tests of generated data with many classes, whose Bayes error is known, and of the comparison of output layers."""

import itertools
import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.large_classes import LAYERS, Quality, Task, Trial, kept, main, outcome, quality

_TABLE = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.5, 0.5, 0.0], [0.1, 0.1, 0.8]])


def _two_classes(distance: float) -> Task:
    """Return a task with two equally frequent classes, whose means have a distance, in units of the noise."""
    task = Task(10)
    task.means = torch.zeros(2, task.means.shape[1])
    task.means[1, 0] = distance * task.noise
    task.prior = torch.tensor([0.5, 0.5])
    return task


def test_quality_of_a_table_computed_by_hand() -> None:
    found = quality(lambda rows: _TABLE[rows[:, 0]].log(), torch.arange(4)[:, None], torch.tensor([0, 0, 2, 2]))
    assert found.accuracy == 0.5
    assert found.clipped == 0.25
    assert found.log_loss == pytest.approx(-math.log(0.7 * 0.3 * 1e-7 * 0.8) / 4, rel=1e-6)
    # Confidences 0.5, 0.6, 0.7 and 0.8 are in bins of their own; the classes of the second and third are wrong.
    assert found.calibration_error == pytest.approx((0.3 + 0.6 + 0.5 + 0.2) / 4, rel=1e-6)


def test_best_accuracy_of_two_classes_is_that_of_the_normal_distribution() -> None:
    task = _two_classes(distance=2.0)
    found = quality(task.log_probabilities, *task.examples(40_000, 7))
    assert found.accuracy == pytest.approx((1 + math.erf(1 / math.sqrt(2))) / 2, abs=0.006)


def test_exact_probabilities_are_those_of_densities_and_frequencies() -> None:
    task = Task(100)
    inputs, classes = task.examples(300, 5)
    squares = (inputs.double()[:, None] - task.means.double()).square().sum(2)
    joint = task.prior.double() * torch.exp(-squares / (2 * task.noise**2))
    exact = joint / joint.sum(1, keepdim=True)
    torch.testing.assert_close(task.log_probabilities(inputs).double().exp(), exact, atol=1e-4, rtol=1e-3)
    found = quality(task.log_probabilities, inputs, classes)
    true = exact.gather(1, classes[:, None])
    assert found.accuracy == (exact.argmax(1) == classes).double().mean()
    assert found.log_loss == pytest.approx(-true.clamp_min(1e-7).log().mean().item(), rel=1e-4)


def test_best_accuracy_is_80_percent_and_its_probabilities_are_calibrated() -> None:
    task = Task(100)
    found = quality(task.log_probabilities, *task.examples(20_000, 9))
    assert found.accuracy == pytest.approx(0.8, abs=0.02)
    assert found.calibration_error < 0.015


def test_frequencies_follow_zipfs_law() -> None:
    prior = Task(100).prior.sort(descending=True).values
    torch.testing.assert_close(prior * torch.arange(1, 101), torch.full((100,), prior[0].item()))
    assert prior.sum().item() == pytest.approx(1, abs=1e-6)


def test_number_of_classes_is_a_power_of_ten() -> None:
    with pytest.raises(ValueError, match="power of 10, not 300"):
        Task(300)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_distributions_over_all_classes(name: str) -> None:
    torch.manual_seed(0)
    prior = Task(1000).prior
    hidden = torch.randn(6, 128)
    layer = LAYERS[name](prior)
    found: Tensor = layer.log_prob(hidden)  # type: ignore[operator]
    assert found.shape == (6, 1000)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(6))


@pytest.mark.parametrize("name", ["softmax", "adaptive softmax"])
def test_losses_are_sums_of_negative_log_probabilities(name: str) -> None:
    torch.manual_seed(0)
    layer, hidden, target = LAYERS[name](Task(100).prior), torch.randn(40, 128), torch.arange(40) * 2
    expected = -layer.log_prob(hidden).gather(1, target[:, None]).sum()  # type: ignore[operator]
    torch.testing.assert_close(layer.loss(hidden, target), expected)  # type: ignore[operator]


def test_sampled_loss_is_near_that_of_all_classes() -> None:
    """The corrected scores of the sample estimate the normalizer, in the mean of many samples."""
    torch.manual_seed(0)
    layer, hidden, target = LAYERS["sampled softmax"](Task(100).prior), torch.randn(40, 128), torch.arange(40) * 2
    exact = -layer.log_prob(hidden).gather(1, target[:, None]).sum()  # type: ignore[operator]
    found = torch.stack([layer.loss(hidden, target).detach() for _ in range(50)]).mean()  # type: ignore[operator]
    assert found.item() == pytest.approx(exact.item(), rel=0.03)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_learn(name: str) -> None:
    trial = Trial(classes=100, layer=name, rate=0.003, seed=1, steps=100, examples=30)
    found = outcome(Task(100), trial)
    assert found.test.accuracy > 0.5
    assert found.validation.log_loss < math.log(100)


def test_results_of_the_file_are_not_computed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "results.jsonl"
    options = {"classes": (10,), "layers": ("softmax", "entmax 1.5"), "rates": (0.003, 0.03), "steps": 3}
    for seeds in (1, 1, 2):
        main(**options, seeds=seeds, rounds=1, examples=30, results=file)  # type: ignore[arg-type]
    keys = [json.loads(line)["key"] for line in file.read_text(encoding="utf-8").splitlines()]
    assert 1 + 2 * 2 + 2 <= len(keys) <= 1 + 2 * 2 + 4  # costs, two rates of each layer, a second seed of those chosen
    assert len({json.dumps(key) for key in keys}) == len(keys)
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| softmax", "| entmax"))]
    assert printed[:2] == printed[2:4], "the second time all numbers are those of the file"
    assert "±" in printed[4]
    assert "±" not in printed[0]


def test_accuracy_and_log_loss_have_learning_rates_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two layers with results written by hand: the first rate has the smaller log-loss, the second is more accurate."""
    file = tmp_path / "results.jsonl"
    layers = ("softmax", "entmax 1.5")
    cost = {layer: {"step_ms": 2.0 + place, "memory_mb": 7.0} for place, layer in enumerate(layers)}
    kept(file, {"classes": 10, "layers": list(layers), "rounds": 3}, lambda: cost)
    for layer, rate, seed in itertools.product(layers, (0.1, 0.2), (1, 2)):
        accuracy = 2 * rate + (0.1 * seed if layer == "entmax 1.5" else 0)
        made = asdict(Quality(accuracy, log_loss=rate, clipped=0.0, calibration_error=rate / 2))
        trial = Trial(classes=10, layer=layer, rate=rate, seed=seed, steps=5, examples=6)
        kept(file, asdict(trial), lambda made=made: {"validation": made, "test": made})  # type: ignore[misc]
    main(classes=(10,), layers=layers, rates=(0.1, 0.2), seeds=2, steps=5, examples=6, rounds=3, results=file)
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[-2:]]
    assert rows[0] == [
        "softmax", "40.00 ± 0.00", "", "0.100 ± 0.000", "0.00 ± 0.00", "5.0 ± 0.0", "0.2, 0.1", "2.0", "1.00", "7"
    ]  # fmt: skip
    # The differences 10 and 20 have the mean 15 and the standard error 5; Student's t with one degree is 12.706.
    assert rows[1][1:3] == ["55.00 ± 7.07", "+15.00 [-48.53, +78.53]"]
    assert rows[1][6:] == ["0.2, 0.1", "3.0", "1.50", "7"]


def test_a_key_has_one_result(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    assert kept(file, {"seed": 1}, lambda: {"value": 1.5}) == {"value": 1.5}
    assert kept(file, {"seed": 2}, lambda: {"value": 2.5}) == {"value": 2.5}
    assert kept(file, {"seed": 1}, lambda: {"value": 9.9}) == {"value": 1.5}
