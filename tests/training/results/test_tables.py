"""Tests of the tables that are shipped: their recipes are valid, and rows differ in nothing but the output layer."""

import pytest

from training.results.tables import TABLES, comparable, get_table
from training.softmax.mixture import NAMED_MIXTURES
from training.tasks.registry import TASKS

KERNELS = ["lin", "log", "pow", "pol", "rbf", "ssg", "mog", "hpb", "wav"]


@pytest.mark.parametrize("name", TABLES)
def test_rows_have_the_same_data_and_training(name: str) -> None:
    table = get_table(name)
    first, *others = [comparable(table.recipe_of(row, 1)) for row in table.rows]
    layers = [(each.pop("output_layer"), each.pop("loss", None)) for each in (first, *others)]
    assert all(each == first for each in others)
    assert all(layers.count(layer) == 1 for layer in layers)


@pytest.mark.parametrize("name", TABLES)
def test_tables_say_what_their_recipes_do(name: str) -> None:
    table = get_table(name)
    recipe = table.recipe_of(next(iter(table.rows)), 2)
    assert recipe.seed == 2
    assert recipe.tune is None
    assert table.maximize == TASKS[recipe.task].maximize
    assert table.metric == TASKS[recipe.task].metric_of(recipe)
    assert f"{recipe.loop.epochs} epochs" in table.budget
    if (limit := recipe.data.limit or recipe.data.train_limit) is not None:  # type: ignore[attr-defined]
        assert f"{limit:,}" in table.budget
    assert (table.paper is None) == all(row.paper is None for row in table.rows.values())


@pytest.mark.parametrize("name", ["kernels-swda", "kernels-ptb"])
def test_kernels_are_all_compared(name: str) -> None:
    table = get_table(name)
    layers = {row: table.recipe_of(row, 1).output_layer for row in table.rows}
    biased = layers.pop("lin-bias")
    assert (biased.kernels, biased.bias) == ("lin", True)
    learnable = {row: layers.pop(row) for row in list(layers) if row.endswith("-learnable")}
    assert list(layers) == KERNELS
    assert [(layer.kernels, layer.bias) for layer in layers.values()] == [(kernel, False) for kernel in KERNELS]
    for row, layer in learnable.items():
        assert layer.kernels == [{"name": row.removesuffix("-learnable"), "learnable": True}]


def test_names_of_rows_are_those_of_directories() -> None:
    for table in TABLES.values():
        for row in table.rows:
            assert table.recipe_of(row, 1).name == f"{table.name}-{row}-1"


def test_the_paper_of_the_kernels() -> None:
    paper = [row.paper for name, row in get_table("kernels-swda").rows.items() if name in KERNELS]
    assert paper == [46.8, 103.0, 46.8, 47.3, 284.9, 49.9, 46.7, 122.6, 289.7]


def test_the_mixtures_are_those_of_the_paper() -> None:
    rows = get_table("mixtures-swda").rows
    assert {name: row.paper for name, row in rows.items() if row.paper is not None} == {
        "lin": 46.8,
        "mos": 47.8,
        "mixbig": 47.1,
        "mix1": 46.6,
        "mix2": 46.5,
        "mix3": 47.3,
        "mix4": 47.1,
        "mix5": 46.7,
    }
    penalties = {get_table("mixtures-swda").recipe_of(name, 1).output_layer.variance_penalty for name in NAMED_MIXTURES}
    assert penalties == {0.1}
