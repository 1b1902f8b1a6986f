"""Tests of the output of a search; `test_tune.py` has the command."""

from pathlib import Path

from training.recipe import Recipe, Value
from training.search.analyses.plots import plot_trials
from training.search.analyses.trials import best_as_yaml, trial_rows
from training.search.tune import TrialResult


def _trial(number: int, metric: float, *, pruned: bool = False, **values: Value) -> TrialResult:
    named = {name.replace("__", "."): value for name, value in values.items()}
    return TrialResult(number=number, values=named, metric=metric, pruned=pruned, epochs=3, seconds=90.0)


def test_rows_say_how_trials_ended() -> None:
    results = [_trial(2, 4.5, seed=1), _trial(0, float("inf"), seed=2), _trial(1, 5.0, pruned=True)]
    rows = trial_rows(results, ["seed"], "perplexity")
    assert rows.columns == ["trial", "dev perplexity", "seed", "epochs", "minutes", "state"]
    assert rows.rows == [
        (2, 4.5, 1, 3, 1.5, "complete"),
        (0, float("inf"), 2, 3, 1.5, "failed"),
        (1, 5.0, None, 3, 1.5, "pruned"),
    ]


def test_the_best_is_yaml(tiny_recipe: Recipe) -> None:
    layer = tiny_recipe.output_layer.model_copy(update={"kernels": "lin, log"})
    recipe = tiny_recipe.model_copy(update={"output_layer": layer})
    text = best_as_yaml(recipe, _trial(0, 1.0, output_layer__kernels__1__p=3, seed=7))
    assert text == "output_layer:\n  kernels:\n  - name: lin\n  - name: log\n    p: 3\nseed: 7\n"


def test_every_kind_of_value_is_drawn(tmp_path: Path) -> None:
    results = [
        _trial(0, 5.0, loop__learning_rate=0.1, output_layer__kernels="lin"),
        _trial(1, 600.0, loop__learning_rate=1e-4, output_layer__kernels="log", data__x=True),
        _trial(2, float("inf"), loop__learning_rate=1.0),
        _trial(3, 700.0, pruned=True, loop__learning_rate=0.5),
    ]
    paths = ["loop.learning_rate", "output_layer.kernels", "data.x"]
    assert plot_trials(results, paths, "perplexity", tmp_path / "trials.png").read_bytes().startswith(b"\x89PNG")
    assert plot_trials(results[2:3], paths[:1], "perplexity", tmp_path / "none.png").is_file()
