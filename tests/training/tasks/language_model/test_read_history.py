"""Tests of language models whose output layer reads the words before a position."""

from pathlib import Path
from typing import Any

import pytest
import torch

from training.data.batching import IGNORED, Batch, StreamBatches
from training.recipe import Recipe
from training.recipe.loading import parse_recipe
from training.softmax import Memory
from training.tasks.language_model import LanguageModelTask
from training.tasks.language_model.export import LanguageModelExport
from training.tasks.language_model.perplexity import Perplexity
from training.tasks.language_model.settings import LanguageModelRecipe

CPU = torch.device("cpu")
CACHE = {"name": "cache", "theta": 1.0, "window": None, "weight": 0.3}


def _with(recipe: Recipe, kernels: Any, **data: Any) -> Recipe:
    content = recipe.model_dump()
    content["output_layer"] |= {"kernels": kernels, "untied": None, "label_smoothing": 0.0, "bias": True}
    content["data"] |= {"context": "stream", "stream_steps": 4, "batch_tokens": 8, **data}
    return type(recipe).model_validate(content)


def _task(recipe: Recipe, kernels: Any, data_dir: Path, **data: Any) -> LanguageModelTask:
    recipe = _with(recipe, kernels, **data)
    assert isinstance(recipe, LanguageModelRecipe)
    torch.manual_seed(0)
    return LanguageModelTask(recipe, LanguageModelTask.build_tokenizer(recipe, data_dir), data_dir, CPU)


@torch.no_grad()
def _whole(task: LanguageModelTask, split: str) -> list[float]:
    """The log-probabilities of the words of a split that is read at once."""
    sentences = task._encoded(split)
    total = len(sentences.tokens) + len(sentences)
    (batch,) = StreamBatches(sentences, end_id=task.tokenizer.end_id, num_streams=1, steps=total).epoch(0)
    task.model.eval()
    hidden, _ = task.model(batch.inputs, task.model.initial_state(1))
    history, _ = Memory.empty(hidden).read(hidden, batch.targets, None)
    found: list[float] = task.model.output_layer.target_log_prob(hidden, batch.targets, history=history)[0].tolist()
    return found


@pytest.mark.parametrize("kernels", [["lin", CACHE], ["lin", "pointer"], ["2*lin", "cache", "unigram"]], ids=str)
def test_batches_of_a_stream_see_the_words_of_all_before(
    tiny_recipe: Recipe, tiny_data_dir: Path, kernels: Any
) -> None:
    task = _task(tiny_recipe, kernels, tiny_data_dir)
    expected = Perplexity.of(_whole(task, "dev"))
    assert task.evaluate(task.batches("dev")).value == pytest.approx(expected.value, rel=1e-5)
    assert task.measure("dev").metrics["perplexity"] == pytest.approx(expected.value, rel=1e-5)


def test_sentences_see_their_own_words_alone(tiny_recipe: Recipe, tiny_data_dir: Path) -> None:
    """Padding and the other sentences of a batch have no influence."""
    task = _task(tiny_recipe, ["lin", CACHE], tiny_data_dir, context="sentence", batch_tokens=64)
    alone = _task(tiny_recipe, ["lin", CACHE], tiny_data_dir, context="sentence", batch_tokens=1)
    alone.model.load_state_dict(task.model.state_dict())
    values = [each.evaluate(each.batches("dev")).value for each in (task, alone)]
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_evaluation_leaves_the_memory_of_training_as_it_was(tiny_recipe: Recipe, tiny_data_dir: Path) -> None:
    task = _task(tiny_recipe, ["lin", "pointer"], tiny_data_dir)
    task.loss(next(iter(task.batches("train").epoch(0))))
    memory = task._memory
    task.evaluate(task.batches("dev"))
    assert memory is not None
    assert task._memory is memory


