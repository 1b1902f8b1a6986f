"""Quality of text generators with different searches (sparse paper, Table 5)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.decoding.beam_search import SearchOptions
from models.tasks.text_generation import Generator
from training.recipe.loading import parse_recipe
from training.search.analyses.tables import Rows
from training.tasks.text_generation.quality import bundle_generation
from training.tasks.text_generation.reading import read_source_targets

__all__ = ["SEARCHES", "beam_rows"]

SEARCHES: Mapping[str, tuple[int, SearchOptions]] = {
    "beam 1": (1, SearchOptions()),
    "beam 5": (5, SearchOptions()),
    "beam 5, sparse mask": (5, SearchOptions(sparse=True)),
}
"""Name, beam size and options of each search; the mask keeps the 5 best tokens of each step."""


def beam_rows(models: Mapping[str, Generator], split: str, data_dir: Path, limit: int | None = None) -> Rows:
    """Return a row for each model and search, on the first `limit` texts of a split of the model's own data."""
    rows: Rows | None = None
    for name, model in models.items():
        recipe: Any = parse_recipe(model.manifest.provenance.recipe)
        texts = read_source_targets(recipe.data, split, data_dir)[:limit]
        for search, (beam_size, options) in SEARCHES.items():
            metrics = bundle_generation(model, texts, beam_size, options=options)
            rows = rows or Rows(["model", "search", "texts", *metrics])
            rows.add([name, search, len(texts), *metrics.values()])
    assert rows is not None
    return rows
