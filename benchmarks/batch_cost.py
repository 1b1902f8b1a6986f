"""Measure the cost of a batch of each operation: terms fitted to the warm-up, and the deviations of its batches.

python -m benchmarks.batch_cost
"""

from pathlib import Path

import numpy as np
import tyro

from models import ModelStore
from service.engine.cost_model import fit
from service.engine.warm_up import warm_up
from service.settings import BUNDLED, Settings


def main(
    model_dir: Path = BUNDLED, models: tuple[str, ...] = ("next-word:4", "intents", "de-en"), device: str = "cpu"
) -> None:
    """Print a table in Markdown.

    Args:
        model_dir: Directory that holds the bundles.
        models: Their names.
        device: Device to measure on.
    """
    settings, store = Settings(), ModelStore(model_dir)
    print("| model, operation | batches | fixed, ms | item, ms | token, ms | fixed, tokens | median, p90 deviation |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in models:
        model = store.load(name, device=device, parallel=settings.parallel_batches)
        measured = warm_up(model, max_batch_items=settings.max_batch_items, parallel_batches=settings.parallel_batches)
        for operation, samples in measured.items():
            terms = fit(samples)
            ratios = np.array([each.seconds / terms.seconds(each.items, each.longest) for each in samples])
            median, p90 = np.quantile(np.abs(ratios - 1), [0.5, 0.9])
            milliseconds = " | ".join(f"{1000 * term:.3f}" for term in terms)
            cells = f"{name}, {operation} | {len(samples)} | {milliseconds} | {terms.batch_cost:.0f}"
            print(f"| {cells} | {median:.0%}, {p90:.0%} |")


if __name__ == "__main__":
    tyro.cli(main)
