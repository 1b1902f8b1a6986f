"""Tests of the language-model task: its data, its loss, its perplexity, its recurrent state."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from training.data.batching import IGNORED, Batch, SentenceBatches, StreamBatches
from training.data.corpus import Corpus
from training.data.mapped_tokens import MappedTokens
from training.recipe import Recipe
from training.recipe.loading import parse_recipe
from training.tasks.language_model import LanguageModelTask
from training.tasks.language_model.perplexity import Perplexity
from training.tasks.language_model.reading import encoded_split, split_texts
from training.tasks.language_model.settings import LanguageModelRecipe
from training.tasks.language_model.task import build_model

CPU = torch.device("cpu")
MakeTask = Callable[..., LanguageModelTask]


def _changed(recipe: Recipe, **data: Any) -> Recipe:
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=data)})


@pytest.fixture
def make_task(tiny_recipe: Recipe, tiny_data_dir: Path) -> MakeTask:
    """A task of the tiny recipe with other data settings, untrained."""

    def make(**data: Any) -> LanguageModelTask:
        recipe = _changed(tiny_recipe, **data)
        torch.manual_seed(0)
        tokenizer = LanguageModelTask.build_tokenizer(recipe, tiny_data_dir)
        return LanguageModelTask(recipe, tokenizer, tiny_data_dir, CPU)

    return make


# ---- examples ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", ["sentence", "stream"])
@pytest.mark.parametrize("options", [{}, {"sparse_k": 2}, {"kernels": "lin", "alpha": 1.5}], ids=str)
def test_examples_make_the_perplexity(
    tiny_recipe: Recipe, tiny_data_dir: Path, context: str, options: dict[str, Any]
) -> None:
    layer = tiny_recipe.output_layer.model_copy(update=options)
    recipe = _changed(tiny_recipe.model_copy(update={"output_layer": layer}), context=context)
    tokenizer = LanguageModelTask.build_tokenizer(recipe, tiny_data_dir)
    task = LanguageModelTask(recipe, tokenizer, tiny_data_dir, CPU)
    task._state = state = task.model.initial_state(1)
    measurement = task.measure("dev")
    examples = measurement.examples
    assert examples is not None
    assert task._state is state
    rows = sum(len(batch.targets) for batch in task.batches("dev").epoch(0))
    assert len(examples.statistics) == rows
    assert examples.value == pytest.approx(measurement.metrics[task.metric])
    assert task.evaluate(task.batches("dev")).value == measurement.metrics[task.metric]


def test_training_texts_are_encoded_once(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    task, splits = make_task(), list[str]()

    def encoded(data: Any, split: str, *others: Any) -> MappedTokens:
        splits.append(split)
        return encoded_split(data, split, *others)

    monkeypatch.setattr("training.tasks.language_model.task.encoded_split", encoded)
    for split in ("train", "dev", "train", "dev"):
        assert len(task.batches(split)) > 0
    assert splits == ["train", "dev", "dev"]


# ---- perplexity -------------------------------------------------------------------------------------------


def test_perplexity_by_hand() -> None:
    """Probabilities 1/2 and 1/8: the geometric mean is 1/4."""
    assert Perplexity(math.log(1 / 2) + math.log(1 / 8), 2).value == pytest.approx(4)


def test_perplexity_of_a_hopeless_model_is_infinite() -> None:
    """e^1000 is above every float; a metric must still compare."""
    assert Perplexity(-1000.0, 1).value == math.inf


def test_impossible_tokens_make_it_infinite_but_are_counted() -> None:
    """Probabilities 1/2, 1/8 and 0: two of three tokens are possible, their geometric mean is 1/4."""
    result = Perplexity.of([math.log(1 / 2), -math.inf, math.log(1 / 8)])
    assert result == Perplexity(math.log(1 / 16), 3, 1)
    assert result.value == math.inf
    assert result.of_possible == pytest.approx(4)
    assert result.coverage == pytest.approx(2 / 3)


def test_where_nothing_is_possible_nothing_fails() -> None:
    result = Perplexity.of([-math.inf] * 3)
    assert (result.value, result.of_possible, result.coverage) == (math.inf, math.inf, 0)


def test_where_all_is_possible_coverage_is_whole() -> None:
    result = Perplexity.of([-1.0, -2.0])
    assert (result.coverage, result.of_possible) == (1, result.value)


def _layer_changed(task: LanguageModelTask, **output_layer: Any) -> LanguageModelTask:
    """The same weights with other settings of the output layer."""
    layer = task.recipe.output_layer.model_copy(update=output_layer)
    recipe = task.recipe.model_copy(update={"output_layer": layer})
    other = LanguageModelTask(recipe, task.tokenizer, task.data_dir, CPU)
    other.model.load_state_dict(task.model.state_dict())
    return other


def test_label_smoothing_smooths_the_loss_and_not_the_perplexity(make_task: MakeTask) -> None:
    plain = make_task()
    smooth = _layer_changed(plain, label_smoothing=0.3)
    batches = plain.batches("dev")
    assert smooth.evaluate(batches) == plain.evaluate(batches)
    smooth.model.eval()
    loss, count = smooth.loss(Batch(torch.tensor([[1, 2, 3]]), torch.tensor([[2, 3, 1]]), continues=False))
    with torch.no_grad():
        outputs, _ = smooth.model(torch.tensor([[1, 2, 3]]), smooth.model.initial_state(1))
        log_prob = smooth.model.output_layer.log_prob(outputs[0])
    mixed = 0.7 * log_prob[torch.arange(3), [2, 3, 1]] + 0.3 * log_prob.mean(-1)
    assert (loss.item(), count) == (pytest.approx(-mixed.sum().item(), rel=1e-5), 3)


def test_a_sparse_layer_is_evaluated_as_the_plain_softmax_of_its_scores(make_task: MakeTask) -> None:
    plain = make_task()
    sparse = _layer_changed(plain, sparse_k=3)
    batches = plain.batches("dev")
    assert sparse.evaluate(batches) == plain.evaluate(batches) == plain.evaluate(batches, sparse=True)
    assert (plain.metric, sparse.metric) == ("perplexity", "plain_softmax_perplexity")


def test_an_entmax_layer_is_evaluated_by_its_loss(make_task: MakeTask) -> None:
    plain = make_task()
    layer = plain.recipe.output_layer.model_copy(update={"kernels": "lin", "alpha": 1.5, "label_smoothing": 0.1})
    recipe = plain.recipe.model_copy(update={"output_layer": layer})
    task = LanguageModelTask(recipe, plain.tokenizer, plain.data_dir, CPU)
    assert task.metric == "exponential_of_loss"
    task.model.eval().output_layer.label_smoothing = 0.0
    losses, counts = zip(*(task.loss(batch) for batch in task.batches("dev").epoch(0)), strict=True)
    expected = math.exp(sum(loss.item() for loss in losses) / sum(counts))
    task.model.output_layer.label_smoothing = 0.1
    assert task.evaluate(task.batches("dev")).value == pytest.approx(expected, rel=1e-5)
    assert any("covered" in line for line in task.report("dev"))


def test_what_a_sparse_layer_serves_is_evaluated_on_demand(make_task: MakeTask) -> None:
    task = _layer_changed(make_task(), sparse_k=20)
    result, values = task.evaluate(SentenceBatches([[2], [3, 4, 5, 6]], end_id=1, batch_tokens=2), sparse=True), []
    with torch.no_grad():
        model = task.model.eval()
        for sentence in ([2], [3, 4, 5, 6]):
            outputs, _ = model(torch.tensor([[1, *sentence]]), model.initial_state(1))
            log_prob = model.output_layer.log_prob(outputs[0])
            values += [log_prob[i, word].item() for i, word in enumerate([*sentence, 1])]
    assert 0 < values.count(-math.inf) == result.num_impossible < len(values) == result.num_tokens
    assert result.value == math.inf
    assert result.log_probability == pytest.approx(sum(value for value in values if value > -math.inf), rel=1e-5)


def test_evaluate_is_the_mean_over_tokens_not_batches(make_task: MakeTask) -> None:
    task = make_task()
    batches = SentenceBatches([[2], [3, 4, 5, 6]], end_id=1, batch_tokens=2)
    total = 0.0
    with torch.no_grad():
        model = task.model.eval()
        for sentence in ([2], [3, 4, 5, 6]):
            outputs, _ = model(torch.tensor([[1, *sentence]]), model.initial_state(1))
            log_prob = model.output_layer.log_prob(outputs[0])
            total += sum(log_prob[i, word].item() for i, word in enumerate([*sentence, 1]))
    result = task.evaluate(batches)
    assert result.num_tokens == 7
    assert result.log_probability == pytest.approx(total, rel=1e-5)


def test_padding_changes_nothing(make_task: MakeTask) -> None:
    task, sentences = make_task(), [[2], [3, 4, 5, 6], [7, 8]]
    alone, together = (task.evaluate(SentenceBatches(sentences, end_id=1, batch_tokens=tokens)) for tokens in (1, 100))
    assert together.num_tokens == alone.num_tokens == 10
    assert together.log_probability == pytest.approx(alone.log_probability, rel=1e-5)


def test_evaluate_is_without_dropout_and_leaves_training_as_it_was(make_task: MakeTask) -> None:
    task = make_task(context="stream", stream_steps=5)
    task.model.train()
    task.loss(next(iter(task.batches("train").epoch(0))))
    before = {name: value.clone() for name, value in task.state_dict().items()}
    dev = task.batches("dev")
    assert task.evaluate(dev) == task.evaluate(dev)
    assert task.model.training
    assert all(torch.equal(value, before[name]) for name, value in task.state_dict().items())


# ---- loss -------------------------------------------------------------------------------------------------


def test_loss_is_summed_over_targets(make_task: MakeTask) -> None:
    """A fresh model knows nothing: about ln V nats a target, padding left out."""
    task = make_task()
    task.model.eval()
    batch = Batch(torch.tensor([[1, 2, 3], [1, 4, 1]]), torch.tensor([[2, 3, 1], [4, 1, IGNORED]]), continues=False)
    loss, count = task.loss(batch)
    assert count == 5
    assert loss.item() == pytest.approx(5 * math.log(task.tokenizer.vocab_size), rel=0.1)


def test_a_continued_batch_goes_on_from_the_state(make_task: MakeTask) -> None:
    """Two windows of a stream are worth the same as one of twice the length."""
    task, sentences = make_task(), [[2, 3, 4], [5, 6, 7, 8]]
    task.model.eval()
    whole, parts = (StreamBatches(sentences, end_id=1, num_streams=1, steps=steps).epoch(0) for steps in (9, 3))
    expected = task.loss(next(whole))[0].item()
    losses = [task.loss(batch)[0].item() for batch in parts]
    assert len(losses) == 3
    assert sum(losses) == pytest.approx(expected, rel=1e-5)


def test_gradients_end_at_the_window(make_task: MakeTask) -> None:
    task = make_task()
    first, second = StreamBatches([[2, 3], [4, 5]], end_id=1, num_streams=1, steps=3).epoch(0)
    task.loss(first)[0].backward()
    task.loss(second)[0].backward()  # through the first window it would be a second time through a freed graph
    assert not any(value.requires_grad for value in task.state_dict().values())


def test_sentences_start_afresh(make_task: MakeTask) -> None:
    task = make_task()
    task.model.eval()
    first, second = SentenceBatches([[2, 3], [4, 5, 6]], end_id=1, batch_tokens=4).epoch(0)
    alone = task.loss(second)[0].item()
    task.loss(first)
    assert task.loss(second)[0].item() == alone


def test_the_state_survives_a_round_trip(make_task: MakeTask) -> None:
    task, other = make_task(), make_task()
    assert task.state_dict() == {}
    first, second = StreamBatches([[2, 3], [4, 5]], end_id=1, num_streams=1, steps=3).epoch(0)
    for each in (task, other):
        each.model.eval()
    task.loss(first)
    other.load_state_dict(task.state_dict())
    assert other.loss(second)[0].item() == task.loss(second)[0].item()


# ---- data -------------------------------------------------------------------------------------------------


def test_batches_of_sentences_are_shuffled_in_training_only(make_task: MakeTask) -> None:
    task = make_task()
    train, dev = task.batches("train"), task.batches("dev")
    assert isinstance(train, SentenceBatches)
    for batches, same in ((train, False), (dev, True)):
        first, second = ([batch.inputs.tolist() for batch in batches.epoch(number)] for number in (0, 1))
        assert (first == second) is same
    assert max(batch.inputs.numel() for batch in train.epoch(0)) <= 128


def test_streams_fill_the_token_budget(make_task: MakeTask) -> None:
    """128 tokens a batch in windows of 5 steps: 25 streams in training, one in evaluation."""
    task = make_task(context="stream", stream_steps=5)
    shapes = {split: next(iter(task.batches(split).epoch(0))).inputs.shape for split in ("train", "dev")}
    assert shapes == {"train": (25, 5), "dev": (1, 5)}


def test_a_stream_longer_than_the_budget_is_one_stream(make_task: MakeTask) -> None:
    task = make_task(context="stream", stream_steps=500)
    assert next(iter(task.batches("train").epoch(0))).inputs.shape == (1, 500)


def test_limit_cuts_every_split(tiny_recipe: Recipe, tiny_data_dir: Path) -> None:
    data = _changed(tiny_recipe, limit=7).data
    assert {split: len(split_texts(data, split, tiny_data_dir)) for split in ("train", "dev", "test")} == {
        "train": 7,
        "dev": 7,
        "test": 7,
    }


def test_only_training_data_is_deduplicated(
    tiny_recipe: Recipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def texts(self: Corpus, split: str, data_dir: Path, column: str) -> Any:
        return iter(["b", "a", "b", "c", "a"])

    monkeypatch.setattr(Corpus, "texts", texts)
    data = _changed(tiny_recipe, deduplicate=True).data
    assert split_texts(data, "train", tmp_path) == ["b", "a", "c"]
    assert split_texts(data, "dev", tmp_path) == split_texts(data, "test", tmp_path) == ["b", "a", "b", "c", "a"]
    assert split_texts(_changed(tiny_recipe, deduplicate=True, limit=2).data, "train", tmp_path) == ["b", "a"]


def test_the_vocabulary_is_the_training_split_as_the_recipe_wants_it(tiny_recipe: Recipe, tiny_data_dir: Path) -> None:
    """`yak` is in the training split once."""
    frequent, all_words, cased = (
        LanguageModelTask.build_tokenizer(_changed(tiny_recipe, **data), tiny_data_dir)
        for data in ({}, {"min_count": 1}, {"lowercase": False})
    )
    assert frequent.encode("yak") == [frequent.unknown_id]
    assert all_words.encode("yak") != [all_words.unknown_id]
    assert frequent.encode("One one")[0] == frequent.encode("One one")[1]
    assert cased.encode("One one")[0] != cased.encode("One one")[1]


def test_the_model_is_what_the_recipe_describes(tiny_recipe: Recipe) -> None:
    model = build_model(tiny_recipe, 17)
    assert model.output_layer.weight.shape == (17, 32)
    assert [kernel.name for kernel in model.output_layer.components()] == ["lin", "pow"]
    assert model.output_layer.variance_penalty == 0.1
    assert (model.output_layer.untied, model.output_layer.sparse_k, model.output_layer.label_smoothing) == (
        None,
        None,
        0,
    )
    assert model.network.state_shape == (2, 32)
    assert model.network.dropout.p == model.network.lstm.dropout == model.network.input_dropout.p == 0.1
    assert model.word_vectors is None
    assert model.word_dropout == 0.0
    changes = {
        "input_dropout": 0.4,
        "word_dropout": 0.1,
        "weight_dropout": 0.3,
        "locked_dropout": True,
        "tied": False,
    }
    changed = build_model(tiny_recipe.with_values({f"network.{name}": value for name, value in changes.items()}), 17)
    assert (changed.network.dropout.p, changed.network.input_dropout.p) == (0.1, 0.4)
    assert changed.network.weight_dropout.p == 0.3
    assert changed.word_dropout == 0.1
    assert (changed.network.dropout.locked, changed.network.input_dropout.locked) == (True, True)
    assert changed.word_vectors is not None


@pytest.mark.parametrize("changes", [{"untied": 3, "sparse_k": 5}, {"untied": "full", "label_smoothing": 0.2}], ids=str)
def test_every_field_of_the_output_layer_arrives(tiny_recipe: Recipe, changes: dict[str, Any]) -> None:
    layer = tiny_recipe.output_layer.model_copy(update=changes)
    built = build_model(tiny_recipe.model_copy(update={"output_layer": layer}), 17).output_layer
    assert {name: getattr(built, name) for name in changes} == changes
    shapes = {name: tuple(parameter.shape) for name, parameter in built.named_parameters()}
    if changes["untied"] == "full":
        assert shapes["other_weights"] == (1, 17, 32)
    else:
        assert (shapes["left"], shapes["right"]) == ((2, 17, 3), (2, 3, 32))


def test_a_bias_starts_at_the_words_log_frequencies(tiny_recipe: Recipe, tiny_data_dir: Path) -> None:
    layer = tiny_recipe.output_layer.model_copy(update={"bias": True})
    recipe = tiny_recipe.model_copy(update={"output_layer": layer})
    tokenizer = LanguageModelTask.build_tokenizer(recipe, tiny_data_dir)
    task = LanguageModelTask(recipe, tokenizer, tiny_data_dir, CPU)
    task.initialize()
    bias = task.model.output_layer.bias
    assert bias is not None
    assert float(bias.detach().exp().sum()) == pytest.approx(1)
    sentences = split_texts(recipe.data, "train", tiny_data_dir)
    total = sum(len(tokenizer.encode(text)) + 1 for text in sentences) + tokenizer.vocab_size
    assert float(bias.detach()[tokenizer.end_id].exp()) == pytest.approx((len(sentences) + 1) / total)


def test_keeping_more_words_than_there_are_warns(tiny_recipe: Recipe) -> None:
    layer = tiny_recipe.output_layer.model_copy(update={"sparse_k": 17})
    recipe = tiny_recipe.model_copy(update={"output_layer": layer})
    with pytest.warns(UserWarning, match="sparse_k = 17 has no effect on 17 classes"):
        build_model(recipe, 17)
    build_model(recipe, 18)  # no warning, which would be an error


def test_own_files_are_read_and_lines_too_long_to_measure_are_refused(tiny_recipe: Recipe, tmp_path: Path) -> None:
    lines = [f"word{index} comes here" for index in range(40)]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "dev.txt").write_text("word1 comes here again and again\n", encoding="utf-8")
    content = tiny_recipe.model_dump()
    content["data"] |= {"corpus": None, "files": {"train": "text.txt", "dev": "dev.txt"}, "limit": None, "min_count": 1}
    recipe = parse_recipe(content)
    assert isinstance(recipe, LanguageModelRecipe)
    assert set(split_texts(recipe.data, "train", tmp_path)) < set(lines)
    assert LanguageModelTask.build_tokenizer(recipe, tmp_path).vocab_size == 2 + 38 + 2
    short = recipe.model_copy(update={"export": recipe.export.model_copy(update={"max_tokens": 5})})
    with pytest.raises(ValueError, match=r"export\.max_tokens: a line of dev\.txt \(dev\) has 6 tokens, .* accepts 5;"):
        LanguageModelTask.build_tokenizer(short, tmp_path)
