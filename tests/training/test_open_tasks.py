"""No command, loop, search or exporter knows a task by its name or by its class."""

import ast
import importlib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from models.tasks.model import Model
from tests.extension.tasks import RemainderTask
from training.bundling.task_export import TaskExport
from training.networks.softmax_model import SoftmaxModel
from training.recipe import Recipe
from training.recipe.loading import parse_recipe
from training.tasks.registry import TASKS
from training.tasks.task import Task

ROOT = Path(__file__).parents[2]
PLUMBING = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.py", "bundling/*.py", "cli/*.py", "recipe/*.py", "run/*.py", "search/*.py", "tasks/*.py")
    for path in (ROOT / "training").glob(pattern)
)
EXCEPTIONS: dict[str, str] = {}
"""Modules that may name a task, and why."""


def _tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def _docstrings(tree: ast.Module) -> set[int]:
    """Ids of the constants that are statements of their own."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _tested_classes(path: Path) -> Iterator[object]:
    """Classes that `isinstance` and `issubclass` test for."""
    module = importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            for name in ast.walk(node.args[1]):
                if isinstance(name, ast.Name):
                    yield getattr(module, name.id, None)


def test_there_are_no_exceptions() -> None:
    assert not EXCEPTIONS
    known = ("cli/commands.py", "run/loop.py", "bundling/bundle.py")
    assert {Path("training", each) for each in known} <= set(PLUMBING)


@pytest.mark.parametrize("path", PLUMBING, ids=str)
def test_no_task_is_known_by_its_name(path: Path) -> None:
    tree, names = _tree(path), TASKS.names()
    assert len(names) >= 5
    docstrings = _docstrings(tree)
    strings = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]
    assert [text for text in strings if text in names] == []


@pytest.mark.parametrize("path", PLUMBING, ids=str)
def test_no_task_is_known_by_its_class(path: Path) -> None:
    known = (Task, Recipe, Model, SoftmaxModel, TaskExport)
    classes = [found for found in _tested_classes(path) if isinstance(found, type)]
    assert [found for found in classes if issubclass(found, known)] == []


@pytest.mark.parametrize("path", PLUMBING, ids=str)
def test_no_task_is_imported(path: Path) -> None:
    places = [
        f"{package}.{name.replace('-', '_')}"
        for package in ("training.tasks", "models.tasks")
        for name in TASKS.names()
    ]
    modules = [node.module or "" for node in ast.walk(_tree(path)) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(_tree(path)) if isinstance(node, ast.Import) for alias in node.names]
    assert [module for module in modules for place in places if f"{module}.".startswith(f"{place}.")] == []


def test_an_installed_package_adds_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("remainder", "tests.extension.tasks:RemainderTask", "softserve.training.tasks")
    monkeypatch.setattr("models.registry.entry_points", lambda group: [entry] if group == entry.group else [])
    monkeypatch.setattr(TASKS, "_values", dict(TASKS._values))
    monkeypatch.setattr(TASKS, "_complete", False)
    assert TASKS["remainder"] is RemainderTask
    assert parse_recipe({"name": "toy", "task": "remainder"}).searchable()[1] == "data.batch_size"


def test_names_and_recipes_agree() -> None:
    for name in TASKS.names():
        assert TASKS[name].recipe_type.model_fields["task"].annotation.__args__ == (name,)
