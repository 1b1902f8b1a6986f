"""Tests of the translation task: its data, its loss, its BLEU, and that it is learnt with any output layer."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
from tokenizers import Tokenizer

from training.bundling.bundle import WrittenBundle
from training.data.batching import IGNORED
from training.data.pair_batching import PairBatches
from training.data.tokenization import build_subword_tokenizer
from training.recipe.loading import parse_recipe
from training.run import checkpoint
from training.run.directory import Progress, RunDirectory
from training.run.loop import Trainer
from training.run.session import load_trained, start_run
from training.softmax import GeneralizedSoftmax
from training.tasks.translation import TranslationTask
from training.tasks.translation.initial import weights_for_vocabulary
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.settings import PairSettings, TranslationRecipe
from training.tasks.translation.task import build_model

CPU = torch.device("cpu")
LAYERS: list[dict[str, Any]] = [
    {"kernels": "lin", "label_smoothing": 0.05},
    {"kernels": "ssg"},
    {"kernels": "mog"},
    {"kernels": "lin, pow"},
    {"kernels": "lin", "sparse_k": 10},
    {"kernels": "pow, copy", "label_smoothing": 0.05},
]
TrainPairs = Callable[..., Trainer]
MakeTask = Callable[..., TranslationTask]


@pytest.fixture
def make_task(pairs_recipe: TranslationRecipe, tiny_data_dir: Path) -> MakeTask:
    """An untrained task with other data settings."""

    def make(**data: Any) -> TranslationTask:
        recipe = pairs_recipe.model_copy(update={"data": pairs_recipe.data.model_copy(update=data)})
        torch.manual_seed(0)
        return TranslationTask(recipe, TranslationTask.build_tokenizer(recipe, tiny_data_dir), tiny_data_dir, CPU)

    return make


@pytest.fixture(scope="module")
def trained(pairs_run: RunDirectory, tiny_data_dir: Path) -> TranslationTask:
    task = load_trained(pairs_run, tiny_data_dir, "cpu")
    assert isinstance(task, TranslationTask)
    return task


# ---- learning ---------------------------------------------------------------------------------------------


def test_numerals_are_learnt(trained: TranslationTask) -> None:
    assert trained.evaluate(trained.batches("test")).bleu > 90


def test_examples_make_bleu(train_pairs: TrainPairs, tmp_path: Path) -> None:
    """Of a model that has learnt half: its n-grams and lengths differ from those of the references."""
    trainer = train_pairs(tmp_path, loop={"epochs": 3})
    trainer.fit(lambda line: None)
    task = trainer.task
    measurement = task.measure("test")
    bleu, examples = measurement.metrics["BLEU"], measurement.examples
    assert examples is not None
    assert 0 < bleu < 90
    assert examples.value == pytest.approx(bleu)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_numerals_are_learnt_with_any_output_layer(
    layer: dict[str, Any], train_pairs: TrainPairs, tmp_path: Path
) -> None:
    epochs = 11 if "label_smoothing" in layer else 9
    progress = train_pairs(tmp_path, output_layer=layer, loop={"epochs": epochs}).fit(lambda line: None)
    assert progress.best is not None
    assert progress.best.metric > 90


def test_the_best_has_the_highest_bleu(pairs_run: RunDirectory, trained: TranslationTask) -> None:
    progress = checkpoint.load(pairs_run.last, CPU)["progress"]
    best = max(evaluation["metric"] for evaluation in progress["history"])
    assert trained.evaluate(trained.batches("dev")).bleu == pytest.approx(best)


# ---- resuming ---------------------------------------------------------------------------------------------


def _results(progress: Progress) -> list[tuple[int, int, float, float]]:
    return [(each.epoch, each.step, each.train_loss, each.metric) for each in progress.history]


def test_resuming_is_exact(train_pairs: TrainPairs, tmp_path: Path) -> None:
    """With dropout, and stops between snapshots, of which the average is evaluated and kept."""
    sections = {
        "data": {"limit": 120, "batch_tokens": 100},
        "network": {"dropout": 0.2},
        "loop": {"epochs": 3, "average": 3, "snapshot_steps": 2, "precision": "float32"},
    }
    whole = train_pairs(tmp_path / "whole", **sections)
    whole.fit(lambda line: None)
    steps = whole.progress.step // 3
    assert steps > 4
    for seed, stop_after in enumerate([1, 4, steps, None]):
        parts = train_pairs(tmp_path / "parts", seed=90 + seed if seed else 1, **sections)
        parts.fit(lambda line: None, stop_after=stop_after)
    assert _results(parts.progress) == _results(whole.progress)
    for file in ("last", "best"):
        ours, theirs = (checkpoint.load(getattr(each.run, file), CPU)["model"] for each in (parts, whole))
        assert all(torch.equal(ours[name], value) for name, value in theirs.items())


# ---- lengths ----------------------------------------------------------------------------------------------


def test_sources_longer_than_the_positions_are_cut_off(make_task: MakeTask) -> None:
    task = make_task()
    task.model.network.positions = task.model.network.positions[:5]
    with pytest.warns(UserWarning, match=r"^\d+ sources of dev are cut off after 4 tokens"):
        batches = task.batches("dev")
    sources = [batch.source.shape[1] for batch in batches.epoch(0)]
    assert max(sources) == 5
    quality = task.evaluate(batches)  # an untrained model that does not end its translations
    assert len(quality.translations) == 40


def test_pairs_that_are_left_out_are_counted(make_task: MakeTask) -> None:
    with pytest.warns(UserWarning, match=r"\d+ of \d+ training pairs are left out: they do not have 1 to 4 tokens"):
        make_task(max_tokens=4).batches("train")
    with pytest.raises(ValueError, match=r"^data\.max_tokens: no training pair has 1 to 1 tokens"):
        make_task(max_tokens=1).batches("train")


# ---- evaluation -------------------------------------------------------------------------------------------


def test_translations_are_in_the_order_of_the_split(trained: TranslationTask, tiny_data_dir: Path) -> None:
    """Batches are sorted by length, so order is not for free."""
    quality = trained.evaluate(trained.batches("test"))
    sources = [source for source, _ in split_pairs(trained.recipe.data, "test", tiny_data_dir)]
    assert [text.count(" ") for text in sources] != sorted(text.count(" ") for text in sources)
    for source, translation in zip(sources, quality.translations, strict=True):
        ids = torch.tensor([[*trained.tokenizer.encode_batch([source])[0], trained.tokenizer.end_id]])
        lengths = torch.tensor([ids.shape[1]])
        alone = trained.model.greedy(ids, lengths, end_id=trained.tokenizer.end_id, max_tokens=99)
        assert trained.tokenizer.decode_batch(alone) == [translation]


def test_bleu_is_sacrebleu_s(trained: TranslationTask, tiny_data_dir: Path) -> None:
    quality = trained.evaluate(trained.batches("test"))
    references = [target for _, target in split_pairs(trained.recipe.data, "test", tiny_data_dir)]
    assert quality.value == quality.bleu == sacrebleu.corpus_bleu(quality.translations, [references]).score
    assert "case:mixed" in quality.signature
    assert "tok:13a" in quality.signature


def test_evaluate_is_without_dropout_and_leaves_the_mode(make_task: MakeTask) -> None:
    task = make_task(limit=5)
    task.model.train()
    dev = task.batches("dev")
    assert task.evaluate(dev) == task.evaluate(dev)
    assert task.model.training
    task.model.eval()
    task.evaluate(dev)
    assert not task.model.training


def test_translations_that_do_not_end_are_cut(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """At one and a half times the source, its end included, and ten more."""
    task, seen = make_task(limit=3), []

    def greedy(source: torch.Tensor, lengths: torch.Tensor, *, end_id: int, max_tokens: int) -> list[list[int]]:
        seen.append((source.shape[1], max_tokens))
        return [[5]] * source.shape[0]

    monkeypatch.setattr(task.model, "greedy", greedy)
    task.evaluate(task.batches("dev"))
    assert seen
    assert all(most == int(1.5 * width) + 10 for width, most in seen)


# ---- loss -------------------------------------------------------------------------------------------------


def test_loss_is_summed_over_targets(make_task: MakeTask) -> None:
    """A fresh model knows nothing: about ln V nats a target, padding left out."""
    task = make_task()
    task.model.eval()
    batch = next(iter(PairBatches([([5], [6, 7, 8]), ([9, 10], [11])], end_id=1, batch_tokens=99).epoch(0)))
    loss, count = task.loss(batch)
    assert count == int((batch.targets != IGNORED).sum()) == 4 + 2
    assert loss.item() == pytest.approx(6 * math.log(task.tokenizer.vocab_size), rel=0.25)
    alone = [PairBatches([pair], end_id=1, batch_tokens=1) for pair in (([5], [6, 7, 8]), ([9, 10], [11]))]
    parts = [task.loss(next(iter(batches.epoch(0)))) for batches in alone]
    assert sum(part.item() for part, _ in parts) == pytest.approx(loss.item(), rel=1e-5)


def test_there_is_no_state_between_batches(make_task: MakeTask) -> None:
    task = make_task()
    assert task.state_dict() == {}
    task.load_state_dict({})


# ---- data -------------------------------------------------------------------------------------------------


def _texts(task: TranslationTask, batches: PairBatches) -> dict[int, tuple[str, str]]:
    found: dict[int, tuple[str, str]] = {}
    for batch in batches.epoch(0):
        sources = [row[: length - 1].tolist() for row, length in zip(batch.source, batch.source_lengths, strict=True)]
        targets = [row[row != IGNORED].tolist() for row in batch.targets]
        texts = zip(task.tokenizer.decode_batch(sources), task.tokenizer.decode_batch(targets), strict=True)
        found |= zip(batch.indices.tolist(), texts, strict=True)
    return found


@pytest.mark.parametrize("split", ["train", "dev"])
def test_batches_hold_the_split(split: str, make_task: MakeTask, tiny_data_dir: Path) -> None:
    task = make_task()
    found = _texts(task, task.batches(split))
    assert [found[index] for index in range(len(found))] == split_pairs(task.recipe.data, split, tiny_data_dir)


def test_either_column_can_be_the_source(make_task: MakeTask) -> None:
    task = make_task(source="en", target="de", limit=3)
    source, target = _texts(task, task.batches("dev"))[0]
    assert source.split()[0] in ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    assert len(source.split()) == len(target.split())


def test_only_training_batches_are_shuffled_and_lack_what_is_too_long_or_empty(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [("eins", "one"), ("", "two"), ("drei", ""), ("eins " * 8, "one"), ("vier", "four " * 8), ("neun", "nine")]
    task = make_task(max_tokens=7)
    for module in ("reading", "task"):
        monkeypatch.setattr(f"training.tasks.translation.{module}.split_pairs", lambda data, split, data_dir: pairs)
    with pytest.warns(UserWarning, match="4 of 6 training pairs are left out"):
        batches = task.batches("train")
    assert set(_texts(task, batches).values()) == {("eins", "one"), ("neun", "nine")}
    assert len(_texts(task, task.batches("dev"))) == len(pairs)
    monkeypatch.undo()
    for split, same in (("train", False), ("dev", True)):
        batches = task.batches(split)
        first, second = ([batch.indices.tolist() for batch in batches.epoch(number)] for number in (0, 1))
        assert (first == second) is same


def test_digits_can_be_tokens_of_their_own(make_task: MakeTask) -> None:
    tokenizer = make_task(separate_digits=True).tokenizer
    text = "Gleis 4711, um 14:35 Uhr: 3,50 €"
    tokens = [tokenizer.word(token) for token in tokenizer.encode_batch([text])[0]]
    assert [token for token in tokens if any(each.isdigit() for each in token)] == list("47111435350")
    assert tokenizer.decode_batch(tokenizer.encode_batch([text])) == [text]


def _starting_from(run: Path, recipe: TranslationRecipe, **output_layer: Any) -> TranslationRecipe:
    layer = recipe.output_layer.model_copy(update=output_layer)
    return recipe.model_copy(update={"initial": str(run), "output_layer": layer})


def test_a_run_can_start_from_another(
    pairs_run: RunDirectory, pairs_recipe: TranslationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    recipe, run = _starting_from(pairs_run.path, pairs_recipe), RunDirectory(tmp_path / "second")
    start_run(recipe, run, tiny_data_dir)
    task = TranslationTask.open(recipe, run, tiny_data_dir, CPU)
    assert run.tokenizer.read_text() == pairs_run.tokenizer.read_text()
    assert task.evaluate(task.batches("dev")).bleu < 10
    task.initialize()
    assert task.evaluate(task.batches("dev")).bleu > 90


def test_a_run_can_start_from_a_bundle(
    pairs_run: RunDirectory,
    pairs_export: WrittenBundle,
    pairs_recipe: TranslationRecipe,
    tiny_data_dir: Path,
    tmp_path: Path,
) -> None:
    recipe, run = _starting_from(pairs_export.path, pairs_recipe), RunDirectory(tmp_path / "second")
    start_run(recipe, run, tiny_data_dir)
    task = TranslationTask.open(recipe, run, tiny_data_dir, CPU)
    assert run.tokenizer.read_text() == pairs_run.tokenizer.read_text()
    task.initialize()
    assert task.evaluate(task.batches("dev")).bleu > 90
    assert recipe.sources() == pairs_recipe.sources()


def test_a_run_that_starts_from_another_names_its_data_too(
    pairs_run: RunDirectory, pairs_recipe: TranslationRecipe
) -> None:
    own = PairSettings.model_validate({"files": {"train": "own.tsv"}, "source": "de", "target": "en"})
    recipe = _starting_from(pairs_run.path, pairs_recipe).model_copy(update={"data": own})
    assert recipe.sources() == [*own.sources(), *pairs_recipe.sources()]
    assert _starting_from(pairs_run.path, pairs_recipe).sources() == pairs_recipe.sources()


def test_what_a_run_cannot_start_from(
    pairs_run: RunDirectory, pairs_recipe: TranslationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match=r"initial: .*nowhere is no bundle .* and no run directory"):
        start_run(_starting_from(tmp_path / "nowhere", pairs_recipe), RunDirectory(tmp_path / "second"), tiny_data_dir)
    other, earlier = _starting_from(pairs_run.path, pairs_recipe, kernels="lin, pow"), RunDirectory(tmp_path / "third")
    earlier.start(other)
    with pytest.raises(ValueError, match=r"initial: .* has another network or output layer: .*prior"):
        start_run(other, earlier, tiny_data_dir)
    assert earlier.recipe() == other  # it is not removed


def test_digits_become_tokens_when_a_run_starts_from_another(
    pairs_run: RunDirectory, pairs_recipe: TranslationRecipe, tiny_data_dir: Path
) -> None:
    data = pairs_recipe.data.model_copy(update={"separate_digits": True})
    recipe = _starting_from(pairs_run.path, pairs_recipe).model_copy(update={"data": data})
    tokenizer, earlier = (TranslationTask.build_tokenizer(each, tiny_data_dir) for each in (recipe, pairs_recipe))
    assert [tokenizer.word(token) for token in tokenizer.encode_batch(["14"])[0]] == ["Ġ", "1", "4"]
    assert [tokenizer.word(token) for token in range(300)] == [earlier.word(token) for token in range(300)]


def test_a_run_can_start_from_another_with_a_vocabulary_of_its_own(
    pairs_run: RunDirectory, pairs_recipe: TranslationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    data = pairs_recipe.data.model_copy(update={"vocab_size": 300})
    recipe = _starting_from(pairs_run.path, pairs_recipe).model_copy(update={"data": data, "new_vocabulary": True})
    run = RunDirectory(tmp_path / "second")
    start_run(recipe, run, tiny_data_dir)
    task = TranslationTask.open(recipe, run, tiny_data_dir, CPU)
    task.initialize()
    assert task.tokenizer.vocab_size == 300
    weights = load_trained(pairs_run, device="cpu").model.state_dict()
    for name, value in task.model.state_dict().items():
        if name.startswith("network."):
            torch.testing.assert_close(value, weights[name])


def test_a_run_can_start_from_another_with_more_layers_which_change_nothing(
    pairs_run: RunDirectory, pairs_recipe: TranslationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    sizes = pairs_recipe.network
    layers = {"encoder_layers": sizes.encoder_layers + 2, "decoder_layers": sizes.decoder_layers + 1}
    network = sizes.model_copy(update=layers)
    recipe = _starting_from(pairs_run.path, pairs_recipe).model_copy(update={"network": network})
    run = RunDirectory(tmp_path / "second")
    start_run(recipe, run, tiny_data_dir)
    task, earlier = TranslationTask.open(recipe, run, tiny_data_dir, CPU), load_trained(pairs_run, device="cpu")
    task.initialize()
    models = [each.model.eval() for each in (task, earlier)]
    assert sum(map(torch.numel, models[0].parameters())) > sum(map(torch.numel, models[1].parameters()))
    for batch in task.batches("dev").epoch(0):
        given = batch.source, batch.source_lengths, batch.inputs
        torch.testing.assert_close(*(model(*given) for model in models))
    task.model.train()
    loss, _ = task.loss(next(iter(task.batches("train").epoch(0))))
    loss.backward()
    last = task.model.network.encoder[-1].feed_forward.outer.weight
    assert last.grad is not None
    assert last.grad.abs().max() > 0


def test_more_layers_need_pre_norm(
    pairs_run: RunDirectory, pairs_recipe: TranslationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    network = pairs_recipe.network.model_copy(update={"norm": "post", "encoder_layers": 9})
    recipe = _starting_from(pairs_run.path, pairs_recipe).model_copy(update={"network": network})
    with pytest.raises(ValueError, match=r"initial: .* has another network or output layer: network\."):
        start_run(recipe, RunDirectory(tmp_path / "second"), tiny_data_dir)


def test_word_vectors_of_new_tokens_are_means_of_those_that_spell_them(tmp_path: Path) -> None:
    texts = ["der Hund und die Hunde", "das Haus und die Häuser", "wo wohnt der Hund"]
    small, large = (build_subword_tokenizer(texts * 5, vocab_size=size) for size in (270, 290))
    small.save(tmp_path / "small.json")
    table = torch.randn(small.vocab_size, 8, generator=torch.Generator().manual_seed(1))
    layers = [GeneralizedSoftmax(each.vocab_size, 8, "cos") for each in (small, large)]
    given = {
        "output_layer.weight": table,
        "output_layer._extra_state": layers[0].get_extra_state(),
        "network.norm": torch.ones(small.vocab_size),
    }
    found = weights_for_vocabulary(given, tmp_path / "small.json", large)
    assert found["network.norm"] is given["network.norm"]
    assert torch.equal(found["output_layer._extra_state"], layers[1].get_extra_state())
    merges = Tokenizer.from_file(str(tmp_path / "small.json"))
    new = 0
    for row, word in zip(found["output_layer.weight"], map(large.word, range(large.vocab_size)), strict=True):
        if (known := merges.token_to_id(word)) is not None:
            torch.testing.assert_close(row, table[known])
        else:
            new += 1
            parts = table[[each.id for each in merges.model.tokenize(word)]]
            assert len(parts) > 1
            torch.testing.assert_close(row.norm(), parts.norm(dim=1).mean())
            assert torch.cosine_similarity(row, parts.mean(0), dim=0) == pytest.approx(1)
    assert new == large.vocab_size - small.vocab_size > 0


def test_a_vocabulary_of_its_own_is_for_runs_that_start_from_another(pairs_recipe: TranslationRecipe) -> None:
    content = pairs_recipe.model_dump() | {"new_vocabulary": True}
    with pytest.raises(ValueError, match="new_vocabulary is for a run that starts from a model: set initial too"):
        parse_recipe(content)


def test_the_vocabulary_is_joint(make_task: MakeTask) -> None:
    task = make_task()
    words = {task.tokenizer.word(token) for token in range(task.tokenizer.vocab_size)}
    assert {"Ġzwei", "Ġtwo"} <= words
    assert task.tokenizer.vocab_size <= 330


def test_the_model_is_what_the_recipe_describes(pairs_recipe: TranslationRecipe) -> None:
    network = pairs_recipe.network.model_copy(update={"norm": "post", "encoder_layers": 3, "dropout": 0.25})
    model = build_model(pairs_recipe.model_copy(update={"network": network}), 17)
    assert model.output_layer.weight.shape == (17, 32)
    assert [kernel.name for kernel in model.output_layer.components()] == ["pow"]
    assert (len(model.network.encoder), len(model.network.decoder)) == (3, 1)
    layer = model.network.decoder_layers()[0]
    assert (layer.pre, layer.dropout.p, layer.self_attention.heads) == (False, 0.25, 2)
    assert layer.feed_forward.inner.weight.shape == (64, 32)
    assert model.network.dropout.p == 0.25
