"""Tests of runs whose data changed: noticed by `run`, `evaluate` and `export`, and continued with on request."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from models.reading import read_manifest
from tests.fixtures.classification import ERRANDS_RECIPE, WORDS
from tests.training.cli.test_cli import Result, run_cli
from training.run import checkpoint
from training.run.directory import RunDirectory
from training.tasks.classification import read_labels

CPU = torch.device("cpu")
CLASSES = ("book", "call", "walk")

Command = Callable[..., Result]


def _lines(classes: Iterable[str], count: int, seed: int = 0) -> list[str]:
    generator = random.Random(seed)
    return [f"{label}\t{generator.choice(WORDS[label])} it {n}" for n in range(count) for label in classes]


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    _write(directory / "texts.tsv", _lines(CLASSES, 20))
    for split in ("dev", "test"):
        _write(directory / f"{split}.tsv", _lines(CLASSES, 3, seed=1))
    return directory


def _recipe(path: Path, **changes: Any) -> Path:
    files = {"train": "texts.tsv", "dev": "dev.tsv", "test": "test.tsv"}
    content = {
        **ERRANDS_RECIPE,
        "data": {"files": files, "max_tokens": 16, "batch_tokens": 512},
        "network": {**ERRANDS_RECIPE["network"], "vocab_size": 60, "hidden_size": 16, "inner_size": 16},
        "output_layer": {"kernels": "2*lin", "untied": 2, "bias": True},
        "loop": {"epochs": 2, "learning_rate": 1e-2, "warmup_steps": 2, "precision": "float32"},
        "export": {"licence": "Apache-2.0"},
    }
    path.write_text(yaml.safe_dump(content | changes), encoding="utf-8")
    return path


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return _recipe(tmp_path / "recipe.yaml")


@pytest.fixture
def train(data_dir: Path, tmp_path: Path) -> Command:
    """`softserve-train run` into `tmp_path/runs`."""
    return lambda recipe, *flags: run_cli("run", recipe, "--data-dir", data_dir, "--runs", tmp_path / "runs", *flags)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "errands")


def _append(path: Path, lines: Iterable[str]) -> None:
    _write(path, [*path.read_text(encoding="utf-8").splitlines(), *lines])


def test_appended_texts_are_noticed(train: Command, recipe: Path, data_dir: Path, run: RunDirectory) -> None:
    assert train(recipe).code == 0
    assert "nothing to train: 2 of 2 epochs" in train(recipe).output
    _append(data_dir / "texts.tsv", _lines(CLASSES, 5, seed=2))
    before = run.last.read_bytes()
    refused = train(recipe)
    assert "nothing to train" not in refused.output
    said = f"the data of {run.path} has changed: train (texts.tsv) had 60 records and has 75, 15 more. "
    assert said in refused.code
    for choice in ("--continue-with-new-data", "--restart", "--set name=OTHER"):
        assert choice in refused.code
    assert run.last.read_bytes() == before
    assert train(recipe, "--set", "name=other").code == 0
    assert train(recipe, "--restart").code == 0
    assert "nothing to train" in train(recipe).output


def test_removed_texts_are_noticed_when_resuming(train: Command, recipe: Path, data_dir: Path) -> None:
    train(recipe, "--stop-after", 1)
    _write(data_dir / "texts.tsv", _lines(CLASSES, 15))
    refused = train(recipe)
    assert "train (texts.tsv) had 60 records and has 45, 15 fewer" in refused.code
    assert "resuming" not in refused.output


def test_a_run_without_a_record_of_its_data_gets_one(
    train: Command, recipe: Path, data_dir: Path, run: RunDirectory
) -> None:
    train(recipe, "--stop-after", 1)
    noted = run.path / "data.json"
    noted.unlink()
    resumed = train(recipe, "--stop-after", 1)
    assert (resumed.code, "changed" in resumed.output) == (0, False)
    _append(data_dir / "dev.tsv", ["book\tread it"])
    assert "dev (dev.tsv) had 9 records and has 10" in train(recipe).code


def test_a_new_class_is_named_and_grows_the_classifier(
    train: Command, recipe: Path, data_dir: Path, run: RunDirectory
) -> None:
    train(recipe)
    old = checkpoint.load(run.best, CPU)["model"]
    _append(data_dir / "texts.tsv", _lines(["cook"], 43))
    assert "new class 'cook' (43 records)" in train(recipe).code

    continued = train(recipe, "--continue-with-new-data", "--stop-after", 0)
    assert continued.code == 0
    assert "the weights after 2 epochs are kept; optimizer and learning rate start again, for up to 2 epochs" in (
        continued.output
    )
    assert read_labels(run) == ("book", "call", "cook", "walk")
    new = checkpoint.load(run.initial, CPU)["model"]
    assert new["output_layer.weight"].shape == (4, 16)
    rows = torch.tensor([0, 1, 3])
    for name, dimension in (("weight", 0), ("bias", 0), ("left", 1)):
        kept = new[f"output_layer.{name}"].index_select(dimension, rows)
        assert torch.equal(kept, old[f"output_layer.{name}"])
    assert new["output_layer.weight"][2].norm() > 0
    for name in old.keys() - {f"output_layer.{name}" for name in ("weight", "bias", "left", "_extra_state")}:
        assert torch.equal(new[name], old[name])

    again = train(recipe, "--continue-with-new-data")
    assert "--continue-with-new-data has no effect: the data has not changed" in again.output
    assert again.output.count("train loss") == 2
    assert "nothing to train" in train(recipe).output
    first, last = run.data()
    assert (first.epochs, first.splits["train"].records, last.splits["train"].records) == (2, 60, 103)
    assert last.splits["train"].classes["cook"] == 43


def test_a_class_without_texts_is_dropped(train: Command, recipe: Path, data_dir: Path, run: RunDirectory) -> None:
    train(recipe)
    for name in ("texts", "dev", "test"):
        _write(data_dir / f"{name}.tsv", _lines(CLASSES[:2], 12))
    assert "class 'walk' has no record any more (26 before)" in train(recipe).code
    assert train(recipe, "--continue-with-new-data").code == 0
    assert read_labels(run) == ("book", "call")


def test_other_files_continue_a_run(train: Command, recipe: Path, data_dir: Path, run: RunDirectory) -> None:
    train(recipe)
    _write(data_dir / "more.tsv", _lines(CLASSES, 25))
    flags = ("--set", "data.files.train=more.tsv", "--set", "loop.epochs=1")
    assert "--continue-with-new-data keeps its weights" in train(recipe, *flags).code
    assert train(recipe, "--continue-with-new-data", *flags).code == 0
    assert (run.trained_epochs(), run.recipe().data.dataset("train")) == (1, "more.tsv")


def test_what_cannot_continue_is_refused(train: Command, recipe: Path, data_dir: Path, run: RunDirectory) -> None:
    assert "holds no run to continue" in train(recipe, "--continue-with-new-data").code
    train(recipe, "--stop-after", 1)
    before = _lines(CLASSES, 20)
    _write(data_dir / "texts.tsv", before[:-1])
    assert "has no weights to keep: its first epoch is not over" in train(recipe, "--continue-with-new-data").code
    assert "give either --restart or --continue" in train(recipe, "--restart", "--continue-with-new-data").code
    _write(data_dir / "texts.tsv", before)
    train(recipe)
    _write(data_dir / "texts.tsv", before[:-1])
    other = train(recipe, "--continue-with-new-data", "--set", "network.layers=2")
    assert "keeps the network of" in other.code
    for name in ("texts", "dev", "test"):
        _write(data_dir / f"{name}.tsv", _lines(["sing", "read"], 4))
    best = run.best.read_bytes()
    none = train(recipe, "--continue-with-new-data")
    assert "cannot continue with the new data: none of the classes is one that the run has" in none.code
    assert run.best.read_bytes() == best
    assert read_labels(run) == CLASSES


def test_evaluate_and_export_say_that_the_data_changed(
    train: Command, recipe: Path, data_dir: Path, run: RunDirectory, tmp_path: Path
) -> None:
    train(recipe)
    assert "changed" not in run_cli("evaluate", run.path, "--data-dir", data_dir).output
    _append(data_dir / "test.tsv", ["book\tread it"])
    said = f"the data has changed since {run.path} was trained: test (test.tsv) had 9 records and has 10, 1 more"
    evaluated = run_cli("evaluate", run.path, "--data-dir", data_dir)
    assert (evaluated.code, said in evaluated.output) == (0, True)
    exported = run_cli("export", run.path, "--output", tmp_path / "models", "--data-dir", data_dir)
    assert (exported.code, said in exported.output) == (0, True)
    splits = read_manifest(tmp_path / "models" / "errands" / "1").provenance.splits
    assert (splits["train"].records, splits["test"].records) == (60, 10), "measured is the data as it is now"
    measured = run_cli("evaluate", tmp_path / "models" / "errands" / "1", "--data-dir", data_dir)
    assert "since the bundle" not in measured.output

    _append(data_dir / "test.tsv", ["book\treserve it"])
    measured = run_cli("evaluate", tmp_path / "models" / "errands" / "1", "--data-dir", data_dir)
    assert "test (test.tsv) has changed since the bundle was exported: 10 records then, 11 now" in measured.output
    _append(data_dir / "test.tsv", ["cook\tfry it"])
    impossible = run_cli("evaluate", run.path, "--data-dir", data_dir)
    assert "`run --continue-with-new-data` adds the classes" in impossible.output
    assert impossible.code == (
        "softserve-train: classes that the model does not have: cook; the data has changed since the model was trained"
    )


def test_an_interrupted_run_is_named_so(train: Command, recipe: Path, run: RunDirectory, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    train(recipe, "--set", "loop.epochs=6", "--stop-after", 5)
    trained = len(run.history())
    assert trained == 2
    exported = run_cli("export", run.path, "--output", tmp_path / "models", "--data-dir", data_dir)
    said = f"Trained for {trained} of 6 epochs (interrupted: training has not come to its end), 5 updates; the weights "
    assert said in exported.output
    for step in ("comparing the data", "exporting graphs", "comparing the graphs", "measuring on test"):
        assert step in exported.output
    bundle = tmp_path / "models" / "errands" / "1"
    card = (bundle / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert said in card
    manifest = read_manifest(bundle)
    split = manifest.provenance.splits["train"]
    assert f"| train | texts.tsv | 60 | 3 | {split.tokens} | `{run.data()[0].splits['train'].sha256}` |" in card
    assert split.tokens is not None
    assert 60 * 4 < split.tokens < 60 * 16
    assert "short" not in card


def test_a_finished_run_has_all_its_epochs(train: Command, recipe: Path, data_dir: Path, tmp_path: Path) -> None:
    train(recipe)
    _append(data_dir / "texts.tsv", _lines(CLASSES, 1, seed=3))
    train(recipe, "--continue-with-new-data")
    path = tmp_path / "runs" / "errands"
    exported = run_cli("export", path, "--output", tmp_path / "models", "--data-dir", data_dir)
    assert "Trained for 2 of 2 epochs, " in exported.output
    assert "Before that, 2 epochs on an earlier version of the data" in exported.output


def test_a_language_model_keeps_its_vocabulary(train: Command, data_dir: Path, tmp_path: Path) -> None:
    content = {
        "name": "errands",
        "task": "language-model",
        "data": {"files": {"train": "lines.txt", "dev": "lines.txt", "test": "lines.txt"}, "batch_tokens": 128},
        "network": {"hidden_size": 8, "num_layers": 1},
        "loop": {"epochs": 1, "warmup_steps": 2, "precision": "float32"},
    }
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(content), encoding="utf-8")
    _write(data_dir / "lines.txt", [f"a line of the book {n % 4}" for n in range(20)])
    train(recipe)
    tokenizer = (tmp_path / "runs" / "errands" / "tokenizer.json").read_bytes()
    _append(data_dir / "lines.txt", [f"a page of the magazine {n % 4}" for n in range(20)])
    assert "had 20 records and has 40" in train(recipe).code
    assert "epoch 1: train loss" in train(recipe, "--continue-with-new-data").output
    assert (tmp_path / "runs" / "errands" / "tokenizer.json").read_bytes() == tokenizer
