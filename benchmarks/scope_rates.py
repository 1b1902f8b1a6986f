"""Choose a classifier's threshold of texts out of scope by the rate of errors, and measure the rates on the test split.

    softserve-train calibrate models/bundled/intents/2 --data-dir DIR      # stores the trade-off in the bundle
    python -m benchmarks.scope_rates models/bundled/intents/2 --data-dir DIR

The thresholds are those of the validation split. The second table compares scores by which texts could be told apart:
the probability of the best class, its lead over the second one, the negative entropy of all of them, and the score of
the best class before the softmax.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray

from models.store import load_bundle
from training.recipe.loading import parse_recipe
from training.tasks.classification_quality import ScopeScores, scope_threshold
from training.tasks.text_classification.reading import out_of_scope_texts, read_labelled

Probabilities = NDArray[np.float64]
Texts = Sequence[str]

_RATES = (0.01, 0.02, 0.05, 0.1)
_OF_RULES = {"probability": "probability of the best class", "logit": "score of the best class before the softmax"}
_SCORES: Mapping[str, Callable[[Probabilities], Probabilities]] = {
    "probability of the best class": lambda table: table.max(1),
    "lead over the second class": lambda table: np.sort(table, axis=1)[:, -1] - np.sort(table, axis=1)[:, -2],
    "negative entropy": lambda table: (table * np.log(np.maximum(table, 1e-30))).sum(1),
}


def main(bundle: Annotated[Path, tyro.conf.Positional], data_dir: Path = Path("data")) -> None:
    """Print both tables, in Markdown.

    Args:
        bundle: Bundle of a classifier with a trade-off.
        data_dir: Directory that holds the corpora of its recipe.
    """
    model: Any = load_bundle(bundle)
    rule = model.scope
    if rule is None or not rule.trade_off:
        raise SystemExit(f"{bundle} has no trade-off: run softserve-train calibrate")
    texts = {split: _texts(model, split, data_dir) for split in ("dev", "test")}
    scores = dict(_scores(model, texts))
    sides = scores[_OF_RULES[rule.score]]["test"]
    print("| chosen | threshold | validation: rejected, % | passing, % | test: rejected, % | passing, % |")
    print("| --- | --- | --- | --- | --- | --- |")
    for rate in _RATES:
        found = rule.with_reject_rate(rate)
        point = scope_threshold(sides.inside, sides.outside, found.threshold)
        cells = (found.rejected, 1 - found.detected, point.rejected, 1 - point.detected)
        shown = " | ".join(f"{100 * each:.1f}" for each in cells)
        print(f"| {100 * rate:g} % rejected | {found.threshold:.4f} | {shown} |")
    print("\n| score | AUROC, validation | AUROC, test | test: passing where 5 % of validation are rejected, % |")
    print("| --- | --- | --- | --- |")
    for name, of_splits in scores.items():
        threshold = np.quantile(of_splits["dev"].inside, 0.05)
        areas = " | ".join(f"{of_splits[split].auroc:.4f}" for split in ("dev", "test"))
        print(f"| {name} | {areas} | {100 * float(np.mean(of_splits['test'].outside >= threshold)):.1f} |")


def _scores(model: Any, texts: Mapping[str, tuple[Texts, Texts]]) -> Iterator[tuple[str, Mapping[str, ScopeScores]]]:
    """Yield the name of each score, and the scores of each split."""
    tables = {split: [_probabilities(model, each) for each in both] for split, both in texts.items()}
    for name, score in _SCORES.items():
        yield name, {split: ScopeScores(*map(score, both)) for split, both in tables.items()}
    if model.has_scores:
        yield _OF_RULES["logit"], {split: ScopeScores(*map(model.scores, both)) for split, both in texts.items()}


def _texts(model: Any, split: str, data_dir: Path) -> tuple[Texts, Texts]:
    """Return the texts of a class and those of none."""
    recipe: Any = parse_recipe(model.manifest.provenance.recipe)
    known = set(model.labels)
    inside = [each.text for each in read_labelled(recipe.data, split, data_dir) if set(each.labels) <= known]
    return inside, out_of_scope_texts(recipe.data, split, data_dir)


def _probabilities(model: Any, texts: Sequence[str]) -> Probabilities:
    """Return the probabilities `[N, C]` of the listed classes as the bundle gives them."""
    table, calibration = model.log_probabilities(texts).astype(np.float64), model.config.classes.calibration
    found: Probabilities = np.exp(table if calibration is None else calibration.table(table))
    return found[:, : len(model.labels)]


if __name__ == "__main__":
    tyro.cli(main)
