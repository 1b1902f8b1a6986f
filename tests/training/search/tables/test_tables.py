"""Tests of the tables that are shipped: their recipes are valid, and rows differ in nothing but the output layer."""

import re
from dataclasses import replace

import pytest

from training.recipe.dotted_path import differences
from training.search.tables.definitions import TABLES, GridSearch, Row, Table, comparable, get_table
from training.softmax.mixture import NAMED_MIXTURES
from training.tasks.language_model.task import build_model
from training.tasks.registry import TASKS

_DROPOUT = ["network.locked_dropout", "network.weight_dropout"]
OTHER_BUDGETS = {
    ("mixtures-swda", "lin-wide"): ["network.hidden_size"],
    ("mixtures-swda", "lin-longer"): ["loop.epochs", "loop.patience"],
    ("mixtures-swda-16", "lin-wide"): ["network.hidden_size"],
    ("mixtures-swda-16", "lin-longer"): ["loop.epochs", "loop.patience"],
    ("mixture-collapse", "equal-first"): ["loop.equal_weights_steps"],
    ("softmax-ptb", "lin-wide"): ["network.hidden_size"],
    ("softmax-ptb", "lin-unlocked"): ["loop.weight_decay", *_DROPOUT],
}
"""Rows with another budget than the first row of their table, and the fields that differ."""
KERNELS = ["lin", "log", "pow", "pol", "rbf", "ssg", "mog", "hpb", "wav"]


@pytest.mark.parametrize("name", TABLES)
def test_rows_have_the_same_data_and_training(name: str) -> None:
    table = get_table(name)
    first, *others = [comparable(table.recipe_of(row, 1)) for row in table.rows if (name, row) not in OTHER_BUDGETS]
    layers = [(each.pop("output_layer"), each.pop("loss", None)) for each in (first, *others)]
    assert all(each == first for each in others)
    assert all(layers.count(layer) == 1 for layer in layers)


@pytest.mark.parametrize(("name", "row"), OTHER_BUDGETS)
def test_rows_of_another_budget_differ_in_nothing_else(name: str, row: str) -> None:
    fields = OTHER_BUDGETS[name, row]
    table = get_table(name)
    first, other = (comparable(table.recipe_of(each, 1)) for each in (next(iter(table.rows)), row))
    assert [path for path, _, _ in sorted(differences(first, other))] == fields


@pytest.mark.parametrize("name", TABLES)
def test_all_points_of_the_grids_are_recipes(name: str) -> None:
    table = get_table(name)
    rates = {row: {point["loop.learning_rate"] for point in each.points()} for row, each in table.rows.items()}
    assert len({max(each) for each in rates.values() if each}) <= 1
    for row, each in table.rows.items():
        for point in each.points():
            assert comparable(table.recipe_of(row, 1, point)) != comparable(table.recipe_of(row, 2, point))


@pytest.mark.parametrize("name", TABLES)
def test_tables_say_what_their_recipes_do(name: str) -> None:
    table = get_table(name)
    recipe = table.recipe_of(next(iter(table.rows)), 2)
    assert recipe.seed == 2
    assert recipe.tune is None
    assert recipe.loop.precision == ("bfloat16" if "bfloat16" in table.budget else "float32")
    assert table.maximize == TASKS[recipe.task].maximize
    assert table.metric == TASKS[recipe.task].metric_of(recipe)
    assert re.search(rf"\b{recipe.loop.epochs} epochs?\b", table.budget)
    if (limit := recipe.data.limit_of("train")) is not None:
        assert f"{limit:,}" in table.budget
    assert (table.paper is None) == all(row.paper is None for row in table.rows.values())


