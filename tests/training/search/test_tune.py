"""Tests of hyperparameter search: the section `tune`, grids, TPE, pruning, resuming after an interruption."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pydantic import ValidationError

import training
import training.search.tune
from training.recipe import Range, Recipe
from training.recipe.loading import load_recipe, parse_recipe
from training.run.directory import Evaluation, Progress, RunDirectory
from training.run.loop import Trainer
from training.search.tune import Search, TrialResult, clear_search
from training.tasks.language_model import LanguageModelTask

CPU = torch.device("cpu")
P = "output_layer.kernels.0.p"
RATE = "loop.learning_rate"
K = "output_layer.sparse_k"
MakeRecipe = Callable[..., Recipe]
OpenSearch = Callable[..., Search]


@pytest.fixture
def make_recipe(tiny_recipe: Recipe) -> MakeRecipe:
    """A recipe that is trained within a moment, with a section `tune`."""

    def make(parameters: dict[str, Any], kernels: Any = "log", **tune: Any) -> Recipe:
        content = tiny_recipe.model_dump()
        content["data"]["limit"] = 20
        content["network"] = {"hidden_size": 8, "num_layers": 1, "dropout": 0.0}
        content["output_layer"]["kernels"] = kernels
        content["loop"] |= {"epochs": 2, "warmup_steps": 0}
        return parse_recipe({**content, "tune": {"parameters": parameters, **tune}})

    return make


@pytest.fixture
def open_search(make_recipe: MakeRecipe, tiny_data_dir: Path, tmp_path: Path) -> OpenSearch:
    def open_(parameters: dict[str, Any], name: str = "search", **settings: Any) -> Search:
        return Search(make_recipe(parameters, **settings), tmp_path / name, tiny_data_dir, CPU)

    return open_


class Scripted:
    """A trainer whose metrics after each epoch are a function of the recipe; counts trainings."""

    curve: Callable[[Recipe], list[float]]
    trained: list[Recipe]

    def __init__(self, task: LanguageModelTask, run: RunDirectory, settings: Any) -> None:
        self.task, self.run, self.settings = task, run, settings
        self.progress = Progress()

    def fit(self, report: Callable[[str], None], on_evaluation: Callable[[Evaluation], None]) -> Progress:
        type(self).trained.append(self.task.recipe)
        for n, metric in enumerate(type(self).curve(self.task.recipe), 1):
            if math.isnan(metric):
                raise FloatingPointError("the loss is nan at step 1; try a lower learning_rate")
            self.progress.history.append(Evaluation(epoch=n, step=n, train_loss=1.0, metric=metric, seconds=60.0))
            report(f"epoch {n}")
            on_evaluation(self.progress.history[-1])
        return self.progress


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Recipe], list[float]]], type[Scripted]]:
    def install(curve: Callable[[Recipe], list[float]]) -> type[Scripted]:
        scripted = type("Scripted", (Scripted,), {"curve": staticmethod(curve), "trained": []})
        monkeypatch.setattr(training.search.tune, "Trainer", scripted)
        return scripted

    return install


def _silent(line: str) -> None:
    """A report that is discarded."""


def _rate(recipe: Recipe) -> list[float]:
    """A metric that is its learning rate plus 1."""
    return [recipe.loop.learning_rate + 2, recipe.loop.learning_rate + 1]


def _values(results: list[TrialResult], path: str = RATE) -> list[Any]:
    return [result.values[path] for result in results]


# ---- recipes ----------------------------------------------------------------------------------------------


def test_the_shipped_recipe_searches_a_grid() -> None:
    recipe = load_recipe(Path(training.__file__).parent / "recipes" / "tune-log.yaml")
    assert recipe.tune is not None
    assert (recipe.tune.sampler, list(recipe.tune.parameters)) == ("grid", [P])


def test_a_recipe_with_a_search_survives_yaml(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe({P: [0.5, 1], RATE: {"low": 1e-3, "high": 1, "log": True}}, sampler="tpe", trials=3)
    assert recipe.tune is not None
    assert recipe.tune.parameters[RATE] == Range(low=1e-3, high=1.0, log=True)
    assert parse_recipe(yaml.safe_load(yaml.safe_dump(recipe.model_dump()))) == recipe


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"output_layer.kernels.0.q": [1]}, "kernels.0.q = 1: unknown hyperparameter 'q' of kernel 'log'; it has: p"),
        ({"output_layer.kernels.1.p": [1]}, "there is no output_layer.kernels.1.p: instead of '1' there is 0"),
        ({"loop.rate": [1]}, "there is no loop.rate: instead of 'rate' there is epochs, learning_rate"),
        ({"loop": [1]}, "loop = 1: Input should be"),
        ({RATE: [0.1, -1]}, "loop.learning_rate = -1: Input should be greater than 0"),
        ({K: [None, 0]}, "output_layer.sparse_k = 0: sparse_k must be null or a positive integer, not 0"),
        ({K: {"low": 1, "high": 9}}, "output_layer.sparse_k is a range; list its values for a grid"),
        ({"output_layer.untied": [None, 2]}, "output_layer.untied = 2: untied has no effect with a single kernel"),
        ({P: [2, "two"]}, "p of kernel 'log' must be a positive finite number, not 'two'"),
        ({RATE: {"low": 1, "high": 2}}, "loop.learning_rate is a range; list its values for a grid"),
        ({RATE: [0.1, 0.2, 0.1]}, "loop.learning_rate has a value twice"),
        ({RATE: []}, "at least 1 item"),
        ({RATE: 0.1}, "a valid list"),
        ({RATE: {"low": 1}}, "Field required"),
        ({RATE: {"low": 2, "high": 1}}, "low must be below high, not 2 and 1"),
        ({RATE: {"low": 0, "high": 1, "log": True}}, "low must be positive on a logarithmic scale, not 0"),
        ({RATE: {"low": 0.5, "high": 2, "integer": True}}, "low and high must be whole"),
        ({"output_layer.kernels": ["lin"], P: [1]}, "lies within output_layer.kernels"),
        ({"data.limit": [10, 20]}, "data.limit cannot be searched; fields that can: seed, data.batch_tokens"),
        ({"name": ["other"]}, "name cannot be searched"),
        ({}, "at least 1 item"),
    ],
    ids=str,
)
def test_an_impossible_search_is_explained(make_recipe: MakeRecipe, parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make_recipe(parameters)
    assert said in str(caught.value)
    for error in caught.value.errors():
        assert "tune" in error["loc"] or error["msg"].startswith("Value error, tune.parameters: ")


def test_ranges_are_tried_too(make_recipe: MakeRecipe) -> None:
    layers = {"low": 1, "high": 3}
    with pytest.raises(ValidationError, match="a number with a fractional part"):
        make_recipe({"network.num_layers": layers}, sampler="tpe", trials=2)
    assert make_recipe({"network.num_layers": {**layers, "integer": True}}, sampler="tpe", trials=2).tune
    with pytest.raises(ValidationError, match="`sampler: tpe` needs a number of trials"):
        make_recipe({"network.num_layers": [1, 2]}, sampler="tpe")


def test_values_at_paths(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe({P: [1]}, kernels="2*log, lin").with_values({P: 3, RATE: 0.5})
    assert recipe.output_layer.kernels == [{"name": "log", "p": 3}, {"name": "log"}, {"name": "lin"}]
    assert (recipe.loop.learning_rate, recipe.tune) == (0.5, None)


# ---- grids ------------------------------------------------------------------------------------------------


def test_every_trial_is_a_run(open_search: OpenSearch) -> None:
    """The search runs the real trainer: two values of p, two epochs each."""
    search = open_search({P: [0.5, 2]})
    search.run(_silent)
    results = search.results()
    assert sorted(_values(results, P)) == [0.5, 2]
    for result in results:
        run = RunDirectory(search.directory / f"trial-{result.number}")
        assert run.recipe().output_layer.kernels == [{"name": "log", "p": result.values[P]}]
        assert result.metric == min(each["metric"] for each in json.loads((run.path / "history.json").read_text()))
        assert run.best.is_file()
        assert run.tokenizer.is_file()
        assert not run.last.exists()
        assert (result.epochs, result.pruned, result.failed) == (2, False, False)
        assert result.seconds > 0
    assert results[0].metric < results[1].metric


def test_a_grid_is_every_combination_once(open_search: OpenSearch, script: Callable[..., type[Scripted]]) -> None:
    scripted = script(_rate)
    parameters = {RATE: [0.2, 0.1], "output_layer.kernels": ["lin", "2*log"], "network.dropout": [0]}
    search = open_search(parameters)
    search.run(_silent)
    results = search.results()
    assert len({tuple(result.values.values()) for result in results}) == len(results) == 4
    assert _values(results) == [0.1] * 2 + [0.2] * 2
    assert [result.metric for result in results[:2]] == [1.1] * 2
    again = open_search(parameters)
    again.run(_silent)
    assert len(scripted.trained) == 4
    assert again.results() == results


def test_the_output_layer_can_be_searched(open_search: OpenSearch, script: Callable[..., type[Scripted]]) -> None:
    """Values of several kinds in one list."""
    scripted = script(_rate)
    parameters = {K: [None, 5], "output_layer.untied": [None, 2, "full"], "output_layer.label_smoothing": [0, 0.1]}
    search = open_search(parameters, kernels="2*log")
    search.run(_silent)
    results = search.results()
    assert len(results) == 12
    assert not any(result.failed for result in results)
    layers = [recipe.output_layer for recipe in scripted.trained]
    assert {(layer.sparse_k, layer.untied) for layer in layers} == {
        (k, u) for k in (None, 5) for u in (None, 2, "full")
    }
    assert {layer.label_smoothing for layer in layers} == {0, 0.1}


def test_a_range_of_k_can_be_sampled(open_search: OpenSearch, script: Callable[..., type[Scripted]]) -> None:
    scripted = script(_rate)
    open_search({K: {"low": 1, "high": 9, "integer": True}}, sampler="tpe", trials=3).run(_silent)
    assert all(1 <= (recipe.output_layer.sparse_k or 0) <= 9 for recipe in scripted.trained)


def test_a_grid_may_grow(open_search: OpenSearch, script: Callable[..., type[Scripted]]) -> None:
    scripted = script(_rate)
    open_search({RATE: [0.1, 0.2]}).run(_silent)
    search = open_search({RATE: [0.1, 0.2, 1]})
    search.run(_silent)
    assert [recipe.loop.learning_rate for recipe in scripted.trained][2:] == [1]
    assert _values(search.results()) == [0.1, 0.2, 1]


def test_trials_bound_a_grid_and_the_seed_orders_it(
    open_search: OpenSearch, script: Callable[..., type[Scripted]]
) -> None:
    scripted = script(_rate)
    rates = [rate / 100 for rate in range(1, 21)]
    for name in ("one", "two"):
        open_search({RATE: rates}, name, trials=3).run(_silent)
    tried = [recipe.loop.learning_rate for recipe in scripted.trained]
    assert tried[:3] == tried[3:] != rates[:3]
    open_search({RATE: rates}, "one", trials=5).run(_silent)
    assert len(scripted.trained) == 8


# ---- interruptions ----------------------------------------------------------------------------------------


def _stop_in(number: int) -> Callable[[str], None]:
    def report(line: str) -> None:
        if line.startswith(f"trial {number}, epoch 1"):
            raise KeyboardInterrupt

    return report


_GRID: dict[str, Any] = {"parameters": {RATE: [0.1, 0.2, 0.3, 0.4]}}
_TPE: dict[str, Any] = {"parameters": {RATE: {"low": 0.1, "high": 1}}, "sampler": "tpe", "trials": 4}


@pytest.mark.parametrize("settings", [_GRID, _TPE], ids=["grid", "tpe"])
def test_an_interrupted_trial_is_repeated(
    settings: dict[str, Any], open_search: OpenSearch, script: Callable[..., type[Scripted]]
) -> None:
    scripted = script(_rate)
    with pytest.raises(KeyboardInterrupt):
        open_search(**settings).run(_stop_in(1))
    search = open_search(**settings)
    assert [trial.state.name for trial in search.study.trials][:2] == ["COMPLETE", "FAIL"]
    assert not (search.directory / "trial-1").exists()
    search.run(_silent)
    assert len(search.results()) == 4
    rates = [recipe.loop.learning_rate for recipe in scripted.trained]
    assert rates[1] == rates[2]
    assert len(set(rates)) == 4

    whole = open_search(**settings, name="whole")
    whole.run(_silent)
    assert _values(whole.results()) == _values(search.results())


def test_a_killed_process_leaves_a_trial_that_is_repeated(
    open_search: OpenSearch, script: Callable[..., type[Scripted]]
) -> None:
    script(_rate)
    killed = open_search({RATE: [0.1, 0.2]})
    assert killed._prepare_next()
    killed.study.ask(killed._space)
    said: list[str] = []
    search = open_search({RATE: [0.1, 0.2]})
    search.run(said.append)
    assert said[0] == "trial 0 was interrupted"
    assert [trial.state.name for trial in search.study.trials] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert _values(search.results()) == [0.1, 0.2]


@pytest.mark.parametrize("settings", [_GRID, _TPE], ids=["grid", "tpe"])
def test_several_processes_share_the_trials_of_a_search(
    settings: dict[str, Any], open_search: OpenSearch, script: Callable[..., type[Scripted]]
) -> None:
    scripted = script(_rate)
    first, second = open_search(**settings), open_search(**settings)

    def report(line: str) -> None:  # the second one begins while the first one trains, and takes all that is left
        with pytest.raises(ValueError, match="another process is searching"):
            clear_search(first.directory)
        if not second.results():
            second.run(_silent)

    first.run(report)
    assert len(first.results()) == len(scripted.trained) == 4
    assert {trial.state.name for trial in first.study.trials} == {"COMPLETE"}
    assert len({recipe.loop.learning_rate for recipe in scripted.trained}) == 4
    clear_search(first.directory)
    assert not (first.directory / "study.db").exists()


# ---- sampling, pruning, failing ---------------------------------------------------------------------------


def test_tpe_finds_the_better_end(open_search: OpenSearch, script: Callable[..., type[Scripted]]) -> None:
    script(_rate)
    parameters = {RATE: {"low": 1e-4, "high": 1, "log": True}, "network.num_layers": [1, 2]}
    search = open_search(parameters, sampler="tpe", trials=14)
    search.run(_silent)
    results = search.results()
    assert len(results) == 14
    assert all(1e-4 <= rate <= 1 for rate in _values(results))
    assert {type(layers) for layers in _values(results, "network.num_layers")} == {int}
    late = [result.values[RATE] for result in results if result.number >= 10]
    assert sum(rate < 1e-2 for rate in late) >= 3  # half of the range, on its scale


def test_the_median_prunes(open_search: OpenSearch, script: Callable[..., type[Scripted]]) -> None:
    """Three trials end; of those after them, one is worse at once, one only after the last epoch."""
    curves = {0.1: [5.0, 4.0], 0.2: [6.0, 5.0], 0.3: [7.0, 6.0], 0.4: [9.0, 1.0], 0.5: [5.5, 5.4]}
    script(lambda recipe: curves[recipe.loop.learning_rate])
    search = open_search({RATE: [0.1, 0.2, 0.3]}, pruning="median")
    search.run(_silent)
    said: list[str] = []
    search = open_search({RATE: [0.1, 0.2, 0.3, 0.4, 0.5]}, pruning="median")
    search.run(said.append)
    results = search.results()
    assert _values(results) == [0.1, 0.2, 0.5, 0.3, 0.4]
    assert [result.pruned for result in results] == [False] * 4 + [True]
    assert (results[-1].metric, results[-1].epochs) == (9.0, 1)
    assert sum("worse than the median" in line for line in said) == 1


def test_divergence_is_a_result(open_search: OpenSearch, script: Callable[..., type[Scripted]]) -> None:
    scripted = script(lambda recipe: [3.0, math.nan] if recipe.loop.learning_rate > 1 else [4.0, 3.5])
    said: list[str] = []
    for _ in range(2):
        search = open_search({RATE: [0.1, 10]})
        search.run(said.append)
    assert len(scripted.trained) == 2
    assert [(result.metric, result.failed) for result in search.results()] == [(3.5, False), (math.inf, True)]
    assert any("failed: the loss is nan" in line for line in said)


def test_values_that_exclude_each_other_are_skipped(
    open_search: OpenSearch, script: Callable[..., type[Scripted]]
) -> None:
    script(_rate)
    search = open_search({"output_layer.kernels.0.num_gaussians": [2, 3]}, kernels="mog")
    said: list[str] = []
    search.run(said.append)
    assert [result.failed for result in search.results()] == [False, True]
    assert any("3 does not divide 8" in line for line in said)


# ---- errors -----------------------------------------------------------------------------------------------


def test_a_search_needs_a_section(tiny_recipe: Recipe, tmp_path: Path, tiny_data_dir: Path) -> None:
    with pytest.raises(ValueError, match="recipe 'toy' has no section `tune`"):
        Search(tiny_recipe, tmp_path, tiny_data_dir, CPU)


def test_another_recipe_does_not_go_on(open_search: OpenSearch, script: Callable[..., type[Scripted]]) -> None:
    script(_rate)
    open_search({RATE: [0.1]}).run(_silent)
    with pytest.raises(ValueError, match=r"was started with another recipe, output_layer\.kernels differ: "):
        open_search({RATE: [0.1]}, kernels="pow")
    with pytest.raises(ValueError, match=f"searched other kinds of values for {RATE}; tune --restart"):
        open_search({RATE: [0.1]}, sampler="tpe", trials=3)


def test_the_trainer_calls_back_after_every_evaluation(
    make_recipe: MakeRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    recipe = make_recipe({RATE: [0.1]})
    run = RunDirectory(tmp_path / "run")
    run.start(recipe)
    task = LanguageModelTask(recipe, LanguageModelTask.build_tokenizer(recipe, tiny_data_dir), tiny_data_dir, CPU)
    seen = []

    def look(evaluation: Evaluation) -> None:
        assert run.last.is_file()
        seen.append(evaluation)

    assert Trainer(task, run, recipe.loop).fit(_silent, on_evaluation=look).history == seen
    assert [evaluation.epoch for evaluation in seen] == [1, 2]
