"""Tests of the training loop: a toy grammar is learnt, resuming is exact, patience ends, trouble is said."""

import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from models.text.tokenization import WordTokenizer
from tests.fixtures.learning import Learnt, until
from training.data.batching import Batch
from training.recipe import Recipe
from training.run import checkpoint
from training.run.directory import Progress, RunDirectory
from training.run.loop import Trainer
from training.tasks.language_model import LanguageModelTask
from training.tasks.language_model.perplexity import Perplexity
from training.tasks.language_model.reading import split_texts

CPU = torch.device("cpu")
LEARNABLE = {"lin": 6.5, "log": 13.0, "pow": 5.0}
"""Perplexity that four epochs bring each kernel below; that of unigrams is above 20."""
MakeTrainer = Callable[..., Trainer]


def _silent(line: str) -> None:
    """A report that is discarded."""


def _unigram_perplexity(recipe: Recipe, data_dir: Path, tokenizer: WordTokenizer, split: str) -> float:
    def tokens(name: str) -> list[int]:
        sentences = tokenizer.encode_batch(split_texts(recipe.data, name, data_dir))
        return [token for sentence in sentences for token in (*sentence, tokenizer.end_id)]

    counts, test = Counter(tokens("train")), tokens(split)
    log_probability = sum(math.log(counts[token] / counts.total()) for token in test)
    return math.exp(-log_probability / len(test))


@pytest.fixture
def make_trainer(tiny_recipe: Recipe, tiny_data_dir: Path, tmp_path: Path) -> MakeTrainer:
    """A trainer on the toy corpus; trainers of one name share a run directory."""

    def make(name: str = "run", seed: int = 1, kernels: str = "lin, pow", **settings: Any) -> Trainer:
        data = {key: settings.pop(key) for key in ("context", "limit", "stream_steps") if key in settings}
        parts = {"data": data, "output_layer": {"kernels": kernels}, "loop": settings}
        recipe = tiny_recipe.model_copy(
            update={field: getattr(tiny_recipe, field).model_copy(update=part) for field, part in parts.items()}
        )
        run = RunDirectory(tmp_path / name)
        run.start(recipe)
        tokenizer = LanguageModelTask.build_tokenizer(recipe, tiny_data_dir)
        torch.manual_seed(seed)
        return Trainer(LanguageModelTask(recipe, tokenizer, tiny_data_dir, CPU), run, recipe.loop)

    return make


# ---- learning ---------------------------------------------------------------------------------------------


def test_the_toy_grammar_is_learnt(tiny_recipe: Recipe, tiny_run: RunDirectory, tiny_data_dir: Path) -> None:
    """A sentence is one of 2 * 16 * 2 * 4 * 2 = 512 and has 7.5 tokens: 512^(1/7.5) = 2.3 at best, unigrams 24."""
    tokenizer = WordTokenizer.from_file(tiny_run.tokenizer)
    unigrams = _unigram_perplexity(tiny_recipe, tiny_data_dir, tokenizer, "test")
    task = LanguageModelTask(tiny_recipe, tokenizer, tiny_data_dir, CPU)
    task.model.load_state_dict(checkpoint.load(tiny_run.best, CPU)["model"])
    assert unigrams > 20
    assert task.evaluate(task.batches("test")).value < 3.5


@pytest.mark.parametrize("kernel", LEARNABLE)
def test_single_kernels_learn(kernel: str, make_trainer: MakeTrainer, tiny_recipe: Recipe, tiny_data_dir: Path) -> None:
    trainer = make_trainer(kernels=kernel, epochs=4)
    with pytest.raises(Learnt):
        trainer.fit(_silent, on_evaluation=until(lambda perplexity: perplexity < LEARNABLE[kernel]))
    assert _unigram_perplexity(tiny_recipe, tiny_data_dir, trainer.task.tokenizer, "dev") > 20


def test_streams_learn(make_trainer: MakeTrainer) -> None:
    with pytest.raises(Learnt):
        make_trainer(context="stream", stream_steps=10, epochs=4).fit(
            _silent, on_evaluation=until(lambda perplexity: perplexity < 6)
        )