def test_the_memory_survives_a_round_trip(tiny_recipe: Recipe, tiny_data_dir: Path) -> None:
    task = _task(tiny_recipe, ["lin", "pointer"], tiny_data_dir)
    first, second, *_ = task.batches("train").epoch(0)
    task.loss(first)
    resumed = _task(tiny_recipe, ["lin", "pointer"], tiny_data_dir)
    resumed.model.load_state_dict(task.model.state_dict())
    resumed.load_state_dict(task.state_dict())
    losses = []
    for each in (task, resumed):
        torch.manual_seed(1)  # of dropout
        losses.append(each.loss(second)[0].item())
    assert losses[0] == losses[1]


def test_a_constant_cache_is_left_out_of_training(tiny_recipe: Recipe, tiny_data_dir: Path) -> None:
    task, plain = (_task(tiny_recipe, kernels, tiny_data_dir) for kernels in (["lin", CACHE], "lin"))
    losses = []
    for each in (task, plain):
        torch.manual_seed(1)
        losses.append([each.loss(batch)[0].item() for batch in each.batches("train").epoch(0)])
    assert losses[0] == losses[1]
    assert task._memory is None


def test_a_pointer_learns_to_repeat_a_random_word() -> None:
    """Words come in pairs, `a a b b ...`: the second of each is known to who reads the text, the first is random."""
    from training.networks.language_model import RecurrentLanguageModel
    from training.networks.lstm import LSTM
    from training.softmax import GeneralizedSoftmax

    torch.manual_seed(0)
    layer = GeneralizedSoftmax(50, 16, ["lin", {"name": "pointer", "window": 4}])
    model = RecurrentLanguageModel(LSTM(16, 1), layer)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(150):
        words = torch.randint(50, (8, 11)).repeat_interleave(2, dim=1)
        hidden, _ = model(words[:, :-1], model.initial_state(8))
        history, _ = Memory.empty(hidden).read(hidden, words[:, 1:], layer.window)
        loss = layer.loss(hidden, words[:, 1:], history=history)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = layer.mixture_weights(hidden, history)[:, 1:, 1].detach()  # after the first word, which is in no history
    first, second = weights[:, 0::2].mean().item(), weights[:, 1::2].mean().item()
    assert second > 0.8
    assert second > first + 0.5


def test_a_unigram_component_starts_at_the_words_log_frequencies(tiny_recipe: Recipe, tiny_data_dir: Path) -> None:
    task = _task(tiny_recipe, ["lin", "unigram"], tiny_data_dir)
    task.initialize()
    (unigram,) = task.model.output_layer.other_components()
    torch.testing.assert_close(unigram.logits, task.model.output_layer.bias)


def test_a_history_without_a_bound_is_not_exported(tiny_recipe: Recipe, tiny_data_dir: Path) -> None:
    task = _task(tiny_recipe, ["lin", CACHE], tiny_data_dir)
    with pytest.raises(ValueError, match="window is null cannot be exported"):
        LanguageModelExport(task)


def test_other_tasks_refuse_components_that_read_the_history() -> None:
    content: dict[str, Any] = {
        "name": "a",
        "task": "text-classification",
        "data": {"corpus": "clinc150"},
        "output_layer": {"kernels": "lin, cache"},
    }
    with pytest.raises(ValueError, match="components that are not kernels are for language-model"):
        parse_recipe(content)


def test_margins_are_for_classifiers(tiny_recipe: Recipe) -> None:
    with pytest.raises(
        ValueError, match=r"output_layer\.angular_margin: margins are for classifiers, not language-model"
    ):
        parse_recipe({**tiny_recipe.model_dump(), "output_layer": {"kernels": "cos", "angular_margin": 0.5}})


def test_ignored_targets_count_for_nothing(tiny_recipe: Recipe, tiny_data_dir: Path) -> None:
    task = _task(tiny_recipe, ["lin", "pointer"], tiny_data_dir)
    targets = torch.tensor([[2, 3, IGNORED]])
    task.model.eval()
    loss, count = task.loss(Batch(torch.tensor([[1, 2, 3]]), targets, continues=False))
    shorter, _ = task.loss(Batch(torch.tensor([[1, 2]]), targets[:, :2], continues=False))
    assert count == 2
    assert loss.item() == pytest.approx(shorter.item())
