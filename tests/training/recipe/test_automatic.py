"""Tests of fields with the value `auto`: they get what fits the data, and a run keeps them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.cli.test_cli import run_cli
from training.cli.choice import Choice
from training.recipe import RecipeError
from training.recipe.automatic import automatic_fields
from training.recipe.loading import load_recipe
from training.run.directory import RunDirectory

SMALL = {"hidden_size": 16, "inner_size": 16, "layers": 1, "vocab_size": "auto", "dropout": 0.1}


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with 60 texts of two classes, and the recipe `own.yaml` for them."""
    monkeypatch.chdir(tmp_path)
    _write_texts(tmp_path / "texts.tsv", 60)
    _write(tmp_path / "own.yaml")
    return tmp_path


def _write_texts(path: Path, count: int) -> None:
    rows = [f"{'ab'[n % 2]}\tthe number {n} of something {'good' if n % 2 else 'bad'}" for n in range(count)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def _write(path: Path, **sections: Any) -> None:
    content = {
        "name": "own",
        "task": "text-classification",
        "data": {"files": {"train": "texts.tsv"}, "max_tokens": "auto", "batch_tokens": "auto"},
        "network": SMALL,
        "loop": {"epochs": 3, "warmup_steps": "auto", "learning_rate": "auto", "precision": "auto"},
    }
    path.write_text(yaml.safe_dump({**content, **sections}), encoding="utf-8")


def test_fields_are_found() -> None:
    content = {"name": "auto", "loop": {"epochs": "auto", "precision": "auto"}, "list": ["auto"]}
    assert automatic_fields(content) == ["name", "loop.epochs"]
    assert automatic_fields(["auto"]) == []


def test_a_run_says_and_saves_them(texts: Path) -> None:
    made = run_cli("run", "own.yaml", "--data-dir", ".", "--no-baselines", "--stop-after", "2")
    assert made.code == 0, made.output
    assert "auto: data.max_tokens = 32: 99 % of the texts have fewer than some" in made.output
    saved = RunDirectory(texts / "runs" / "own").recipe()
    assert saved.loop.warmup_steps == round(0.1 * 3 * 2), "a tenth of three epochs of two updates"
    assert saved.loop.precision == "auto"
    chosen = load_recipe(texts / "own.yaml", choose=Choice(texts))
    assert chosen.model_dump() == saved.model_dump()


def test_a_run_goes_on_with_what_it_began_with(texts: Path) -> None:
    assert run_cli("run", "own.yaml", "--data-dir", ".", "--no-baselines", "--stop-after", "2").code == 0
    before = RunDirectory(texts / "runs" / "own").recipe().loop.warmup_steps
    _write_texts(texts / "texts.tsv", 600)
    longer = load_recipe(texts / "own.yaml", choose=Choice(texts)).loop.warmup_steps
    assert longer != before
    again = run_cli("run", "own.yaml", "--data-dir", ".", "--no-baselines", "--continue-with-new-data")
    assert again.code == 0, again.output
    assert f"auto: loop.warmup_steps = {before}: as runs/own began" in again.output


def test_overrides_can_be_automatic_and_come_first(texts: Path) -> None:
    _write_texts(texts / "more.tsv", 900)
    few, more = (
        load_recipe(texts / "own.yaml", ["loop.epochs=auto", *overrides], Choice(texts)).loop
        for overrides in ([], ["data.files.train=more.tsv"])
    )
    assert few.epochs > more.epochs
    assert few.warmup_steps != more.warmup_steps


def test_fields_without_a_choice_are_named(texts: Path) -> None:
    _write(texts / "own.yaml", export={"licence": "auto", "version": "auto"})
    with pytest.raises(RecipeError, match=r"export\.version: auto: for these data no value is chosen"):
        load_recipe(texts / "own.yaml", choose=Choice(texts))
    _write(texts / "own.yaml", data={"corpus": "clinc150", "max_tokens": "auto"})
    with pytest.raises(RecipeError, match=r"your own files, data\.files, and this recipe has none"):
        load_recipe(texts / "own.yaml", choose=Choice(texts))
    with pytest.raises(RecipeError, match=r"data\.max_tokens: .*valid integer"):
        load_recipe(texts / "own.yaml")


def test_files_that_are_not_there_are_named(texts: Path) -> None:
    (texts / "texts.tsv").unlink()
    assert "there is no such file" in str(run_cli("run", "own.yaml", "--data-dir", ".").code)
