"""Measure sets of next words: how often they hold what follows in test texts, and how large they are.

    python -m benchmarks.word_sets models/bundled/next-word/5 --data-dir DIR

Sets are made of as many validation texts as `softserve-train calibrate` uses; a text is one example.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from models.errors import QueryError
from models.store import load_bundle
from models.tasks.prediction_sets import Penalty, SetPredictor
from models.tasks.word_sets import WordCoverage
from training.recipe.loading import parse_recipe
from training.tasks.causal_language_model.following import FOLLOWING as SUBWORDS
from training.tasks.language_model.following import FOLLOWING as WORDS
from training.tasks.language_model.reading import split_texts
from training.tasks.word_sets import Followed

__all__ = ["main"]

UNITS = {"language-model": WORDS, "causal-language-model": SUBWORDS}
"""Units of next words, by the task."""


def main(
    bundle: Annotated[Path, tyro.conf.Positional],
    data_dir: Path = Path("data"),
    levels: tuple[float, ...] = (0.5, 0.7, 0.8, 0.9, 0.95),
) -> None:
    """Print a Markdown table.

    Args:
        bundle: A bundle of a language model that was trained here.
        data_dir: Directory that holds the corpora.
        levels: Coverages that are asked for.
    """
    model = load_bundle(bundle)
    recipe: Any = parse_recipe(model.manifest.provenance.recipe)
    print("| unit | validation, test texts | coverage | held on test | randomized | mean size | randomized |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for each in UNITS[recipe.task]:
        dev, test = (list(each.examples(model, split_texts(recipe.data, split, data_dir))) for split in ("dev", "test"))
        predictor = SetPredictor.of(each.rows(model, dev), Penalty(), 1)
        found = list(zip(test, each.candidates(model, test), strict=True))
        for level in levels:
            counts = f"| {each.unit} | {len(dev)}, {len(test)} | {level:g} |"
            try:
                chosen = [predictor.coverage(level, randomized=randomized) for randomized in (False, True)]
            except QueryError as error:
                print(f"{counts} {error} | | | |", flush=True)
                continue
            held, sizes = zip(
                *(_measured(WordCoverage(predictor, one, each.listed(model)), found) for one in chosen), strict=True
            )
            print(f"{counts} {' | '.join([*held, *sizes])} |", flush=True)


def _measured(coverage: WordCoverage, found: Sequence[tuple[Followed, Sequence[Any]]]) -> tuple[str, str]:
    """Return in percent how many sets hold what follows, with two standard errors, and their mean size."""
    sets = [(example, coverage.of(words, example.context)) for example, words in found]
    share = statistics.fmean(any(map(example.follows, words)) for example, words in sets)
    error = 200 * math.sqrt(share * (1 - share) / len(sets))
    return f"{100 * share:.1f} +- {error:.1f} %", f"{statistics.fmean(len(words) for _, words in sets):.1f}"


if __name__ == "__main__":
    tyro.cli(main)
