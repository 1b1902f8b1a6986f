"""How well the confidence in German-English translations tells poor ones from acceptable ones.

    .venv/bin/python -m benchmarks.translation_confidence models/bundled/de-en/5 --data-dir DIR

Poor is a translation of an everyday phrase that its pattern does not accept, one of the corpora whose chrF to the
reference is below 30, and one of noise, which has no translation, whose chrF to the text itself is. AUROC is the
probability that a poor translation has less confidence than an acceptable one; ECE is the mean distance between
confidence and frequency in ten bins; recall is that of poor translations at a precision of 90 %. The columns `before`
are those of the mean log-probability of a token alone, which the threshold of earlier bundles is for.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.translation_robustness import careless_pairs, matches, read_phrases, unsuitable_texts
from models import Translator
from models.store import load_bundle
from training.data.corpora import get_corpus
from training.tasks.translation.confidence import (
    Pairs,
    Rated,
    expected_calibration_error,
    is_poor,
    joined_pairs,
    rated_translations,
)

__all__ = ["area", "recall_at"]

_PRECISION = 0.9
_PAIRS = 1000
_JOINED = 200


def main(bundle: Annotated[Path, tyro.conf.Positional], data_dir: Path = Path("data"), split: str = "test") -> None:
    """Print a table with a row per set of texts.

    Args:
        bundle: Bundle directory of a German-English model with `confidence` in its manifest.
        data_dir: Directory that holds the corpora.
        split: Split of the corpora; develop with dev.
    """
    model = load_bundle(bundle.resolve())
    assert isinstance(model, Translator)
    found = {name: rated_translations(model, pairs, poor) for name, (pairs, poor) in _sets(data_dir, split).items()}
    names = ("texts", "poor, %", "AUROC", "before", "ECE", "recall, %", "before")
    table = Table("", *names, title=f"{model.manifest.name} {model.manifest.version}, {split}")
    asked = [found[name] for name in ("everyday phrases", "multi30k", "noise")]
    together = {"phrases, multi30k and noise": _together(asked), "all": _together(list(found.values()))}
    for name, rated in {**found, **together}.items():
        table.add_row(name, *_row(rated))
    Console().print(table)


def _together(parts: Sequence[Rated]) -> Rated:
    return Rated(*(np.concatenate([getattr(each, name) for each in parts]) for name in Rated.__slots__))


def _sets(data_dir: Path, split: str) -> Mapping[str, tuple[Pairs, Callable[[str, str], bool]]]:
    """Return the texts of each set with their references, and what says that a translation is poor."""
    everyday = [(source, target) for source, target in get_corpus("tatoeba-de-en").records(split, data_dir)]
    noise = [(text, text) for texts in unsuitable_texts(everyday, data_dir).values() for text in texts]
    changed = careless_pairs(everyday[:_PAIRS])
    sets: dict[str, tuple[Pairs, Callable[[str, str], bool]]] = {
        "everyday phrases": (list(read_phrases().items()), lambda text, pattern: not matches(text, pattern)),
        "Tatoeba": (everyday[:_PAIRS], is_poor),
        "Tatoeba, lower case": (changed["lower case"], is_poor),
        "Tatoeba, no final punctuation": (changed["no final punctuation"], is_poor),
        "Tatoeba, joined to long sentences": (joined_pairs(everyday, _JOINED, seed=3), is_poor),
    }
    for name in ("multi30k", "docs-de-en", "ui-de-en"):
        corpus = get_corpus(name)
        german, english = corpus.columns.index("de"), corpus.columns.index("en")
        pairs = [(record[german], record[english]) for record in corpus.records(split, data_dir)]
        sets[name] = (pairs[:_PAIRS], is_poor)
    return {**sets, "noise": (noise, is_poor)}


def _row(rated: Rated) -> list[str]:
    right = ~rated.poor
    return [
        f"{len(right):,}",
        f"{100 * rated.poor.mean():.1f}",
        f"{area(rated.confidences, rated.poor):.3f}",
        f"{area(rated.log_probabilities, rated.poor):.3f}",
        f"{expected_calibration_error(rated.confidences, right):.3f}",
        f"{100 * recall_at(_PRECISION, rated.confidences, rated.poor):.1f}",
        f"{100 * recall_at(_PRECISION, rated.log_probabilities, rated.poor):.1f}",
    ]


def area(confidences: NDArray[np.float64], poor: NDArray[np.bool_]) -> float:
    """Return AUROC of poor translations having less confidence, `[N]` each; NaN where all or none are poor."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(poor, -confidences)) if 0 < poor.sum() < len(poor) else float("nan")


def recall_at(precision: float, confidences: NDArray[np.float64], poor: NDArray[np.bool_]) -> float:
    """Return the largest fraction of the poor translations below a threshold of at least that precision, `[N]` each."""
    order = np.argsort(confidences, kind="stable")
    ranked, found = confidences[order], np.cumsum(poor[order])
    possible = found >= precision * np.arange(1, len(order) + 1)
    possible[:-1] &= ranked[:-1] < ranked[1:]
    return float(found[possible].max(initial=0) / max(1, poor.sum()))


if __name__ == "__main__":
    tyro.cli(main)
