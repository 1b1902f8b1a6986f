"""Alignment error rate of small German-English models that are trained with and without `guided_alignment`.

    python -m benchmarks.guided_alignment --data-dir data

Each model is trained on the same pairs of Tatoeba, evenly spaced in its training split, and exported; AER is that of
`benchmarks.alignment`. Printed are AER of the bundle's alignment, BLEU of the bundle on 500 pairs of the test split,
and the time that training took, on one thread.
"""

import tempfile
from pathlib import Path
from typing import Any

import tyro

from benchmarks.aligned_sentences import aligned_sentences
from benchmarks.alignment import error_rate
from models.store import load_bundle
from models.tasks.translation import Translator
from training.data.corpora import get_corpus
from training.device import choose_device
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.session import train, use_threads

__all__ = ["guided_recipe", "main"]

_CORPUS = "tatoeba-de-en"
_HELD_OUT = {"dev": 1000, "test": 500}
"""Pairs of the other splits: alignment heads are chosen on `dev`."""


def guided_recipe(weight: float, *, epochs: int) -> dict[str, Any]:
    """Return the content of a recipe for files `train.tsv`, `dev.tsv` and `test.tsv`; weight 0 is not guided."""
    return {
        "name": f"guided-{weight:g}".replace(".", "-") if weight else "not-guided",
        "task": "translation",
        "data": {
            "files": {split: f"{split}.tsv" for split in ("train", "dev", "test")},
            "source": "de",
            "target": "en",
            "vocab_size": 4000,
            "batch_tokens": 1024,
        },
        "network": {"preset": "tiny", "encoder_layers": 2, "decoder_layers": 2},
        "output_layer": {"kernels": "lin", "label_smoothing": 0.1},
        "loop": {
            "epochs": epochs,
            "learning_rate": 4e-3,
            "adam_beta2": 0.98,
            "warmup_steps": 200,
            "patience": epochs,
            "precision": "float32",
        },
        "guided_alignment": {"weight": weight} if weight else None,
    }


def _write_pairs(directory: Path, data_dir: Path, pairs: int) -> None:
    for split, count in {"train": pairs, **_HELD_OUT}.items():
        records = list(get_corpus(_CORPUS).records(split, data_dir))
        chosen = records[:: max(1, len(records) // count)][:count]
        content = "".join("\t".join(record) + "\n" for record in chosen)
        (directory / f"{split}.tsv").write_text(content, encoding="utf-8")


def _measured(weight: float, epochs: int, directory: Path) -> str:
    """Return the row of a weight, of a model that is trained on the files in a directory."""
    recipe = parse_recipe(guided_recipe(weight, epochs=epochs))
    run = RunDirectory(directory / recipe.name)
    progress = train(recipe, run, directory, choose_device("cpu"))
    bundle = export_run(run, directory / "models", directory)
    bleu = next(each.value for each in bundle.manifest.quality if each.metric == "BLEU")
    model = load_bundle(bundle.path, threads=1)
    assert isinstance(model, Translator)
    quality, minutes = f"{bleu:.2f}", f"{progress.seconds / 60:.1f}"
    if (heads := model.config.alignment) is None:
        return f"| {weight:g} | too few known links | | | | {quality} | {minutes} |"
    found = error_rate(model, aligned_sentences())
    return (
        f"| {weight:g} | {found.error_rate:.3f} | {found.precision:.3f}, {found.recall:.3f} | {len(heads.heads)} | "
        f"{heads.accuracy:.3f} of {heads.words} | {quality} | {minutes} |"
    )


def main(
    data_dir: Path = Path("data"), pairs: int = 20_000, epochs: int = 8, weights: tuple[float, ...] = (0.0, 0.05)
) -> None:
    """Print a Markdown table.

    Args:
        data_dir: Directory that holds the corpora.
        pairs: Training pairs.
        epochs: Epochs of training.
        weights: Weights of the alignment loss, 0 for none.
    """
    use_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        _write_pairs(Path(temporary), data_dir, pairs)
        rows = [_measured(weight, epochs, Path(temporary)) for weight in weights]
    print("| weight | AER | precision, recall | heads | known links right | BLEU, test | minutes of training |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join(rows))


if __name__ == "__main__":
    tyro.cli(main)
