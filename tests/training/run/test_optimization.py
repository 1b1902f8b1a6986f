"""Tests of updates: the schedule of the learning rate by hand, parameter groups, loss scaling."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.fixtures.classification import ERRANDS_RECIPE
from tests.fixtures.generation import NOTES_RECIPE
from tests.fixtures.images import SHAPES_RECIPE
from tests.training.conftest import PAIRS_RECIPE
from training.recipe import LoopSettings
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.optimization import (
    Optimization,
    learning_rate_factor,
    parameter_groups,
    scheduled_updates,
)
from training.run.session import open_task, start_run
from training.softmax import GeneralizedSoftmax

CPU = torch.device("cpu")

# ---- learning rate ----------------------------------------------------------------------------------------


def test_learning_rate_by_hand() -> None:
    """Warm-up over 4 of 12 steps, then a cosine over 8 down to a tenth: halfway (1 + 0.1) / 2."""
    settings = LoopSettings(warmup_steps=4, final_learning_rate=0.1)
    factors = {step: learning_rate_factor(step, 12, settings) for step in (0, 1, 3, 4, 6, 8, 12, 20)}
    expected = {0: 0.25, 1: 0.5, 3: 1.0, 4: 1.0, 8: 0.55, 12: 0.1, 20: 0.1}
    expected[6] = 0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2
    assert factors == pytest.approx(expected)


def test_inverse_square_root_by_hand() -> None:
    """After a warm-up of 4 steps the factor is 2 over the root of the steps, whatever the end of training is."""
    settings = LoopSettings(warmup_steps=4, schedule="inverse-sqrt", final_learning_rate=0.5)
    for total in (5, 1000):
        factors = [learning_rate_factor(step, total, settings) for step in (0, 2, 3, 4, 15, 399)]
        assert factors == pytest.approx([0.25, 0.75, 1.0, 2 / math.sqrt(5), 0.5, 0.1])


def test_inverse_square_root_without_warm_up_starts_at_the_peak() -> None:
    settings = LoopSettings(warmup_steps=0, schedule="inverse-sqrt")
    assert [learning_rate_factor(step, 9, settings) for step in (0, 3)] == pytest.approx([1, 0.5])


@pytest.mark.parametrize("total", [1, 3, 4, 5])
def test_a_run_shorter_than_its_warm_up_has_a_learning_rate(total: int) -> None:
    factors = [learning_rate_factor(step, total, LoopSettings(warmup_steps=4)) for step in range(total + 1)]
    assert all(0 < factor <= 1 for factor in factors)


@pytest.mark.parametrize(
    ("settings", "updates"),
    [({}, 70), ({"schedule_epochs": 3}, 30), ({"max_steps": 25}, 25), ({"max_steps": 99}, 70)],
    ids=str,
)
def test_cosine_decay_ends_where_training_does(settings: dict[str, int], updates: int) -> None:
    assert scheduled_updates(10, LoopSettings.model_validate({"epochs": 7, **settings})) == updates


# ---- weight decay -----------------------------------------------------------------------------------------


class Tiny(nn.Module):
    """An embedding, tied to the output layer's word vectors, a matrix, a norm and biases."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 2)
        self.positions = nn.Parameter(torch.ones(3, 2))
        self.layer = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(2)
        self.output_layer = nn.Linear(2, 5)
        self.output_layer.weight = self.words.weight


def test_only_matrices_decay() -> None:
    model = Tiny()
    decaying, others = parameter_groups(model, 0.1)
    assert decaying["weight_decay"] == 0.1
    assert decaying["params"] == [model.layer.weight]
    assert others["weight_decay"] == 0
    assert len(others["params"]) == len(list(model.parameters())) - 1


@pytest.mark.parametrize("name", ["output_layer.left", "encoder.distances.vectors", "network.output_layer.weight"])
def test_embeddings_without_a_module_do_not_decay(name: str) -> None:
    model, (*path, last) = nn.Module(), name.split(".")
    inner = model
    for part in path:
        inner.add_module(part, nn.Module())
        inner = inner.get_submodule(part)
    inner.register_parameter(last, nn.Parameter(torch.zeros(2, 2)))
    decaying, others = parameter_groups(model, 0.1)
    assert decaying["params"] == []
    assert len(others["params"]) == 1