# ---- resuming ---------------------------------------------------------------------------------------------

SMALL = {"limit": 80, "epochs": 3}
CONTEXTS = {"sentence": {"context": "sentence"}, "stream": {"context": "stream", "stream_steps": 10}}


def _results(progress: Progress) -> list[tuple[int, int, float, float]]:
    return [(each.epoch, each.step, each.train_loss, each.metric) for each in progress.history]


def _weights(trainer: Trainer) -> dict[str, Tensor]:
    return trainer.task.model.state_dict()


def _assert_same_end(trainer: Trainer, whole: Trainer) -> None:
    assert _results(trainer.progress) == _results(whole.progress)
    for name, value in _weights(whole).items():
        assert torch.equal(_weights(trainer)[name], value), name
    both = (checkpoint.load(each.run.best, CPU)["model"] for each in (trainer, whole))
    first, second = both
    assert all(torch.equal(first[name], second[name]) for name in second)


@pytest.mark.parametrize("context", CONTEXTS)
def test_resuming_is_exact(context: str, make_trainer: MakeTrainer) -> None:
    """Two stops inside epochs and one at an epoch's end, in fresh objects with another random state."""
    settings = {**SMALL, **CONTEXTS[context]}
    whole = make_trainer("whole", **settings)
    whole.fit(_silent)
    steps = whole.progress.step // 3  # of an epoch
    assert steps > 2
    for seed, stop_after in enumerate([steps // 2, steps - steps // 2, steps + 1]):
        parts = make_trainer("parts", seed=90 + seed if seed else 1, **settings)
        parts.fit(_silent, stop_after=stop_after)
    assert (parts.progress.epoch, parts.progress.batch) == (2, 1)
    last = make_trainer("parts", seed=99, **settings)
    lines: list[str] = []
    last.fit(lines.append)
    assert lines[0] == f"resuming at epoch 3 of 3, step {2 * steps + 1}"
    _assert_same_end(last, whole)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_crash_costs_what_came_after_the_last_checkpoint(
    context: str, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint after each step; the crash comes in the middle of the second epoch."""
    settings = {**SMALL, **CONTEXTS[context], "checkpoint_minutes": 1e-9}
    whole = make_trainer("whole", **settings)
    whole.fit(_silent)
    crashing = make_trainer("crash", **settings)
    left = whole.progress.step // 2

    def loss(batch: Batch) -> tuple[Tensor, int]:
        nonlocal left
        left -= 1
        if left < 0:
            raise MemoryError
        return LanguageModelTask.loss(crashing.task, batch)

    monkeypatch.setattr(crashing.task, "loss", loss)
    with pytest.raises(MemoryError):
        crashing.fit(_silent)
    again = make_trainer("crash", seed=99, **settings)
    again.fit(_silent)
    _assert_same_end(again, whole)


def test_a_finished_run_is_not_trained_again(make_trainer: MakeTrainer) -> None:
    first = make_trainer(limit=20, epochs=1)
    first.fit(_silent)
    again = make_trainer(limit=20, epochs=1, seed=99)
    again.fit(_silent)
    _assert_same_end(again, first)


def test_stop_after_stops_after_that_many_steps(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(limit=80)
    assert trainer.fit(_silent, stop_after=2).step == 2
    assert trainer.run.last.is_file()
    assert not trainer.run.best.is_file()
    assert make_trainer(limit=80).fit(_silent, stop_after=1).step == 3


# ---- steps ------------------------------------------------------------------------------------------------


def test_the_schedule_reaches_the_weights(make_trainer: MakeTrainer) -> None:
    """Adam's first step moves each weight by the learning rate: 0.03 * 1/20 after one of 20 steps of warm-up."""
    trainer = make_trainer(limit=20)
    before = {name: value.clone() for name, value in _weights(trainer).items()}
    trainer.fit(_silent, stop_after=1)
    moved = max((value - before[name]).abs().max().item() for name, value in _weights(trainer).items())
    assert moved == pytest.approx(0.03 / 20, rel=0.01)


def test_adam_has_the_recipe_s_second_moment(make_trainer: MakeTrainer) -> None:
    """After one step it is (1 - beta2) times the squared gradient."""
    trainer = make_trainer(limit=20, adam_beta2=0.9, clip_norm=1e9)
    trainer.fit(_silent, stop_after=1)
    moments = checkpoint.load(trainer.run.last, CPU)["optimizer"]["state"]
    for index, parameter in enumerate(trainer.task.model.parameters()):
        assert parameter.grad is not None
        torch.testing.assert_close(moments[index]["exp_avg_sq"], 0.1 * parameter.grad**2)


def test_gradients_are_clipped(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(limit=20, clip_norm=1e-3)
    trainer.fit(_silent, stop_after=1)
    gradients = [p.grad for p in trainer.task.model.parameters() if p.grad is not None]
    assert torch.cat([gradient.flatten() for gradient in gradients]).norm().item() == pytest.approx(1e-3, rel=1e-2)


def test_a_model_that_was_evaluated_before_is_trained_with_dropout(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(limit=20)
    trainer.task.model.eval()
    trainer.fit(_silent, stop_after=1)
    assert trainer.task.model.training


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_an_error(
    value: float, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(limit=20)
    monkeypatch.setattr(
        trainer.task, "loss", lambda batch: (value * trainer.task.model.output_layer.weight.sum().abs(), 1)
    )
    with pytest.raises(FloatingPointError, match=rf"loss is {value} at step 0; try a lower learning_rate"):
        trainer.fit(_silent)
    assert not trainer.run.last.exists()


# ---- evaluation -------------------------------------------------------------------------------------------


def _with_metrics(trainer: Trainer, metrics: list[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the development set's perplexities; notes a weight at each evaluation."""
    values, weights = iter(metrics), []

    def evaluate(batches: object) -> Perplexity:
        weights.append(trainer.task.model.output_layer.weight[0, 0].item())
        return Perplexity(-math.log(next(values)), 1)

    monkeypatch.setattr(trainer.task, "evaluate", evaluate)
    return weights


def test_patience_ends_training_and_the_best_model_is_kept(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(limit=20, epochs=9, patience=2)
    weights = _with_metrics(trainer, [5, 4, 6, 4.5, 1, 1, 1, 1, 1], monkeypatch)
    progress = trainer.fit(_silent)
    assert [round(each.metric, 6) for each in progress.history] == [5, 4, 6, 4.5]
    assert checkpoint.load(trainer.run.best, CPU)["model"]["output_layer.weight"][0, 0].item() == weights[1]
    assert len(set(weights)) == 4


def test_where_more_is_better_the_highest_is_kept(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LanguageModelTask, "maximize", True)
    trainer = make_trainer(limit=20, epochs=9, patience=2)
    weights = _with_metrics(trainer, [5, 7, 6, 6.5, 9, 9, 9, 9, 9], monkeypatch)
    assert len(trainer.fit(_silent).history) == 4
    assert checkpoint.load(trainer.run.best, CPU)["model"]["output_layer.weight"][0, 0].item() == weights[1]


def test_the_average_is_kept_while_training_goes_on_from_the_last(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluated model is the mean over the last two steps."""
    trainer = make_trainer(limit=20, epochs=1, average=2, snapshot_steps=1)
    seen = _with_metrics(trainer, [5], monkeypatch)
    after: list[float] = []
    step = trainer._step

    def noted(batches: list[Batch]) -> Tensor:
        norm = step(batches)
        after.append(trainer.task.model.output_layer.weight[0, 0].item())
        return norm

    monkeypatch.setattr(trainer, "_step", noted)
    trainer.fit(_silent)
    assert len(after) >= 2
    assert seen == [pytest.approx((after[-1] + after[-2]) / 2)]
    first = {name: checkpoint.load(getattr(trainer.run, name), CPU)["model"] for name in ("best", "last")}
    assert first["best"]["output_layer.weight"][0, 0].item() == seen[0]
    assert first["last"]["output_layer.weight"][0, 0].item() == after[-1]


def test_averages_that_cannot_be_are_said(make_trainer: MakeTrainer) -> None:
    lines: list[str] = []
    make_trainer(limit=20, epochs=1, average=2).fit(lines.append)
    assert any(re.fullmatch(r"loop[.]average has no effect: \d updates are fewer than .*", line) for line in lines)
    trainer = make_trainer(limit=20, epochs=1)
    trainer.task.model.norm = torch.nn.BatchNorm2d(1)
    with pytest.raises(ValueError, match="weights of a network with batch normalization cannot be averaged"):
        Trainer(trainer.task, trainer.run, trainer.settings.model_copy(update={"average": 2}))


def test_every_improvement_renews_patience(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(limit=20, epochs=6, patience=2)
    _with_metrics(trainer, [5, 6, 4, 6, 3, 6], monkeypatch)
    assert len(trainer.fit(_silent).history) == 6


def test_the_best_weights_are_written_for_other_programs(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(limit=20, epochs=1)
    trainer.fit(_silent)
    best, weights = checkpoint.load(trainer.run.best, CPU)["model"], load_file(trainer.run.best_weights)
    assert best.keys() == weights.keys()
    assert all(torch.equal(best[name], weights[name]) for name in best)


def test_what_happened_is_reported_and_written(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.run.progress.INTERVAL", 9999.0)  # a slow machine would have lines of its own
    trainer = make_trainer(epochs=2)
    lines: list[str] = []
    progress = trainer.fit(lines.append)
    first = progress.history[0]
    assert lines[0].startswith(f"epoch 1: train loss {first.train_loss:.4f}, dev perplexity {first.metric:.3f}, ")
    assert re.search(r", \d+ s of training$", lines[0])
    assert len(lines) == 2
    assert progress.history[-1].seconds == progress.seconds > first.seconds > 0
    events = EventAccumulator(str(trainer.run.path)).Reload()
    dev = [(event.step, event.value) for event in events.Scalars("dev/perplexity")]
    assert dev == [(each.step, pytest.approx(each.metric)) for each in progress.history]
    assert [event.step for event in events.Scalars("train/loss")] == list(range(50, progress.step + 1, 50)) != []
    assert all(0 < event.value < 1e3 for event in events.Scalars("train/gradient_norm"))
    assert all(event.value > 1 for event in events.Scalars("train/targets_per_second"))


# ---- precision --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "native", "used"),
    [("float32", True, False), ("bfloat16", False, True), ("auto", True, True), ("auto", False, False)],
)
def test_autocast_is_used_where_asked_for_or_native(
    precision: str, native: bool, used: bool, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.run.optimization.native_bfloat16", lambda device: native)
    trainer, seen = make_trainer(limit=20, precision=precision), []

    def loss(batch: Batch) -> tuple[Tensor, int]:
        seen.append(torch.is_autocast_enabled("cpu"))
        return trainer.task.model.output_layer.weight.sum(), 1

    monkeypatch.setattr(trainer.task, "loss", loss)
    trainer.fit(_silent, stop_after=1)
    assert seen == [used]


def test_bfloat16_trains_float32_weights(make_trainer: MakeTrainer) -> None:
    progress = make_trainer(limit=80, epochs=2, precision="bfloat16").fit(_silent)
    assert all(math.isfinite(each.train_loss) and math.isfinite(each.metric) for each in progress.history)
    assert progress.history[1].train_loss < progress.history[0].train_loss
    content = checkpoint.load(make_trainer().run.last, CPU)
    assert all(value.dtype == torch.float32 for value in content["model"].values() if value.is_floating_point())


def test_float16_is_refused_on_a_processor(make_trainer: MakeTrainer) -> None:
    with pytest.raises(ValueError, match=r"loop\.precision: float16 needs a GPU"):
        make_trainer(precision="float16")
