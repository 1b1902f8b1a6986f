"""What text generators write with different searches (sparse paper, Table 5)."""

from collections.abc import Mapping
from pathlib import Path

from models.decoding.beam_search import SearchOptions
from models.tasks.text_generation import Generator
from training.analysis.tables import Rows
from training.data.rewritten_texts import read_rewritten
from training.data.settings import GenerationSettings
from training.export.text_generation import bundle_generation
from training.recipe import GenerationRecipe, parse_recipe

__all__ = ["SEARCHES", "beam_rows", "data_of"]

SEARCHES: Mapping[str, tuple[int, SearchOptions]] = {
    "beam 1": (1, SearchOptions()),
    "beam 5": (5, SearchOptions()),
    "beam 5, sparse mask": (5, SearchOptions(sparse=True)),
}
"""Name, beam size and options of each search; the mask keeps the 5 best tokens of each step."""


def data_of(model: Generator) -> GenerationSettings:
    """What the manifest says a generator was trained on."""
    recipe = parse_recipe(model.manifest.provenance.recipe)
    assert isinstance(recipe, GenerationRecipe)
    return recipe.data


def beam_rows(models: Mapping[str, Generator], split: str, data_dir: Path, limit: int | None = None) -> Rows:
    """A row for each model and search; of each model's own data the first `limit` texts of the split."""
    rows: Rows | None = None
    for name, model in models.items():
        texts = read_rewritten(data_of(model), split, data_dir)[:limit]
        for search, (beam_size, options) in SEARCHES.items():
            metrics = bundle_generation(model, texts, beam_size, options=options)
            rows = rows or Rows(["model", "search", "texts", *metrics])
            rows.add([name, search, len(texts), *metrics.values()])
    assert rows is not None
    return rows
