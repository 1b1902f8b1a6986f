"""The comparison tables of `tables.yaml`: rows are overrides of one recipe, each trained with several seeds."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field
from pydantic.dataclasses import dataclass

from training.recipe import Recipe, load_recipe
from training.settings import ENTRY, PositiveInt, read_entries

__all__ = ["DIRECTORY", "TABLES", "Row", "Table", "comparable", "get_table"]

DIRECTORY = Path(__file__).parent
"""Directory of the definitions and of the result files."""
_RECIPES = DIRECTORY.parent / "recipes"


@dataclass(frozen=True, slots=True, config=ENTRY)
class Row:
    """One line of a table."""

    overrides: tuple[str, ...] = ()
    """Fields of the recipe, as for `--set`, in addition to those of the table."""
    paper: float | None = None
    """The number that the paper reports, in the unit of the table."""


@dataclass(frozen=True, kw_only=True, slots=True, config=ENTRY)
class Table:
    """A comparison of output layers on one corpus, at the same budget for all rows."""

    name: str
    title: str
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

    def recipe_of(self, row: str, seed: int) -> Recipe:
        """Return the resolved recipe of a row; raises the errors of `load_recipe`."""
        own = [f"name={self.name}-{row}-{seed}", f"seed={seed}", "tune=null"]
        return load_recipe(_RECIPES / self.recipe, [*self.overrides, *self.rows[row].overrides, *own])


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
