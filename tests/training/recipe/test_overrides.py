"""Tests of recipe fields that the command line sets."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from training.recipe import RecipeError
from training.recipe.loading import load_recipe
from training.recipe.overrides import check_only
from training.tasks.language_model.settings import LanguageModelRecipe
from training.tasks.translation.settings import TranslationRecipe

RECIPE: dict[str, Any] = {
    "name": "toy",
    "task": "language-model",
    "data": {"corpus": "ptb"},
    "output_layer": {"kernels": "lin, log"},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    return tmp_path / "recipe.yaml"


def _loaded(path: Path, *overrides: str) -> LanguageModelRecipe:
    recipe = load_recipe(path, overrides)
    assert isinstance(recipe, LanguageModelRecipe)
    return recipe


def test_values_are_yaml(path: Path) -> None:
    recipe = _loaded(
        path,
        "loop.epochs=3",
        "loop.learning_rate=1e-3",
        "data.deduplicate=true",
        "output_layer.kernels=[3*lin, pow]",
        "output_layer.sparse_k=null",
        "export.description=a = b",
        "data.limit=5",
        "data.limit=6",
        "name=other",
    )
    assert (recipe.loop.epochs, recipe.loop.learning_rate, recipe.data.deduplicate) == (3, 1e-3, True)
    assert (recipe.output_layer.kernels, recipe.output_layer.sparse_k) == (["3*lin", "pow"], None)
    assert (recipe.export.description, recipe.data.limit, recipe.name) == ("a = b", 6, "other")
    assert recipe.data.corpus == "ptb"


@pytest.mark.parametrize("section", [{"kernels": "lin, log"}, {"kernels": ["lin", {"name": "log"}]}])
def test_a_hyperparameter_of_a_kernel_is_set(path: Path, section: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump({**RECIPE, "output_layer": section}), encoding="utf-8")
    kernels = _loaded(path, "output_layer.kernels.1.p=3", "output_layer.kernels.0.name=pow").output_layer.kernels
    assert kernels == [{"name": "pow"}, {"name": "log", "p": 3}]


def test_own_files_replace_a_corpus(path: Path) -> None:
    recipe = _loaded(path, "data.corpus=null", "data.files={train: a.txt}", "data.limit=9")
    assert recipe.data.files is not None
    assert (recipe.data.corpus, recipe.data.files.train, recipe.data.limit) == (None, "a.txt", 9)


def test_a_preset_brings_its_sizes(path: Path) -> None:
    fields = {"name": "pairs", "task": "translation", "data": {"corpus": "multi30k", "source": "de", "target": "en"}}
    path.write_text(yaml.safe_dump(fields), encoding="utf-8")
    recipe = load_recipe(path, ["network.preset=tiny", "network.heads=8"])
    assert isinstance(recipe, TranslationRecipe)
    assert (recipe.network.preset, recipe.network.hidden_size, recipe.network.heads) == ("tiny", 128, 8)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "loop.epoch=3",
            "--set loop.epoch=3: there is no loop.epoch: instead of 'epoch' there is epochs, ",
        ),
        ("loop.epochs.more=3", "instead of 'more' there is nothing"),
        ("output_layer.kernels.2.p=3", "instead of '2' there is 0, 1"),
        ("loop", "--set takes PATH=VALUE, such as loop.epochs=3, not 'loop'"),
        ("=3", "--set takes PATH=VALUE"),
        ("loop.epochs=[3", "--set loop.epochs=[3: the value is not YAML"),
        ("task=translation", "the task of a recipe cannot be set"),
        ("task.more=1", "there is no task.more"),
    ],
)
def test_no_field_is_explained(path: Path, override: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the message is compared below
        load_recipe(path, [override])
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("loop.epochs=0", "loop.epochs: Input should be greater than or equal to 1"),
        ("loop.precision=int8", "loop.precision: Input should be 'auto', 'float32', 'bfloat16' or 'float16'"),
        (
            "output_layer.kernels=sigmoid",
            "output_layer.kernels: Value error, unknown kernel 'sigmoid'; known ",
        ),
        ("data=null", "data: Input should be a valid dictionary"),
    ],
)
def test_a_wrong_value_is_explained_as_in_the_file(path: Path, override: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, ["seed=2", override])
    first, second = str(caught.value).splitlines()
    assert first == f"{path} --set seed=2 --set {override} is not a valid recipe:"
    assert second.startswith(f"  {said}")


def test_the_file_is_checked_first(path: Path) -> None:
    path.write_text(yaml.safe_dump({**RECIPE, "seed": -1}), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"recipe\.yaml is not a valid recipe:\n  seed: "):
        load_recipe(path, ["seed=1"])


def test_only_fields_of_export_can_be_set_after_training() -> None:
    check_only(["export.version=2", "export.also_test_on=[ptb]"], "export")
    with pytest.raises(ValueError, match=r"--set seed=2: the weights are trained already; only fields of export"):
        check_only(["export.version=2", "seed=2"], "export")
