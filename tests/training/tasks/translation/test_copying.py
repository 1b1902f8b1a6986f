"""Translators that copy from the source: recipes, training from a model that does not copy, names never seen.

The names of the sentences are made up, and those of test sentences occur in no training sentence.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from models.store import load_bundle
from models.tasks.translation import Translator
from models.text.glossary import Glossary
from tests.support.name_pairs import (
    name_recipe,
    name_recipe_content,
    right_translations,
    train_names,
    write_name_pairs,
)
from training.data.batching import IGNORED
from training.recipe.loading import parse_recipe
from training.run import checkpoint
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.loop import Trainer
from training.run.session import load_trained, start_run
from training.softmax import GeneralizedSoftmax, Source
from training.softmax.components import Copy
from training.tasks.translation import TranslationTask
from training.tasks.translation.guided_copying import copying_loss
from training.tasks.translation.initial import weights_for_components
from training.tasks.translation.reading import split_pairs

CPU = torch.device("cpu")
COPY = ["lin", "copy"]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("names")
    write_name_pairs(directory)
    return directory


@pytest.fixture(scope="module")
def plain(data_dir: Path) -> TranslationTask:
    """Trained without copying, in the run directory `plain`."""
    return train_names(name_recipe("lin"), RunDirectory(data_dir / "plain"), data_dir)


@pytest.fixture(scope="module")
def copying(data_dir: Path) -> TranslationTask:
    """The same with copying, in the run directory `copying`."""
    return train_names(name_recipe(COPY), RunDirectory(data_dir / "copying"), data_dir)


def test_names_that_training_has_not_seen_are_copied(plain: TranslationTask, copying: TranslationTask) -> None:
    assert right_translations(copying) > 0.75
    assert right_translations(plain) < 0.25


def test_a_bundle_copies_them_too(copying: TranslationTask, data_dir: Path) -> None:
    """With a beam; terms of a glossary and protected parts take the place of what would be copied."""
    run = RunDirectory(data_dir / "copying")
    translator = load_bundle(export_run(run, data_dir / "models", data_dir).path, threads=1)
    assert isinstance(translator, Translator)
    sources, targets = zip(*split_pairs(copying.recipe.data, "test", data_dir), strict=True)
    outputs = [each.translations[0].text for each in translator.translate(sources)]
    assert sum(map(str.__eq__, outputs, targets)) / len(targets) > 0.75
    bound = translator.translate(["wo ist Kolabi", "wo ist {name}"], glossary=Glossary.of({"Kolabi": "Mabufo"}))
    assert [uses.used for uses in bound[0].translations[0].glossary or ()] == [True]
    assert "Mabufo" in bound[0].translations[0].text
    assert "{name}" in bound[1].translations[0].text
    assert translator.config.alignment is not None  # attention is an output of graphs that copy as well


@torch.no_grad()
def test_the_loss_is_that_of_the_mixture(copying: TranslationTask) -> None:
    """Evaluated without a gradient, sentence by sentence, against the distribution of each position."""
    copying.model.eval()
    (batch, *_) = copying.batches("test").epoch(0)
    total, count = copying.loss(batch)
    expected, layer, smoothing = 0.0, copying.model.output_layer, 0.05
    for row, length in enumerate(batch.source_lengths.tolist()):
        target = batch.targets[row][batch.targets[row] != IGNORED]
        given = batch.source[row : row + 1, :length], torch.tensor([length]), batch.inputs[row : row + 1, : len(target)]
        hidden, source = copying.model.read(*given)
        log_prob = layer.log_prob(hidden, history=source)[0]
        chosen = log_prob.gather(1, target[:, None])[:, 0]
        expected -= float(((1 - smoothing) * chosen + smoothing * log_prob.mean(-1)).sum())
    assert count == int((batch.targets != IGNORED).sum())
    assert total.item() == pytest.approx(expected, rel=1e-5)


# ---- starting from a model that does not copy -------------------------------------------------------------


def _starting(data_dir: Path, tmp_path: Path, kernels: Any) -> tuple[TranslationTask, RunDirectory]:
    recipe, run = name_recipe(kernels, initial=str(data_dir / "plain")), RunDirectory(tmp_path / "run")
    start_run(recipe, run, data_dir)
    torch.manual_seed(1)
    return TranslationTask.open(recipe, run, data_dir, CPU), run


def test_a_model_that_does_not_copy_is_trained_on_with_copying(
    plain: TranslationTask, data_dir: Path, tmp_path: Path
) -> None:
    task, run = _starting(data_dir, tmp_path, COPY)
    (fresh,) = task.model.output_layer.other_components()
    assert isinstance(fresh, Copy)
    before = {name: value.clone() for name, value in fresh.state_dict().items()}
    lines: list[str] = []
    trainer = Trainer(task, run, task.recipe.loop)
    trainer.fit(lines.append, stop_after=0)
    assert any("plain has no copy: it starts with new parameters" in line for line in lines)
    ours, theirs = task.model.state_dict(), checkpoint.load(RunDirectory(data_dir / "plain").best, CPU)["model"]
    assert all(torch.equal(value, ours[name]) for name, value in theirs.items() if not name.endswith("_extra_state"))
    assert all(torch.equal(value, before[name]) for name, value in fresh.state_dict().items())
    assert ours["output_layer.prior"].eq(0).all()
    (batch, *_) = task.batches("dev").epoch(0)
    before_copying = load_trained(RunDirectory(data_dir / "plain"), data_dir, "cpu")
    task.model.eval()
    losses = [each.loss(batch)[0].item() / batch.targets.ne(IGNORED).sum().item() for each in (task, before_copying)]
    assert losses[0] == pytest.approx(losses[1], abs=0.1)  # little of the weight is that of copying


def test_a_mixture_keeps_its_weights(data_dir: Path, tmp_path: Path) -> None:
    weights = {"output_layer.prior": torch.ones(4, 2)}
    own = {"output_layer.prior": torch.zeros(4, 3), "output_layer.others.0.offset": torch.zeros(4)}
    found = weights_for_components(weights, own)
    assert found["output_layer.prior"].tolist() == [[1, 1, 0]] * 4
    assert found["output_layer.others.0.offset"] is own["output_layer.others.0.offset"]


def test_other_kernels_are_refused(plain: TranslationTask, data_dir: Path, tmp_path: Path) -> None:
    task, _ = _starting(data_dir, tmp_path, ["pow", "copy"])
    with pytest.raises(ValueError, match=r"parameters are those of a layer with kernels .*lin"):
        task.initialize()


def test_guided_alignment_trains_with_copying(data_dir: Path, tmp_path: Path) -> None:
    recipe = name_recipe(COPY, guided_alignment={"weight": 0.1}, loop={"epochs": 1})
    task = train_names(recipe, RunDirectory(tmp_path / "run"), data_dir)
    (fresh,) = task.model.output_layer.other_components()
    assert isinstance(fresh, Copy)
    assert fresh.offset.ne(0).any()


# ---- guided copying ---------------------------------------------------------------------------------------


def _layer_that_points(scores: torch.Tensor) -> tuple[GeneralizedSoftmax, torch.Tensor, Source]:
    """Return a layer, hidden states `[1, T, d]` and a source of the tokens 3, 4, 3, 2 with given scores `[T, 4]`."""
    layer = GeneralizedSoftmax(6, 4, ["lin", "copy"])
    (component,) = layer.other_components()
    assert isinstance(component, Copy)
    with torch.no_grad():
        component.query.copy_(torch.eye(4))
    source = Source(torch.tensor([[3, 4, 3, 2]]), torch.eye(4)[None], torch.tensor([[True, True, True, False]]))
    return layer, scores[None], source


def test_the_copying_loss_is_that_by_hand() -> None:
    """Of targets in the source, at all places together; padding of source and targets does not count."""
    layer, hidden, source = _layer_that_points(torch.tensor([[1.0, 2.0, 3.0, 9.0]] * 4))
    targets = torch.tensor([[3, 5, 2, IGNORED]])
    log_weights = torch.tensor([1.0, 2.0, 3.0]).log_softmax(0)
    found = copying_loss(layer, hidden, source, targets)
    torch.testing.assert_close(found, -torch.logsumexp(log_weights[[0, 2]], 0))
    two = copying_loss(layer, hidden, source, torch.tensor([[3, 4, 2, IGNORED]]))
    torch.testing.assert_close(two, -(torch.logsumexp(log_weights[[0, 2]], 0) + log_weights[1]) / 2)
    none = copying_loss(layer, hidden.requires_grad_(), source, torch.tensor([[5, 2, 0, IGNORED]]))
    none.backward()
    assert none == 0
    assert hidden.grad is not None
    assert hidden.grad.eq(0).all()


@torch.no_grad()
def test_the_training_loss_has_the_copying_loss_and_no_other_has_it(data_dir: Path, tmp_path: Path) -> None:
    recipe = name_recipe(COPY, guided_copying={"weight": 2.0})
    start_run(recipe, run := RunDirectory(tmp_path / "run"), data_dir)
    task = TranslationTask.open(recipe, run, data_dir, CPU)
    (batch, *_) = task.batches("train").epoch(0)
    hidden, source = task.model.read(batch.source, batch.source_lengths, batch.inputs)
    assert source is not None
    further = copying_loss(task.model.output_layer, hidden, source, batch.targets)
    task.model.eval()
    alone, count = task.loss(batch)
    task.model.train()
    both, _ = task.loss(batch)
    assert further > 0.1
    torch.testing.assert_close(both, alone + 2 * count * further)


@torch.no_grad()
def _copying_loss(task: TranslationTask) -> float:
    (batch, *_) = task.batches("test").epoch(0)
    hidden, source = task.model.eval().read(batch.source, batch.source_lengths, batch.inputs)
    assert source is not None
    return float(copying_loss(task.model.output_layer, hidden, source, batch.targets))


def test_a_model_learns_to_copy_and_keeps_all_other_parameters(
    plain: TranslationTask, data_dir: Path, tmp_path: Path
) -> None:
    guided = {"weight": 1.0, "alone": True}
    recipe = name_recipe(COPY, initial=str(data_dir / "plain"), guided_copying=guided)
    run = RunDirectory(tmp_path / "run")
    start_run(recipe, run, data_dir)
    fresh = TranslationTask.open(recipe, run, data_dir, CPU)
    fresh.initialize()
    before = _copying_loss(fresh)
    task = train_names(recipe, run, data_dir)
    trained, given = (checkpoint.load(each.best, CPU)["model"] for each in (run, RunDirectory(data_dir / "plain")))
    kept = [name for name in given if not name.endswith("_extra_state")]
    assert all(torch.equal(trained[name], given[name]) for name in kept)
    assert _copying_loss(task) < 0.5 * before


@pytest.mark.parametrize(
    ("kernels", "fields", "message"),
    [
        ("lin", {"guided_copying": {}}, "guided_copying needs a component copy"),
        (COPY, {"guided_copying": {"alone": True}}, "guided_copying.alone .* set initial too"),
        (
            COPY,
            {"guided_copying": {"alone": True}, "guided_alignment": {}, "initial": "runs/a"},
            "guided_copying.alone .* leave guided_alignment out",
        ),
        (COPY, {"guided_copying": {"weight": 0}}, "guided_copying.weight"),
    ],
    ids=str,
)
def test_guided_copying_that_is_impossible_is_refused(kernels: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        name_recipe(kernels, **fields)


# ---- recipes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            name_recipe_content("lin, cache"),
            "components that are not kernels are for language-model, not translation: cache",
        ),
        (name_recipe_content("lin, copy, unigram"), "not translation: unigram"),
        (name_recipe_content("copy"), "a kernel must come first"),
        (name_recipe_content(["lin", {"name": "copy", "window": 5}]), r"(\n.*)?component 'copy': .*window"),
        (
            {
                "name": "a",
                "task": "language-model",
                "data": {"files": {"train": "a.txt"}},
                "output_layer": {"kernels": "lin, copy"},
            },
            "copy is for translation, not language-model",
        ),
    ],
    ids=str,
)
def test_components_that_a_task_has_no_context_for_are_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"kernels.*{message}"):
        parse_recipe(content)


def test_compilation_has_no_effect() -> None:
    recipe = name_recipe(COPY, loop={"compile": True})
    assert "loop.compile has no effect with an output layer that copies" in list(recipe.ineffective_fields())
