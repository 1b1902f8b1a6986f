"""Tests of `softserve-train table`: rows that are missing or present, the page, the list of tables."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.search.tables.conftest import TableCommand
from training.cli import tables as command
from training.run.directory import RunDirectory
from training.search.tables import runner
from training.search.tables.definitions import GridSearch, Table
from training.search.tables.records import read


def test_missing_rows_are_run_and_present_ones_are_not(
    run: TableCommand, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--seeds", 2, "--rows", "pow").code == 0
    ended = run()
    assert ended.code == 0
    assert "row pow, seed 2" not in ended.output
    results = read(tmp_path / "toy.jsonl")
    assert [(each.row, each.seed) for each in results] == [("pow", 2), ("lin", 1), ("pow", 1), ("lin", 2)]
    for each in results:
        assert each.status == "finished"
        assert [point.epoch for point in each.curve] == [1, 2]
        assert each.dev == min(point.metric for point in each.curve if point.metric is not None)
        assert each.test["perplexity"] > 1
        assert each.recipe["network"]["hidden_size"] == 8
        assert each.machine.processor
        run_directory = RunDirectory(tmp_path / "runs" / "table-toy" / f"{each.row}-{each.seed}")
        assert run_directory.recipe().seed == each.seed
        assert run_directory.best.is_file()
        assert not run_directory.last.is_file()
        assert run_directory.history()[-1].seconds == each.seconds

    page = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert "not run" not in page
    assert "| 2 of 2 |" in page
    assert (tmp_path / "docs" / "figures" / "results-toy.svg").is_file()

    monkeypatch.setattr(runner, "run_row", None)
    assert "toy: no row is missing" in run().output
    assert run("--rows", "log").code == "softserve-train: rows: the table has lin, pow, not log"


def test_a_search_chooses_the_hyperparameters_of_all_seeds(
    searched: Table, run: TableCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--rows", "pow", "--seeds", 2).code == 0
    with monkeypatch.context() as patch:
        patch.setattr(runner, "search_row", None)  # the trials are those of the file
        assert run("--rows", "pow").code == 0
    first, second = read(tmp_path / "toy.jsonl")
    assert [first.seed, second.seed] == [2, 1]
    assert first.trials == second.trials
    assert [trial.values for trial in first.trials] == searched.rows["pow"].points()
    metrics = [trial.metric for trial in first.trials]
    assert None not in metrics
    assert len(set(metrics)) == 2
    best = first.trials[metrics.index(min(each for each in metrics if each is not None))].values["loop.learning_rate"]
    assert [each.recipe["loop"]["learning_rate"] for each in (first, second)] == [best, best]
    (study,) = (tmp_path / "runs" / "table-toy" / "pow-search").iterdir()
    assert [RunDirectory(study / f"trial-{number}").recipe().loop.epochs for number in (0, 1)] == [1, 1]

    page = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert "| row | hyperparameters | test perplexity |" in page
    assert f"| `pow` | learning_rate {best} | " in page
    assert "| `lin` |  | not run | 46.8 |" in page
    assert "the best of 2 trials on the validation set, or of fewer where they are listed below" in page
    assert "trained with `loop.epochs=1` and seed 1" in page
    assert "toy: no row is missing" in run("--rows", "pow").output


def test_a_grid_that_grew_trains_what_is_new(
    searched: Table, run: TableCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the trials of the smaller grid are repeated nor a result whose values are still the best."""
    run("--rows", "pow", "--seeds", 1)
    larger = replace(searched.rows["pow"], grid={"loop.learning_rate": (1e-9, 1e-3, 2e-3)})
    grown = replace(searched, rows={"pow": larger}, search=GridSearch(trials=3, overrides=("loop.epochs=1",)))
    for module in ("training.search.tables.definitions", "training.cli.tables", "training.search.tables.page"):
        monkeypatch.setattr(f"{module}.TABLES", {"toy": grown})
    monkeypatch.setattr(runner, "run_row", None)
    output = run("--rows", "pow", "--seeds", 1).output
    assert output.count("trial 2: ") == 1
    assert "trial 3: " not in output
    before, after = read(tmp_path / "toy.jsonl")
    assert before == after.model_copy(update={"trials": before.trials})
    assert [trial.values for trial in after.trials] == larger.points()
    assert list(after.trials[1:]) == list(before.trials)


def test_a_row_of_an_earlier_definition_is_run_again(run: TableCommand, tmp_path: Path) -> None:
    run("--seeds", 1, "--rows", "lin")
    line = json.loads((tmp_path / "toy.jsonl").read_text(encoding="utf-8"))
    line["recipe"]["loop"]["epochs"] = 1
    (tmp_path / "toy.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    run("--only-page")
    assert "| `lin` | not run |" in (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert "lin, seed 1: finished" in run("--seeds", 1, "--rows", "lin").output


def test_what_a_table_does_not_have_is_an_error(run: TableCommand, tmp_path: Path) -> None:
    assert run(name="nine").code == "softserve-train: unknown table 'nine'; known tables: toy"
    assert run("--rows", "log").code == "softserve-train: rows: the table has lin, pow, not log"
    assert run("--seeds", 3).code == "softserve-train: seeds: the table has 1, 2, not 3"
    assert run("--threads", 0).code == "softserve-train: --threads must be at least 1, not 0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORLD_SIZE", "2")
        assert (
            run().code
            == "softserve-train: a table is trained by one process: each would train and append all rows; see --jobs"
        )
    ended = run("--data-dir", tmp_path / "nowhere")
    assert ended.code not in (0, None)
    assert read(tmp_path / "toy.jsonl") == []


def test_shipped_results_are_those_of_a_commit(
    run: TableCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "git_revision", lambda: "0123456789ab-dirty")
    monkeypatch.setattr(command, "DIRECTORY", tmp_path)
    message = str(run().code)
    assert "files differ from commit 0123456789ab" in message
    assert "--results" in message
    assert not (tmp_path / "toy.jsonl").exists()
    monkeypatch.setattr(command, "git_revision", lambda: "0123456789ab")
    monkeypatch.setattr(command, "train_row", lambda *arguments: None)
    monkeypatch.setattr(command, "_show_result", lambda *arguments: None)
    assert run().code == 0


def test_tables_are_listed(table: Table, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.table(results=tmp_path) == 0
    assert capfd.readouterr().out.splitlines()[1:] == [
        "table\ttitle\tfinished\tdiverged or failed\tof fewer trials\tnot run",
        "toy\tKernels on a toy\t0\t0\t0\t4",
    ]


def test_no_page_is_written_without_its_folder(table: Table, tmp_path: Path) -> None:
    assert command.table(only_page=True, results=tmp_path, page=tmp_path / "none" / "results.md") == 0
    assert not (tmp_path / "none").exists()
