"""Tests of recipes: valid files, and the errors for others."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

import training
from training.data.corpora import CORPORA
from training.data.image_corpora import get_image_corpus
from training.recipe import RecipeError
from training.recipe.loading import load_recipe, parse_recipe
from training.tasks.image_classification.settings import ImageClassificationRecipe
from training.tasks.language_model.settings import LanguageModelRecipe
from training.tasks.text_classification.settings import ClassificationRecipe
from training.tasks.text_generation.settings import GenerationRecipe
from training.tasks.translation.settings import TranslationRecipe

SHIPPED = sorted((Path(training.__file__).parent / "recipes").glob("*.yaml"))
SMALLEST: dict[str, Any] = {"name": "toy", "task": "language-model", "data": {"corpus": "ptb"}}


def _written(path: Path, **fields: Any) -> Path:
    path.write_text(yaml.safe_dump({**SMALLEST, **fields}), encoding="utf-8")
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recipe.yaml"


def test_there_are_recipes() -> None:
    assert SHIPPED


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_recipe_is_valid(shipped: Path) -> None:
    recipe = load_recipe(shipped)
    assert recipe.name == shipped.stem
    if recipe.data.corpus is None:
        assert recipe.export.licence == "unstated"
        return
    if isinstance(recipe, ImageClassificationRecipe):
        assert not get_image_corpus(recipe.data.corpus).release_allowed
        assert recipe.export.licence == "research only"
        return
    corpus = CORPORA[recipe.data.corpus]
    columns = ("label", "text") if isinstance(recipe, ClassificationRecipe) else ()
    if isinstance(recipe, GenerationRecipe):
        columns = ("source", "target")
    if isinstance(recipe, TranslationRecipe):
        columns = (recipe.data.source, recipe.data.target)
    if isinstance(recipe, LanguageModelRecipe):
        columns = (recipe.data.column,)
    assert set(columns) <= set(corpus.columns)
    assert corpus.release_allowed or recipe.export.licence in ("unstated", "research only")


def test_the_smallest_recipe_has_defaults(path: Path) -> None:
    recipe = load_recipe(_written(path))
    assert (recipe.name, recipe.task, recipe.data.corpus) == ("toy", "language-model", "ptb")
    assert (recipe.data.column, recipe.output_layer.kernels, recipe.loop.precision) == ("text", "lin", "auto")


@pytest.mark.parametrize(
    "kernels", ["lin", "3*lin, log", ["lin", "2*log"], [{"name": "pow", "p": 1.5}, "lin"]], ids=str
)
def test_a_resolved_recipe_is_itself_a_recipe(path: Path, kernels: Any) -> None:
    recipe = load_recipe(_written(path, output_layer={"kernels": kernels, "variance_penalty": 0.1}))
    path.write_text(yaml.safe_dump(recipe.model_dump()), encoding="utf-8")
    assert load_recipe(path) == recipe
    assert parse_recipe(recipe.model_dump(mode="json")) == recipe


def test_a_recipe_cannot_be_changed(path: Path) -> None:
    recipe = load_recipe(_written(path))
    with pytest.raises(ValidationError, match="frozen"):
        recipe.loop.epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"epochs": 3}, "epochs"),
        ({"loop": {"learning_rat": 1}}, "loop.learning_rat"),
        ({"loop": {"epochs": "many"}}, "loop.epochs"),
        ({"loop": {"epochs": 0}}, "loop.epochs"),
        ({"loop": {"learning_rate": 0}}, "loop.learning_rate"),
        ({"loop": {"learning_rate": float("nan")}}, "loop.learning_rate"),
        ({"loop": {"precision": "int8"}}, "loop.precision"),
        ({"network": {"dropout": 1.0}}, "network.dropout"),
        ({"network": {"hidden_size": 1.5}}, "network.hidden_size"),
        ({"data": {"corpus": "ptb", "context": "page"}}, "data.context"),
        ({"data": {}}, "data"),
        ({"data": {"files": {"train": "text.txt"}, "column": "en"}}, "data"),
        ({"output_layer": {"variance_penalty": -1}}, "output_layer.variance_penalty"),
        ({"output_layer": {"kernels": "2*lin", "untied": True}}, "output_layer.untied"),
        ({"output_layer": {"untied": "full"}}, "output_layer.untied"),
        ({"output_layer": {"sparse_k": 0}}, "output_layer.sparse_k"),
        ({"output_layer": {"label_smoothing": 1}}, "output_layer.label_smoothing"),
        ({"export": {"version": 0}}, "export.version"),
        ({"name": "Not A Name"}, "name"),
        ({"name": "../up"}, "name"),
        ({"task": "juggling"}, "task"),
    ],
)
def test_a_wrong_field_is_named(path: Path, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RecipeError, match=rf"(?m)^  {named.replace('.', '[.]')}: ") as caught:
        load_recipe(_written(path, **fields))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        ("lin, sigmoid", "unknown kernel 'sigmoid'; known kernels: lin, log, pow"),
        ("lin lin", "neither a kernel's name, nor `count[*]name`"),
        ([{"name": "log", "p": -1}], "p of kernel 'log' must be a positive finite number"),
        ([{"p": 2}], "has no name"),
        ([], "at least one kernel"),
    ],
)
def test_wrong_kernels_are_explained(path: Path, kernels: Any, said: str) -> None:
    with pytest.raises(RecipeError, match=rf"output_layer[.]kernels: .*{said}"):
        load_recipe(_written(path, output_layer={"kernels": kernels}))


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({}, "data: Value error, give either corpus, a name of the registry, or files, your own"),
        ({"corpus": "tatoeba-de-en", "files": {"train": "pairs.tsv"}}, "data: Value error, give either corpus"),
        ({"files": {"dev": "dev.tsv"}}, "data.files.train: Field required"),
        ({"files": {"train": ""}}, "data.files.train: "),
        ({"files": {"train": "pairs.tsv", "valid": "dev.tsv"}}, "data.files.valid: "),
    ],
    ids=str,
)
def test_pairs_come_from_a_corpus_or_from_files(path: Path, data: dict[str, Any], named: str) -> None:
    fields = {"task": "translation", "data": {"source": "de", "target": "en", **data}}
    with pytest.raises(RecipeError, match=f"(?m)^  {named}"):
        load_recipe(_written(path, **fields))


def test_all_errors_are_named_at_once(path: Path) -> None:
    fields = {"loop": {"epochs": -1, "speed": 3}, "network": {"dropout": 2}, "data": {"column": "en", "limit": 0}}
    with pytest.raises(RecipeError) as caught:
        load_recipe(_written(path, **fields))
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        *("loop.epochs", "loop.speed", "data.limit", "network.dropout")
    ]


@pytest.mark.parametrize("content", [b"a: [1, 2", b"\ta: 1", b"name: caf\xe9"])
def test_what_is_not_yaml_is_said_to_be(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RecipeError, match="is not YAML"):
        load_recipe(path)


@pytest.mark.parametrize("content", ["", "just words", "- a\n- list\n", "# a comment\n"])
def test_what_is_no_mapping_is_no_recipe(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RecipeError, match=r"not a valid recipe:\n  recipe: "):
        load_recipe(path)


def test_yaml_never_builds_objects(path: Path) -> None:
    path.write_text("name: !!python/object/apply:os.getcwd []\n", encoding="utf-8")
    with pytest.raises(RecipeError, match="is not YAML"):
        load_recipe(path)


def test_no_file_is_an_error_of_its_own(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_recipe(path)
