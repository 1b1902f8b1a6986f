"""A comparison table of two rows on the toy corpus, trained within a moment."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.training.cli.test_cli import RECIPE, run_cli
from tests.training.cli.test_cli import Result as Ended
from training.data.corpus import Corpus
from training.search.tables.definitions import GridSearch, Row, Table
from training.search.tables.records import Machine, Point, Result

TableCommand = Callable[..., Ended]


@pytest.fixture
def table(tiny_corpus: Corpus, tmp_path: Path) -> Iterator[Table]:
    """The only table, `toy`: `lin` and `pow`, of which the paper has numbers, with two seeds."""
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    made = Table(
        name="toy",
        title="Kernels on a toy",
        question="Is a kernel better than `lin`?",
        description="Two kernels.",
        budget="2 epochs.",
        recipe=str(file),
        overrides=("data.limit=40", "network.hidden_size=8"),
        rows={
            "lin": Row(paper=46.8),
            "pow": Row(overrides=("output_layer.kernels=pow",), paper=46.9),
        },
        seeds=(1, 2),
        metric="perplexity",
        maximize=False,
        paper="perplexity on more text",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.search.tables.definitions.TABLES", {"toy": made})
        for module in ("training.cli.tables", "training.search.tables.page"):
            patch.setattr(f"{module}.TABLES", {"toy": made})
        yield made


@pytest.fixture
def searched(table: Table, monkeypatch: pytest.MonkeyPatch) -> Table:
    """`toy` with a search for the learning rate of each row, trained for one epoch."""
    grid = {"loop.learning_rate": (1e-3, 2e-3)}
    rows = {name: replace(row, grid=grid) for name, row in table.rows.items()}
    made = replace(table, rows=rows, search=GridSearch(trials=2, overrides=("loop.epochs=1",)))
    for module in ("training.search.tables.definitions", "training.cli.tables", "training.search.tables.page"):
        monkeypatch.setattr(f"{module}.TABLES", {"toy": made})
    return made


@pytest.fixture
def make(table: Table) -> Callable[..., Result]:
    """A result of a row and seed: the test perplexity, one less on the validation set, or None: it diverged."""

    def result(row: str, seed: int, test: float | None) -> Result:
        dev = None if test is None else test - 1
        points = [(1, 90.0), (2, dev)]
        return Result(
            row=row,
            seed=seed,
            status="diverged" if test is None else "finished",
            reason="the loss is nan at step 3" if test is None else None,
            dev_metric="perplexity",
            dev=dev,
            test={} if test is None else {"perplexity": test},
            curve=[Point(epoch=n, step=n, train_loss=1.0, metric=metric, seconds=60.0 * n) for n, metric in points],
            seconds=120.0,
            parameters=None if test is None else 1_250_000,
            revision="0123456789ab",
            machine=Machine(processor="A processor", cores=2, threads=1, torch="2.0"),
            recipe=table.recipe_of(row, seed).model_dump(mode="json", exclude={"tune"}),
        )

    return result


@pytest.fixture
def run(table: Table, tiny_data_dir: Path, tmp_path: Path) -> TableCommand:
    """`softserve-train table toy` with all that it writes in `tmp_path`."""
    (tmp_path / "docs").mkdir()

    def call(*flags: object, name: str = "toy") -> Ended:
        places = ("--data-dir", tiny_data_dir, "--runs", tmp_path / "runs", "--results", tmp_path)
        return run_cli("table", name, *places, "--page", tmp_path / "docs" / "results.md", *flags)

    return call
