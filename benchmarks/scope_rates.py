"""Choose a classifier's threshold of texts out of scope by the rate of errors, and measure the rates on the test split.

    softserve-train calibrate models/bundled/intents/2 --data-dir DIR      # stores the trade-off in the bundle
    python -m benchmarks.scope_rates models/bundled/intents/2 --data-dir DIR

The thresholds are those of the validation split. The second table compares scores by which texts could be told apart:
the probability of the best class, its lead over the second one, and the negative entropy of all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from models.store import load_bundle
from training.recipe.loading import parse_recipe
from training.tasks.classification_quality import scope_threshold
from training.tasks.text_classification.reading import out_of_scope_texts, read_labelled

Probabilities = NDArray[np.float64]

_RATES = (0.01, 0.02, 0.05, 0.1)
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
    tables = {split: _tables(model, split, data_dir) for split in ("dev", "test")}
    print("| chosen | threshold | validation: rejected, % | passing, % | test: rejected, % | passing, % |")
    print("| --- | --- | --- | --- | --- | --- |")
    for rate in _RATES:
        found = rule.with_reject_rate(rate)
        inside, outside = tables["test"]
        point = scope_threshold(inside.max(1), outside.max(1), found.threshold)
        cells = (found.rejected, 1 - found.detected, point.rejected, 1 - point.detected)
        shown = " | ".join(f"{100 * each:.1f}" for each in cells)
        print(f"| {100 * rate:g} % rejected | {found.threshold:.4f} | {shown} |")
    print("\n| score | AUROC, validation | AUROC, test | test: passing where 5 % of validation are rejected, % |")
    print("| --- | --- | --- | --- |")
    for name, score in _SCORES.items():
        scores = {split: tuple(score(each) for each in both) for split, both in tables.items()}
        threshold = np.quantile(scores["dev"][0], 0.05)
        areas = " | ".join(f"{_area(*scores[split]):.4f}" for split in ("dev", "test"))
        print(f"| {name} | {areas} | {100 * float(np.mean(scores['test'][1] >= threshold)):.1f} |")


def _tables(model: Any, split: str, data_dir: Path) -> tuple[Probabilities, Probabilities]:
    """Return the probabilities of texts of a class and of none, `[N, C]` and `[M, C]`."""
    recipe: Any = parse_recipe(model.manifest.provenance.recipe)
    known = set(model.labels)
    inside = [each.text for each in read_labelled(recipe.data, split, data_dir) if set(each.labels) <= known]
    outside = out_of_scope_texts(recipe.data, split, data_dir)
    return _probabilities(model, inside), _probabilities(model, outside)


def _probabilities(model: Any, texts: Sequence[str]) -> Probabilities:
    """Return the probabilities `[N, C]` of the listed classes as the bundle gives them."""
    table, calibration = model.log_probabilities(texts).astype(np.float64), model.config.classes.calibration
    found: Probabilities = np.exp(table if calibration is None else calibration.table(table))
    return found[:, : len(model.labels)]


def _area(inside: Probabilities, outside: Probabilities) -> float:
    truth = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
    return float(roc_auc_score(truth, np.concatenate([inside, outside])))


if __name__ == "__main__":
    tyro.cli(main)
