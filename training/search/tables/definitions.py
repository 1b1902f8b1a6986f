"""The comparison tables of `tables.yaml`: rows are overrides of one recipe, each trained with several seeds."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field
from pydantic.dataclasses import dataclass

from training.recipe import Recipe, Value
from training.recipe.loading import load_recipe
from training.settings import ENTRY, PositiveInt, read_entries

__all__ = ["DIRECTORY", "TABLES", "GridSearch", "Row", "Table", "comparable", "get_table"]

DIRECTORY = Path(__file__).parents[2] / "results"
"""Directory of the definitions and of the result files."""
_RECIPES = DIRECTORY.parent / "recipes"


@dataclass(frozen=True, slots=True, config=ENTRY)
class Row:
    """One line of a table."""

    overrides: tuple[str, ...] = ()
    """Fields of the recipe, as for `--set`, in addition to those of the table."""
    grid: Mapping[str, tuple[Value, ...]] = Field(default_factory=dict)
    """The values to choose from at dotted paths of the recipe, in a table with a `search`: all combinations are
    tried."""
    paper: float | None = None
    """The number that the paper reports, in the unit of the table."""

    def points(self) -> list[dict[str, Value]]:
        """Return the combinations of the grid's values, none without a grid."""
        if not self.grid:
            return []
        return [dict(zip(self.grid, point, strict=True)) for point in itertools.product(*self.grid.values())]


@dataclass(frozen=True, kw_only=True, slots=True, config=ENTRY)
class GridSearch:
    """The search on the validation set for the hyperparameters of each row, before it is trained."""

    trials: PositiveInt
    """Combinations of values that each row tries."""
    overrides: tuple[str, ...] = ()
    """A smaller budget of a trial than that of the row: fields of the recipe, in addition to those of the table."""


@dataclass(frozen=True, kw_only=True, slots=True, config=ENTRY)
class Table:
    """A comparison of output layers on one corpus, at the same budget for all rows unless a row says otherwise."""

    name: str
    title: str
    question: str
    """The question that the differences from the first row answer, a sentence."""
    description: str
    """The comparison in a sentence or two, in Markdown."""
    budget: str
    """The subset of the data and the training that each row has, in Markdown."""
    recipe: str
    """File of `training/recipes`."""
    overrides: tuple[str, ...] = ()
    """Fields of the recipe that all rows have, as for `--set`."""
    rows: Mapping[str, Row]
    """Lines by name, in order."""
    search: GridSearch | None = None
    """How the values of the rows' grids are chosen, with the first seed, for all seeds; without it rows have none."""
    seeds: tuple[PositiveInt, ...] = (1, 2, 3)
    metric: str
    """The metric on `split` that the table is about."""
    maximize: bool
    """Whether a larger metric is better."""
    further_metrics: tuple[str, ...] = ()
    """Metrics on `split` that are shown as well, in the same unit."""
    split: str = "test"
    paper: str | None = None
    """Metric, corpus and model of the numbers in the column of the paper."""
    scale: float = 1.0
    """Factor of the metric in the page, such as 100 for percentages."""
    digits: int = Field(default=1, ge=0)
    """Decimal places in the page."""

    def __post_init__(self) -> None:
        trials = 0 if self.search is None else self.search.trials
        for name, row in self.rows.items():
            if (points := len(row.points())) != trials:
                raise ValueError(f"row {name}: its grid has {points} points, the table's search {trials} trials")

    def recipe_of(self, row: str, seed: int, values: Mapping[str, Value] | None = None) -> Recipe:
        """Return the resolved recipe of a row, with values of its grid; raises the errors of `load_recipe`.

        The precision is float32 or what the table says, so that results of different machines nearly compare: on a
        GPU an LSTM multiplies float32 in TF32, and on a CPU without bfloat16 it computes in float32.
        """
        recipe = self._load(row, seed)
        return recipe.with_values(values) if values else recipe

    def search_of(self, row: str) -> Recipe:
        """Return the recipe of a row's search, whose section `tune` is the grid."""
        assert self.search is not None
        parameters = {path: list(values) for path, values in self.rows[row].grid.items()}
        recipe = self._load(row, self.seeds[0], self.search.overrides)
        return type(recipe).model_validate({**recipe.model_dump(), "tune": {"parameters": parameters}})

    def _load(self, row: str, seed: int, others: Sequence[str] = ()) -> Recipe:
        own = [f"name={self.name}-{row}-{seed}", f"seed={seed}", "tune=null", *others]
        overrides = ["loop.precision=float32", *self.overrides, *self.rows[row].overrides, *own]
        return load_recipe(_RECIPES / self.recipe, overrides)


TABLES: Mapping[str, Table] = read_entries(Table, DIRECTORY / "tables.yaml")
"""Tables by name."""


def get_table(name: str) -> Table:
    """Return the table of that name; raises `ValueError` naming the known ones."""
    if name not in TABLES:
        raise ValueError(f"unknown table {name!r}; known tables: {', '.join(TABLES)}")
    return TABLES[name]


def comparable(recipe: Recipe) -> dict[str, object]:
    """Return the fields of a recipe that a result depends on."""
    return recipe.model_dump(mode="json", exclude={"name", "tune", "export"})
