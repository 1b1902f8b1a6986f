"""Measure sets of translations: how often they hold an acceptable one on test texts, and how large they are.

    python -m benchmarks.translation_sets models/bundled/de-en/5 --data-dir DIR

Sets are made by the calibration examples of the bundle; test texts are those of the manifest's quality.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from models.decoding.beam_search import SearchOptions
from models.errors import QueryError
from models.store import load_bundle
from models.tasks.translation_sets import TranslationPredictor
from training.recipe.loading import parse_recipe
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.sets import BEAM_SIZE, Rated, rated_beams

__all__ = ["main"]


def main(
    bundle: Annotated[Path, tyro.conf.Positional],
    data_dir: Path = Path("data"),
    levels: tuple[float, ...] = (0.9, 0.92, 0.94, 0.95, 0.96),
) -> None:
    """Print a Markdown table.

    Args:
        bundle: A bundle of a translation model that was trained here.
        data_dir: Directory that holds the corpora.
        levels: Coverages that are asked for.
    """
    model = load_bundle(bundle)
    recipe: Any = parse_recipe(model.manifest.provenance.recipe)
    predictor = TranslationPredictor.read(bundle, model.config.sets)
    print("| test texts | sentences | the best is acceptable | one of 5 is | coverage | held | mean size |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for corpus in dict.fromkeys(each.dataset for each in model.manifest.quality if each.split == "test"):
        data = recipe.data.model_copy(update={"corpus": corpus})
        rated = [each for _, each in rated_beams(model, split_pairs(data, "test", data_dir))]
        first, some = _share([each[0][1] for each in rated]), _share([any(good for _, good in each) for each in rated])
        for level in levels:
            found = _measured(predictor, level, rated)
            print(f"| {corpus} | {len(rated)} | {first} | {some} | {level:g} | {found} |", flush=True)


def _measured(predictor: TranslationPredictor, level: float, rated: Sequence[Rated]) -> str:
    """Return how many sets hold an acceptable translation, and their mean size."""
    try:
        coverage = predictor.coverage(level, BEAM_SIZE, SearchOptions())
    except QueryError as error:
        return f"{error} | "
    sizes = [predictor.size([confidence for confidence, _ in each], coverage) for each in rated]
    held = [any(good for _, good in each[:size]) for each, size in zip(rated, sizes, strict=True)]
    return f"{_share(held)} | {statistics.fmean(sizes):.2f}"


def _share(found: Sequence[bool]) -> str:
    """Return in percent how many are true, with two standard errors."""
    share = statistics.fmean(found)
    return f"{100 * share:.1f} ± {200 * math.sqrt(share * (1 - share) / len(found)):.1f} %"


if __name__ == "__main__":
    tyro.cli(main)
