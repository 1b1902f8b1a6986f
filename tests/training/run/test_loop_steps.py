"""Tests of steps: accumulated gradients, a number of them that ends training, evaluations between them, losses."""

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.run import test_loop
from tests.training.run.test_loop import SMALL, MakeTrainer, _assert_same_end, _silent, _weights, _with_metrics
from training.data.batching import IGNORED, Batch
from training.run.loop import Trainer
from training.tasks.language_model.perplexity import Perplexity

make_trainer = test_loop.make_trainer  # a fixture

# ---- accumulation -----------------------------------------------------------------------------------------


def _moved(trainer: Trainer) -> Tensor:
    """All weights in one vector."""
    return torch.cat([value.flatten() for value in _weights(trainer).values()])


def test_accumulated_batches_make_the_update_of_their_union(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches of different numbers of targets, and one of all their rows; in float64, without dropout."""
    results = []
    for accumulate in (1, 2):
        trainer = make_trainer(f"of-{accumulate}", limit=12, accumulate=accumulate)
        trainer.task.model.double()
        rows = [([3, 4, 5], [4, 5, 6]), ([5, 7, 8], [7, IGNORED, IGNORED]), ([2, 9, 4], [9, 4, IGNORED])]
        cuts = [slice(0, 3)] if accumulate == 1 else [slice(0, 1), slice(1, 3)]
        inputs, targets = (torch.tensor([row[side] for row in rows]) for side in range(2))
        batches = [Batch(inputs[cut], targets[cut], continues=False) for cut in cuts]
        trainer.task.model.eval()  # no dropout, which differs
        trainer._step(batches)
        assert (trainer.progress.step, trainer.progress.batch, trainer._targets) == (1, accumulate, 6)
        results.append((_moved(trainer), trainer._read_losses()))
    torch.testing.assert_close(results[0], results[1])


def test_an_epoch_ends_with_an_update_of_the_batches_that_are_left(make_trainer: MakeTrainer) -> None:
    single = make_trainer("single", **SMALL, patience=9)
    batches = len(single._train)
    assert batches % 2 == 1
    double = make_trainer("double", **SMALL, patience=9, accumulate=2, warmup_steps=2)
    assert [each.step for each in double.fit(_silent).history] == [(batches + 1) // 2 * n for n in (1, 2, 3)]
    assert double._optimization.learning_rate == pytest.approx(0.03 * 0.01)  # the schedule has ended


def test_resuming_between_accumulated_batches_is_exact(make_trainer: MakeTrainer) -> None:
    settings = {**SMALL, "accumulate": 2, "evaluate_steps": 2, "patience": 99}
    whole = make_trainer("whole", **settings)
    whole.fit(_silent)
    for seed in range(whole.progress.step):
        parts = make_trainer("parts", seed=90 + seed if seed else 1, **settings)
        parts.fit(_silent, stop_after=1)
    last = make_trainer("parts", seed=99, **settings)
    last.fit(_silent)
    _assert_same_end(last, whole)


# ---- max_steps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [True, False], ids=["inside an epoch", "at the end of an epoch"])
def test_training_ends_after_max_steps(inside: bool, make_trainer: MakeTrainer) -> None:
    steps = len(make_trainer("other", limit=80)._train)
    most = steps + 2 if inside else 2 * steps
    trainer = make_trainer(limit=80, epochs=9, max_steps=most)
    history = trainer.fit(_silent).history
    assert [(each.epoch, each.step) for each in history] == [(1, steps), (2, most)]
    assert trainer._optimization.learning_rate == pytest.approx(0.03 * 0.01 if most > 20 else 0.03 * (most + 1) / 20)
    lines: list[str] = []
    assert make_trainer(limit=80, epochs=9, max_steps=most).fit(lines.append).step == most
    assert lines[0].startswith("nothing to train: ")
    assert f"{most} of {most} steps" in lines[0]


# ---- minutes ----------------------------------------------------------------------------------------------


class _Clock:
    """Time that goes on by a second with each update and by ten with each evaluation of a trainer."""

    def __init__(self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("training.run.loop.time.monotonic", lambda: self.now)
        backward, evaluate = trainer._backward, trainer.task.evaluate
        monkeypatch.setattr(trainer, "_backward", lambda *given: self._after(1, backward, *given))
        monkeypatch.setattr(trainer.task, "evaluate", lambda *given: self._after(10, evaluate, *given))

    def _after(self, seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
        self.now += seconds
        return function(*arguments)


@pytest.mark.parametrize("stops", [[None], [7, None]], ids=["in one session", "in two sessions"])
def test_training_ends_within_its_minutes(
    stops: list[int | None], make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs of 5 s and evaluations of 10 s: 15 s, 30 s, then 3 updates and an evaluation are 43 s."""
    settings: dict[str, Any] = {"limit": 80, "epochs": 99, "patience": 99, "minutes": 43 / 60, "warmup_steps": 1}
    for stop in stops:
        trainer = make_trainer(**settings)
        _Clock(trainer, monkeypatch)
        trainer.fit(_silent, stop)
    assert [(each.epoch, each.step) for each in trainer.progress.history] == [(1, 5), (2, 10), (3, 13)]
    assert trainer.progress.wall_seconds == pytest.approx(43)
    assert trainer._optimization.learning_rate == pytest.approx(0.03 * 0.01)
    lines: list[str] = []
    make_trainer(**settings).fit(lines.append)
    assert "2 of 99 epochs are trained, and the time of loop.minutes" in lines[0]


# ---- losses that are read now and then --------------------------------------------------------------------


def test_losses_are_read_only_now_and_then_on_a_gpu(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is the same, and the first step whose loss is no number is named."""
    often = make_trainer("often", **SMALL)
    often.fit(_silent)
    seldom = make_trainer("seldom", **SMALL)
    seldom._read_steps = 50
    reads: list[int] = []
    read = seldom._read_losses

    def noted() -> float:
        reads.append(len(seldom._losses))
        return read()

    monkeypatch.setattr(seldom, "_read_losses", noted)
    seldom.fit(_silent)
    assert max(reads) == len(seldom._train) > 2
    _assert_same_end(seldom, often)


def test_the_first_step_without_a_finite_loss_is_named(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, values = make_trainer(limit=80), iter([1.0, 1.0, math.inf, math.nan, *[1.0] * 99])
    trainer._read_steps = 50
    monkeypatch.setattr(
        trainer.task, "loss", lambda batch: (next(values) * trainer.task.model.output_layer.weight.sum().abs(), 1)
    )
    with pytest.raises(FloatingPointError, match="loss is inf at step 2"):
        trainer.fit(_silent)
    assert not trainer.run.last.exists()


# ---- evaluations inside an epoch --------------------------------------------------------------------------


def test_evaluations_inside_an_epoch(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every two steps and at the end of each epoch, once where both fall together; patience counts all of them."""
    steps = len(make_trainer("other", limit=80)._train)
    expected = [(epoch, (epoch - 1) * steps + step) for epoch in (1, 2) for step in range(1, steps + 1)]
    expected = [(epoch, step) for epoch, step in expected if step % 2 == 0 or step % steps == 0]
    trainer = make_trainer(limit=80, epochs=2, patience=99, evaluate_steps=2)
    lines: list[str] = []
    modes: list[bool] = []
    step = trainer._step

    def noted(batches: list[Batch]) -> Tensor:
        modes.append(trainer.task.model.training)
        return step(batches)

    monkeypatch.setattr(trainer, "_step", noted)
    history = trainer.fit(lines.append).history
    assert [(each.epoch, each.step) for each in history] == expected
    assert all(modes)
    assert lines[0].startswith("epoch 1, step 2: train loss ")
    assert trainer.run.trained_epochs() == 2
    impatient = make_trainer("impatient", limit=80, epochs=9, patience=2, evaluate_steps=2)
    _with_metrics(impatient, [5, 6, 7], monkeypatch)
    assert [each.step for each in impatient.fit(_silent).history] == [step for _, step in expected[:3]]


def test_a_run_that_ends_in_an_evaluation_inside_an_epoch_repeats_it(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "evaluate_steps": 2, "patience": 99, "checkpoint_minutes": 1e-9}
    whole = make_trainer("whole", **settings)
    whole.fit(_silent)
    crashing = make_trainer("crash", **settings)

    def evaluate(batches: object) -> Perplexity:
        raise MemoryError

    monkeypatch.setattr(crashing.task, "evaluate", evaluate)
    with pytest.raises(MemoryError):
        crashing.fit(_silent)
    again = make_trainer("crash", seed=99, **settings)
    again.fit(_silent)
    _assert_same_end(again, whole)


# ---- compilation ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # of torch, about itself
def test_a_compiled_network_has_the_same_losses(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced, but not made machine code, which takes a C++ compiler and a minute."""
    backends: list[object] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        backends.append(graph)
        return graph.forward

    monkeypatch.setattr(nn.Module, "compile", functools.partialmethod(nn.Module.compile, backend=backend))
    losses = []
    for wanted in (False, True):
        trainer = make_trainer(f"compile-{wanted}", limit=80, compile=wanted)
        trainer.task.model.eval()
        trainer._step(list(trainer._train.epoch(0))[:1])
        losses.append(trainer._read_losses())
        assert bool(backends) == wanted
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
