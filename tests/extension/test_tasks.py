"""A task from outside the package is trained, searched, exported and measured by the commands of the package."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.reading import validate
from models.store import load_bundle
from models.tasks.registry import TASKS as MODELS
from tests.extension.tasks import RemainderModel, RemainderTask
from tests.training.cli.test_cli import run_cli
from training.recipe import RecipeError
from training.recipe.loading import load_recipe
from training.tasks.registry import TASKS

RECIPE: dict[str, Any] = {
    "name": "remainders",
    "task": "remainder",
    "output_layer": {"kernels": "lin, pow"},
    "loop": {"epochs": 8, "learning_rate": 0.1, "warmup_steps": 1, "patience": 8, "precision": "float32"},
    "export": {"torchscript": False, "quantization": "int8"},
}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS._values, "remainder", RemainderTask)
    monkeypatch.setitem(MODELS._values, "remainder", RemainderModel)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "remainders.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    return path


def test_it_is_trained_evaluated_exported_and_served(recipe: Path, tmp_path: Path) -> None:
    trained = run_cli("run", recipe, "--runs", tmp_path, "--set", "network.hidden_size=12")
    assert trained.code == 0, trained
    assert "5 remainders" in trained.output
    assert "best dev accuracy 1.000" in trained.output
    assert run_cli("evaluate", tmp_path / "remainders").output.endswith("remainders on numbers, test: accuracy 1.0000")
    exported = run_cli("export", tmp_path / "remainders", "--output", tmp_path / "models")
    assert exported.code == 0, exported
    bundle = tmp_path / "models" / "remainders" / "1"
    assert validate(bundle) == []
    assert json.loads((bundle / "manifest.json").read_text())["config"] == {"divisor": 5}
    assert "* Remainders: 5" in (bundle / "MODEL_CARD.md").read_text()
    model = load_bundle(bundle)
    assert isinstance(model, RemainderModel)
    assert model.remainders([0, 7, 299]) == [0, 2, 4]
    (stated,) = [each.value for each in model.manifest.quality if each.split == "test"]
    assert stated > 0.95
    assert run_cli("evaluate", bundle).output.endswith(f" remainders on numbers, test: accuracy {stated:.4f}")


def test_its_fields_are_searched(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(yaml.safe_dump({**RECIPE, "tune": {"parameters": {"data.batch_size": [30, 60]}}}))
    searched = run_cli("tune", recipe, "--runs", tmp_path, "--set", "loop.epochs=1")
    assert searched.code == 0, searched
    assert "2 trials" in searched.output
    assert (tmp_path / "remainders-tune" / "trial-1" / "divisor.txt").is_file()


def test_its_wrong_fields_are_named(recipe: Path) -> None:
    recipe.write_text(yaml.safe_dump({**RECIPE, "data": {"corpus": "ptb"}}))
    with pytest.raises(RecipeError, match=r"data\.corpus: Extra inputs are not permitted"):
        load_recipe(recipe)


def test_an_operation_that_it_does_not_offer_is_an_error(recipe: Path, tmp_path: Path) -> None:
    assert run_cli("run", recipe, "--runs", tmp_path, "--stop-after", 7).code == 0
    assert run_cli("run", recipe, "--runs", tmp_path, "--set", "loop.epochs=8").code == 0
    confusions = run_cli("analyze", "confusions", tmp_path / "remainders")
    assert "is a run of task 'remainder', which does not offer the operation 'classify'" in confusions.code
