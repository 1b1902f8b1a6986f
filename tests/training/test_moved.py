"""Names that other packages may still use, with a warning."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.extension.tasks import RemainderTask
from training.moved import MOVED
from training.recipe import Recipe, loading


@pytest.mark.parametrize("old", MOVED)
def test_a_module_has_its_old_name(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=r" is now training\.") as warned:
        module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert str(warned[-1].message) == f"{old} is now {MOVED[old]}"
    for name, found in list(sys.modules.items()):
        if f"{old}.".startswith(f"{name}.") and found.__name__ != name:
            del sys.modules[name]


def test_modules_of_a_package_have_their_old_names() -> None:
    code = "from training.export.graphs import ExportGraph as a; from training.bundling.graphs import ExportGraph as b"
    subprocess.run([sys.executable, "-c", f"{code}; assert a is b"], check=True, cwd=Path(__file__).parents[2])


def test_what_is_not_there_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"training\.exports"):
        importlib.import_module("training.exports")


def test_functions_that_read_recipes_have_their_old_place() -> None:
    from training import recipe

    with pytest.warns(DeprecationWarning, match=r"now training\.recipe\.loading\.load_recipe"):
        assert recipe.load_recipe is loading.load_recipe
    with pytest.raises(AttributeError, match="nothing"):
        recipe.nothing  # noqa: B018


def test_an_exporter_may_still_measure() -> None:
    class Exporter(RemainderTask.exporter):  # type: ignore[misc]
        @classmethod
        def measure(cls, model: Any, recipe: Recipe, split: str, data_dir: Path) -> dict[str, float]:
            return {"accuracy": 0.5}

    with pytest.warns(DeprecationWarning, match="measure_bundle"):

        class Task(RemainderTask):
            exporter = Exporter

    assert Task.report_bundle(None, None, "test", Path()) == ["accuracy 0.5000"]