@pytest.mark.parametrize(
    ("name", "biased", "other"), [("kernels-swda", True, "lin-no-bias"), ("kernels-ptb", False, "lin-bias")]
)
def test_kernels_are_all_compared(name: str, biased: bool, other: str) -> None:
    table = get_table(name)
    layers = {row: table.recipe_of(row, 1).output_layer for row in table.rows}
    contrast = layers.pop(other)
    assert (contrast.kernels, contrast.bias) == ("lin", not biased)
    assert list(layers) == KERNELS
    assert [(layer.kernels, layer.bias) for layer in layers.values()] == [(kernel, biased) for kernel in KERNELS]


def test_a_search_sets_values_of_the_row_and_a_smaller_budget() -> None:
    shipped = get_table("kernels-swda")
    grid = {"loop.learning_rate": (2e-5, 4e-3), "output_layer.kernels.0.p": (2, 6)}
    rows = {"log": replace(shipped.rows["log"], grid=grid)}
    table = replace(shipped, rows=rows, search=GridSearch(trials=4, overrides=("loop.epochs=2",)))
    search = table.search_of("log")
    assert search.loop.epochs == 2
    assert search.loop.precision == "float32"
    assert search.tune is not None
    assert list(search.tune.parameters.values()) == [[2e-5, 4e-3], [2, 6]]
    point = table.rows["log"].points()[-1]
    assert point == {"loop.learning_rate": 4e-3, "output_layer.kernels.0.p": 6}
    recipe = table.recipe_of("log", 3, point)
    assert recipe.output_layer.kernels == [{"name": "log", "p": 6}]
    assert (recipe.seed, recipe.loop.learning_rate, recipe.loop.epochs) == (3, 4e-3, 5)
    others = recipe.with_values({"loop.learning_rate": 2e-3, "output_layer.kernels": "log"})
    assert comparable(others) == comparable(table.recipe_of("log", 3))


def test_rows_with_another_number_of_trials_are_an_error(table: Table) -> None:
    rates = Row(grid={"loop.learning_rate": (1e-3, 2e-3)})
    search = GridSearch(trials=2, overrides=())
    assert replace(table, rows={"lin": rates}, search=search).search == search
    with pytest.raises(ValueError, match="row pow: its grid has 0 points, the table's search 2 trials"):
        replace(table, rows={"lin": rates, "pow": Row()}, search=search)
    with pytest.raises(ValueError, match="row lin: its grid has 2 points, the table's search 0 trials"):
        replace(table, rows={"lin": rates})


@pytest.mark.parametrize(
    ("name", "words"), [("mixtures-swda", 2552), ("mixtures-swda-16", 2552), ("softmax-ptb", 10_000)]
)
def test_the_wide_network_has_at_least_the_parameters_of_a_mixture(name: str, words: int) -> None:
    table = get_table(name)
    wide, *mixtures = (
        sum(parameter.numel() for parameter in build_model(table.recipe_of(row, 1), words).parameters())  # type: ignore[arg-type]
        for row in ("lin-wide", *(row for row in table.rows if not row.startswith("lin")))
    )
    assert max(mixtures) <= wide < 1.2 * max(mixtures)


def test_names_of_rows_are_those_of_directories() -> None:
    for table in TABLES.values():
        for row in table.rows:
            assert table.recipe_of(row, 1).name == f"{table.name}-{row}-1"


def test_the_paper_of_the_kernels() -> None:
    papers = [
        [row.paper for name, row in get_table(table).rows.items() if name in KERNELS]
        for table in ("kernels-swda", "kernels-multi30k")
    ]
    assert papers == [
        [46.8, 103.0, 46.8, 47.3, 284.9, 49.9, 46.7, 122.6, 289.7],
        [34.3, 0.4, 32.8, 31.7, 0.0, 34.6, 34.2, 0.3, 0.0],
    ]


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
    assert NAMED_MIXTURES.keys() == rows.keys() - {"lin", "lin-wide", "lin-longer"}
    penalties = {get_table("mixtures-swda").recipe_of(name, 1).output_layer.variance_penalty for name in NAMED_MIXTURES}
    assert penalties == {0.1}