def test_the_schedule_follows_the_time_where_that_goes_faster() -> None:
    """Updates 10 to 110 fall from 1 to 0.2: half-way after 60 of 110 updates, or 60/110 of the time."""
    settings = LoopSettings(warmup_steps=10, final_learning_rate=0.2)
    assert learning_rate_factor(20, 110, settings, 60 / 110) == pytest.approx(0.6)
    assert learning_rate_factor(60, 110, settings, 0.1) == pytest.approx(0.6)
    assert learning_rate_factor(20, 110, settings, 1.5) == pytest.approx(0.2)
    assert learning_rate_factor(1, 110, settings, 4 / 110) == pytest.approx(0.5)


def test_without_weight_decay_there_is_one_group() -> None:
    model = Tiny()
    (group,) = parameter_groups(model, 0.0)
    assert group["params"] == list(model.parameters())


def test_the_weights_of_a_mixture_stay_equal_at_first() -> None:
    layer = GeneralizedSoftmax(5, 3, "lin, log")
    settings = LoopSettings(learning_rate=0.1, warmup_steps=0, weight_decay=0.1, equal_weights_steps=2)
    optimization = Optimization(layer, settings, CPU, epoch_updates=10)
    changed = []
    for _ in range(4):
        weight, prior = layer.weight.detach().clone(), layer.prior.detach().clone()
        optimization.zero_grad()
        optimization.backward(layer.loss(torch.ones(2, 3), torch.tensor([0, 1])))
        optimization.step()
        changed.append((not torch.equal(layer.weight, weight), not torch.equal(layer.prior, prior)))
    assert changed == [(True, False)] * 2 + [(True, True)] * 2
    assert optimization.learning_rate < 0.1


def test_a_step_without_gradient_shrinks_only_what_decays() -> None:
    """AdamW multiplies by 1 - rate * decay = 1 - 0.5 * 0.2."""
    model = Tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    settings = LoopSettings(learning_rate=0.5, weight_decay=0.2, warmup_steps=0)
    optimization = Optimization(model, settings, CPU, epoch_updates=9)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimization.step()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name] * (0.9 if name == "layer.weight" else 1.0))


@pytest.mark.parametrize(
    "content", [PAIRS_RECIPE, ERRANDS_RECIPE, NOTES_RECIPE, SHAPES_RECIPE], ids=lambda each: each["task"]
)
@pytest.mark.usefixtures("pairs_corpus", "errands_corpus", "shapes_corpus")
def test_weights_of_every_task_decay_but_no_embeddings(
    content: dict[str, Any], tiny_data_dir: Path, notes_dir: Path, tmp_path: Path
) -> None:
    recipe = parse_recipe(content)
    data_dir, run = notes_dir if recipe.task == "text-generation" else tiny_data_dir, RunDirectory(tmp_path)
    start_run(recipe, run, data_dir)
    model = open_task(recipe, run, data_dir, CPU).model
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, others = ([names[id(each)] for each in group["params"]] for group in parameter_groups(model, 0.1))
    assert sorted(decaying + others) == sorted(names.values())
    assert decaying
    assert not any(word in name for name in decaying for word in ("norm", "bias", "words", "positions"))
    assert id(model.output_layer.weight) not in {id(each) for each in parameter_groups(model, 0.1)[0]["params"]}


# ---- gradients and precision ------------------------------------------------------------------------------


def test_a_step_returns_the_norm_before_clipping() -> None:
    """Gradients of 6 and 8 times a half have norm 5, and are clipped to 1."""
    model = nn.Linear(2, 1, bias=False)
    optimization = Optimization(model, LoopSettings(clip_norm=1.0), CPU, epoch_updates=9)
    model.weight.grad = torch.tensor([[6.0, 8.0]])
    assert float(optimization.step(0.5)) == pytest.approx(5)
    assert model.weight.grad.flatten().tolist() == pytest.approx([0.6, 0.8], abs=1e-5)


def test_float16_needs_a_gpu() -> None:
    with pytest.raises(ValueError, match=r"loop\.precision: float16 needs a GPU, and the device is cpu"):
        Optimization(nn.Linear(2, 2), LoopSettings(precision="float16"), CPU, epoch_updates=1)
