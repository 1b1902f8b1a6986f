"""Tests of the page of comparison tables."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from training.search.tables.definitions import Table
from training.search.tables.page import PAGE, page_text, plots, write_page
from training.search.tables.records import Result, Trial, append
from training.search.tables.summary import Correlation


def test_the_page_without_results(table: Table, tmp_path: Path) -> None:
    text = page_text(tmp_path)
    assert "## Kernels on a toy\n" in text
    assert (
        "| `lin` | not run | 46.8 |  |  |  |  | 0 of 2 |  |\n| `pow` | not run | 46.9 |  |  |  |  | 0 of 2 |  |\n"
        in text
    )
    assert "Trained on" not in text
    assert plots(tmp_path) == {}


def test_the_page_of_results(table: Table, make: Callable[..., Result], tmp_path: Path) -> None:
    for result in (make("lin", 1, 40.0), make("lin", 2, 44.0), make("pow", 1, None)):
        append(tmp_path / "toy.jsonl", result)
    write_page(tmp_path / "results.md", tmp_path)
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    columns = "row | test perplexity | paper | difference from `lin` | validation perplexity | best epoch"
    assert f"| {columns} | parameters | seeds | training minutes |" in text
    assert "| `lin` | 42.0 (40.0 to 44.0) | 46.8 |  | 41.0 (39.0 to 43.0) | 2 of 2 | 1.25M | 2 of 2 | 2.0 |" in text
    assert "| `pow` | diverged | 46.9 |  |  |  |  | 0 of 2 |  |" in text
    assert "* `pow`, seed 1, diverged after 2 epochs: the loss is nan at step 3" in text
    assert "* Trained on A processor, 1 of 2 cores, torch 2.0; revision `0123456789ab`." in text
    assert "* Column paper: perplexity on more text." in text
    assert "![validation perplexity of Kernels on a toy against epochs](figures/results-toy.svg)" in text
    picture = (tmp_path / "figures" / "results-toy.svg").read_text(encoding="utf-8")
    assert picture == plots(tmp_path)["results-toy.svg"]
    assert "lin" in picture


def test_one_seed_and_rank_correlation(
    table: Table, make: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.search.tables.page.correlation", lambda rows: Correlation(0.8666, len(rows), 0.041))
    for row, value in (("lin", 0.5), ("pow", 0.25)):
        append(tmp_path / "toy.jsonl", make(row, 1, value))
    text = page_text(tmp_path)
    assert "Spearman's rank correlation with the paper over 2 rows: 0.87 (p = 0.04, permutation test)." in text
    assert "| `lin` | 0.5 | 46.8 |" in text
    monkeypatch.setattr("training.search.tables.page.correlation", lambda rows: Correlation(0.8666, len(rows), 0.0004))
    assert "0.87 (p < 0.005, permutation test)." in page_text(tmp_path)


def test_differences_from_the_first_row(table: Table, make: Callable[..., Result], tmp_path: Path) -> None:
    """By hand: differences 1 and 3 have the mean 2 and the deviation 1.414; the quantile of t is 12.706."""
    for row, seed, value in (("lin", 1, 40.0), ("pow", 1, 41.0)):
        append(tmp_path / "toy.jsonl", make(row, seed, value))
    assert "| `pow` | 41.0 | 46.9 | +1.0 |" in page_text(tmp_path)
    for row, seed, value in (("lin", 2, 44.0), ("pow", 2, 47.0)):
        append(tmp_path / "toy.jsonl", make(row, seed, value))
    assert "| `pow` | 44.0 (41.0 to 47.0) | 46.9 | +2.0 [-10.7, +14.7] |" in page_text(tmp_path)


def test_values_at_an_end_of_their_range_are_named(
    searched: Table, make: Callable[..., Result], tmp_path: Path
) -> None:
    trials = [Trial(values={"loop.learning_rate": rate}, metric=1 / rate, seconds=1.0) for rate in (1e-3, 2e-3)]
    recipe = searched.recipe_of("lin", 1, trials[1].values).model_dump(mode="json", exclude={"tune"})
    append(tmp_path / "toy.jsonl", make("lin", 1, 40.0).model_copy(update={"trials": trials, "recipe": recipe}))
    line = "* The best `loop.learning_rate` is an end of the range tried, and may lie beyond: `lin`."
    assert line in page_text(tmp_path)


def test_rows_that_did_not_learn_are_named(table: Table, make: Callable[..., Result], tmp_path: Path) -> None:
    result = make("pow", 1, 81.0)
    append(tmp_path / "toy.jsonl", result)
    assert "Not learned" not in page_text(tmp_path)
    curve = [each.model_copy(update={"metric": 90.0}) for each in result.curve]
    append(tmp_path / "toy.jsonl", result.model_copy(update={"curve": curve}))
    assert "* Not learned, the validation perplexity was the same at all evaluations: `pow`." in page_text(tmp_path)


def test_further_metrics(table: Table, make: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    with_more = replace(table, further_metrics=("words", "word error"), digits=2)
    result = make("lin", 1, 40.0)
    more = result.model_copy(update={"test": {**result.test, "words": 7.0, "word error": 2.0}})
    monkeypatch.setattr("training.search.tables.page.TABLES", {"toy": with_more})
    monkeypatch.setattr("training.search.tables.page.read", lambda path: [more])
    text = page_text()
    columns = "row | test perplexity | paper | difference from `lin` | words | word error | validation perplexity"
    assert f"| {columns} | best epoch | parameters |" in text
    assert "| `lin` | 40.00 | 46.80 |  | 7.00 | 2.00 | 39.00 |" in text
    assert "* Further metrics on the same set: words, word error (smaller is better)." in text


def test_the_page_of_the_docs_is_what_the_files_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_text()
    for name, picture in plots().items():
        assert (PAGE.parent / "figures" / name).read_text(encoding="utf-8") == picture
