"""Results of a hyperparameter search: table, and values to paste into the recipe."""

from collections.abc import Iterable, Sequence

import yaml

from training.recipe import Recipe
from training.recipe.dotted_path import part_at
from training.search.analyses.tables import Rows
from training.search.tune import TrialResult

__all__ = ["best_as_yaml", "trial_rows"]


def trial_rows(results: Iterable[TrialResult], paths: Sequence[str], metric: str) -> Rows:
    """Return a row for each trial."""
    rows = Rows(["trial", f"dev {metric}", *paths, "epochs", "minutes", "state"])
    for result in results:
        state = "pruned" if result.pruned else "failed" if result.failed else "complete"
        values = (result.values.get(path) for path in paths)
        minutes = round(result.seconds / 60, 2)
        rows.add([result.number, result.metric, *values, result.epochs, minutes, state])
    return rows


def best_as_yaml(recipe: Recipe, best: TrialResult) -> str:
    """Return the sections of the recipe that a search changed, with the best values."""
    content = recipe.with_values(best.values).model_dump(exclude={"tune"})
    return yaml.safe_dump(part_at(content, best.values), sort_keys=False)
