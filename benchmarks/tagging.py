"""Import a model of token classification of true size with random weights, and compare it with transformers' pipeline.

    pip install "softserve[import]"
    python -m benchmarks.tagging sentences.txt

The network is DistilBERT (66 M parameters) with 9 labels and the tokenizer of the bundled classifier (WordPiece, 30,522
tokens); `--directory` takes a model with weights of its own. Compared are the entities of each text of a file, by each
aggregation: texts whose labels and places are all equal, and the largest difference of a probability in these. Speed is
that of the whole way from texts to entities on all cores, medians of interleaved runs: the library, and the pipeline
with each batch size.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import tyro

from benchmarks.timing import medians_of
from models.operations.tagging import Aggregation
from models.store import BUNDLED, load_bundle
from models.tasks.token_classification import Tagger
from tests.support.random_classifiers import make_classifier
from training.bundling.bundle import BundleSettings
from training.importing.importer import ImportOptions, chosen_importer, need, write_imported
from training.importing.samples import read_samples
from training.importing.source import open_source

__all__ = ["compare", "main", "make_directory"]

_RUNS = 3
_BATCHES = (1, 8)
"""Batch sizes of the pipeline; 1 is its default."""
_LABELS = ("O", *(f"{place}-{kind}" for kind in ("PER", "ORG", "LOC", "MISC") for place in "BI"))
_SIZES = {"hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12, "hidden_dim": 3072}


def main(texts: Path, /, directory: Path | None = None, most: int = 40, int8: bool = False) -> None:
    """Print the comparison of entities for each aggregation, and the speed.

    Args:
        texts: A file with a text a line.
        directory: A model directory of transformers, instead of random weights.
        most: Texts that are read of the file.
        int8: Quantize: entities are compared with those of the pipeline in float32 all the same.
    """
    samples = read_samples(texts)
    chosen = samples.texts[:most]
    with tempfile.TemporaryDirectory() as temporary:
        source = open_source(str(directory or make_directory(Path(temporary) / "tagger")))
        importer = chosen_importer(source)(source, ImportOptions(samples=samples))
        settings = BundleSettings(
            name="tagger", version=1, description="A model.", licence="none", quantization="int8" if int8 else "none"
        )
        imported = write_imported(importer, settings, Path(temporary) / "models")
        print(f"largest difference of a log-probability: {imported.difference:.1e}; int8: {imported.cost}")
        ours, theirs = load_bundle(imported.path), _pipeline(source.path)
        assert isinstance(ours, Tagger)
        for aggregation in get_args(Aggregation):
            print(compare(ours, theirs, chosen, aggregation), flush=True)
        calls: dict[str, Any] = {"Softserve": lambda: ours.tag(chosen, truncate=True)}
        for size in _BATCHES:
            calls[f"pipeline, batches of {size}"] = lambda size=size: theirs(
                list(chosen), aggregation_strategy="simple", batch_size=size
            )
        for name, seconds in medians_of(calls, _RUNS).items():
            print(f"{name}: {len(chosen) / seconds:.1f} texts/s", flush=True)


def make_directory(path: Path) -> Path:
    """Write a directory with random weights, and return it."""
    fields: dict[str, Any] = {**_SIZES, "vocab_size": 30522, "max_position_embeddings": 512}
    make_classifier(
        path, "DistilBertForTokenClassification", deviation=0.08, **fields, id2label=dict(enumerate(_LABELS))
    )
    (bundle,) = (BUNDLED / "intents").iterdir()
    shutil.copy(bundle / "tokenizer.json", path / "tokenizer.json")
    return path


def compare(ours: Tagger, theirs: Any, texts: Sequence[str], aggregation: Aggregation) -> str:
    """Return a line on how many texts have the same entities by a model and by the pipeline."""
    equal, count, difference, labels = 0, 0, 0.0, set()
    for text, found in zip(texts, ours.tag(texts, aggregation, ignore_labels=(), truncate=True), strict=True):
        expected = theirs(text, aggregation_strategy=aggregation, ignore_labels=[])
        key = "entity" if aggregation == "none" else "entity_group"
        places = [(each[key], each["start"], each["end"]) for each in expected]
        labels |= {label for label, _, _ in places}
        if [(each.label, each.start, each.end) for each in found.entities] == places:
            equal, count = equal + 1, count + len(places)
            scores = zip(found.entities, expected, strict=True)
            difference = max(difference, *(abs(one.score - float(other["score"])) for one, other in scores), 0.0)
    return (
        f"{aggregation}: {equal} of {len(texts)} texts have equal entities, {count} of {len(labels)} labels; largest "
        f"difference of a probability {difference:.1e}"
    )


def _pipeline(directory: Path) -> Any:
    transformers = need("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory, model_max_length=512)
    model = transformers.AutoModelForTokenClassification.from_pretrained(directory)
    return transformers.pipeline("token-classification", model=model, tokenizer=tokenizer)


if __name__ == "__main__":
    tyro.cli(main)
