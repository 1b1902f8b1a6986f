"""Tests of comparing the trials of a grid."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.fixtures.classification import ERRANDS_RECIPE
from training.cli.analyses import grid
from training.data.corpus import Corpus
from training.recipe import Value
from training.recipe.loading import load_recipe
from training.search.analyses.grid import Measured, grid_rows, shown_rows
from training.search.analyses.plots import plot_curves, plot_metric
from training.search.tune import Search, TrialResult

K = "output_layer.sparse_k"


def _trial(seed: int, k: Value, accuracy: float, losses: list[float] | None = None) -> Measured:
    result = TrialResult(number=seed, values={"seed": seed, K: k}, metric=0.5, pruned=False, epochs=2, seconds=1.0)
    return Measured(result=result, metrics={"accuracy": accuracy}, losses=losses or [2.0, 1.0])


TRIALS = [_trial(1, 20, 0.9), _trial(2, 3, 0.7), _trial(2, 20, 0.8), _trial(1, None, 0.6), _trial(1, 3, 0.7)]


def test_seeds_are_repetitions() -> None:
    rows = grid_rows(TRIALS)
    assert rows.columns == [K, "seeds", "accuracy", "accuracy +-"]
    assert rows.rows == [
        (None, 1, 0.6, None),
        (3, 2, pytest.approx(0.7), 0.0),
        (20, 2, pytest.approx(0.85), pytest.approx(0.0707, abs=1e-4)),
    ]


def test_what_is_shown_is_short() -> None:
    rows = shown_rows(TRIALS)
    assert rows.columns == ["", "without sparse_k", "sparse_k = 3", "sparse_k = 20"]
    assert rows.rows == [("seeds", 1, 2, 2), ("accuracy", "0.6", "0.7 ± 0", "0.85 ± 0.071")]


def test_trials_may_have_different_metrics(tmp_path: Path) -> None:
    """Those of language models with and without `sparse_k` have different names."""
    other = replace(TRIALS[0], metrics={"perplexity": 9.0})
    trials = [other, *TRIALS[1:]]
    rows = grid_rows(trials)
    assert rows.columns == [K, "seeds", "perplexity", "perplexity +-", "accuracy", "accuracy +-"]
    assert {row[2:] for row in rows.rows} >= {(9.0, None, 0.8, None), (None, None, 0.6, None)}
    assert shown_rows(trials).rows[1][0] == "perplexity"
    assert plot_metric(trials, K, tmp_path / "a.png").is_file()


def test_plots_are_drawn(tmp_path: Path) -> None:
    for path in (plot_curves(TRIALS, tmp_path / "a.png"), plot_metric(TRIALS, K, tmp_path / "b.png")):
        assert path.stat().st_size > 5000
    zero = [_trial(1, 3, 0.5, [1.0, 0.0])]  # no logarithm
    assert plot_curves(zero, tmp_path / "c.png").is_file()


def _searched(errands_corpus: Corpus, directory: Path) -> Path:
    content: dict[str, Any] = {
        **ERRANDS_RECIPE,
        "data": {**ERRANDS_RECIPE["data"], "limit": 200},
        "loop": {"epochs": 1, "learning_rate": 1e-2, "warmup_steps": 2, "precision": "float32"},
        "tune": {"parameters": {"seed": [1, 2], K: [None, 4]}},
    }
    path = directory / "errands.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def test_a_search_for_the_best_classifier_is_compared_on_the_test_split(
    errands_corpus: Corpus, tiny_data_dir: Path, tmp_path: Path
) -> None:
    recipe = _searched(errands_corpus, tmp_path)
    with pytest.raises(FileNotFoundError, match="errands-tune holds no search"):
        grid(recipe, data_dir=tiny_data_dir, runs=tmp_path, device="cpu")
    search = Search(load_recipe(recipe), tmp_path / "errands-tune", tiny_data_dir, torch.device("cpu"))
    with pytest.raises(ValueError, match="no trial that came to its end"):
        grid(recipe, data_dir=tiny_data_dir, runs=tmp_path, device="cpu")
    assert (search.metric, search.maximize) == ("accuracy", True)
    search.run(lambda line: None)
    metrics = [result.metric for result in search.results()]
    assert len(metrics) == 4
    assert metrics == sorted(metrics, reverse=True)
    assert grid(recipe, data_dir=tiny_data_dir, runs=tmp_path, against=K, device="cpu") == 0
    with (tmp_path / "errands-tune" / "grid.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row[K], row["seeds"]) for row in rows] == [("", "2"), ("4", "2")]
    assert {"accuracy", "macro F1", "out-of-scope AUROC"} <= set(rows[0])
    assert (tmp_path / "errands-tune" / "metrics.png").is_file()
    with pytest.raises(ValueError, match=r"against: the search has output_layer\.sparse_k, seed"):
        grid(recipe, data_dir=tiny_data_dir, runs=tmp_path, against="loop.epochs", device="cpu")
