"""Tests of the files of results."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from training.search.tables.definitions import DIRECTORY, TABLES, Table
from training.search.tables.records import Result, Trial, append, chosen, current, missing, path_of, read, this_machine


def test_what_is_written_is_read(make: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    assert read(path) == []
    results = [make("lin", 1, 42.0), make("pow", 1, None)]
    for each in results:
        append(path, each)
    assert read(path) == results
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2


def test_a_broken_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    for text in ("no JSON", "{}"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"toy\.jsonl is not a file of results"):
            read(path)


def test_only_results_of_the_recipe_count(table: Table, make: Callable[..., Result]) -> None:
    first, again, other = make("lin", 1, 42.0), make("lin", 1, 41.0), make("pow", 1, 40.0)
    seed = make("lin", 2, 42.0).model_copy(update={"seed": 7})
    stale = other.model_copy(update={"recipe": {**other.recipe, "seed": 3}})
    unknown = other.model_copy(update={"recipe": {**other.recipe, "no_field": 3}})
    renamed = other.model_copy(update={"recipe": {**other.recipe, "name": "other"}})
    assert current(table, [first, again, seed, stale, unknown]) == {("lin", 1): again}
    assert current(table, [renamed, stale]) == {("pow", 1): renamed}
    assert missing(table, {("lin", 1): again}) == [("pow", 1), ("lin", 2), ("pow", 2)]


def test_only_results_in_float32_count(table: Table, make: Callable[..., Result]) -> None:
    """Recipes of earlier results say `auto`, which the machine resolved."""
    result = make("lin", 1, 42.0)
    recipe = {**result.recipe, "loop": {**result.recipe["loop"], "precision": "auto"}}
    result = result.model_copy(update={"recipe": recipe})
    assert current(table, [result]) == {("lin", 1): result}
    machine = result.machine.model_copy(update={"precision": "bfloat16"})
    assert current(table, [result.model_copy(update={"machine": machine})]) == {}


def test_only_results_of_the_search_count(searched: Table, make: Callable[..., Result]) -> None:
    result = make("lin", 1, 42.0)
    rates = [1e-3, 2e-3]
    trials = [
        Trial(values={"loop.learning_rate": rate}, metric=metric, seconds=1.0)
        for rate, metric in zip(rates, (None, 50.0), strict=True)
    ]
    recipe = searched.recipe_of("lin", 1, {"loop.learning_rate": 2e-3}).model_dump(mode="json", exclude={"tune"})
    with_best = result.model_copy(update={"recipe": recipe, "trials": trials})
    assert current(searched, [with_best]) == {("lin", 1): with_best}
    others: list[Sequence[Trial]] = [
        (),  # 2e-3 is not the table's
        [trials[1], trials[1]],
        [trials[1], trials[1].model_copy(update={"values": {"loop.learning_rate": 3e-3}})],
        [trials[0].model_copy(update={"metric": 49.0}), trials[1]],  # 1e-3 is the best, and not in the recipe
    ]
    for trials in others:
        assert current(searched, [with_best.model_copy(update={"trials": trials})]) == {}


def test_results_of_a_smaller_grid_count_until_there_are_others(searched: Table, make: Callable[..., Result]) -> None:
    trials = [
        Trial(values={"loop.learning_rate": rate}, metric=metric, seconds=1.0)
        for rate, metric in ((1e-3, 40.0), (2e-3, 50.0))
    ]

    def result(seed: int, tried: list[Trial], rate: float) -> Result:
        recipe = searched.recipe_of("lin", seed, {"loop.learning_rate": rate}).model_dump(mode="json", exclude={"tune"})
        return make("lin", seed, 42.0).model_copy(update={"recipe": recipe, "trials": tried})

    small = [result(seed, trials[1:], 2e-3) for seed in (1, 2)]
    found = current(searched, small)
    assert found == {("lin", 1): small[0], ("lin", 2): small[1]}
    assert missing(searched, found) == [("lin", 1), ("pow", 1), ("lin", 2), ("pow", 2)]
    whole = result(2, trials, 1e-3)
    found = current(searched, [*small, whole, small[0]])
    assert found == {("lin", 2): whole}
    assert missing(searched, found) == [("lin", 1), ("pow", 1), ("pow", 2)]


def test_the_best_trial_is_chosen() -> None:
    metrics = [None, 3.0, 2.0, 4.0]
    trials = [Trial(values={"a": number}, metric=metric, seconds=1.0) for number, metric in enumerate(metrics)]
    assert chosen(trials, maximize=False) == {"a": 2}
    assert chosen(trials, maximize=True) == {"a": 3}
    assert chosen(trials[:1], maximize=False) == {"a": 0}
    assert chosen([], maximize=False) == {}


def test_a_new_field_with_a_default_changes_nothing(table: Table, make: Callable[..., Result]) -> None:
    result = make("lin", 1, 42.0)
    loop = {name: value for name, value in result.recipe["loop"].items() if name != "schedule"}
    older = result.model_copy(update={"recipe": {**result.recipe, "loop": loop}})
    assert current(table, [older]) == {("lin", 1): older}


def test_the_machine_is_known() -> None:
    machine = this_machine(torch.device("cpu"), "bfloat16")
    assert machine.processor
    assert machine.cores >= machine.threads >= 1
    assert machine.torch == torch.__version__


@pytest.mark.parametrize("name", TABLES)
def test_shipped_results_are_of_their_tables(name: str) -> None:
    table = TABLES[name]
    results = read(path_of(table, DIRECTORY))
    assert {(each.row, each.seed) for each in results} == current(table, results).keys()
    for each in results:
        assert not each.revision.endswith("dirty")
        assert each.status != "finished" or table.metric in each.test
