"""A small model of token classification with random weights, as a directory of transformers and as a bundle."""

from pathlib import Path

from tests.support.random_classifiers import make_classifier
from training.bundling.bundle import BundleSettings
from training.importing.importer import ImportOptions, chosen_importer, write_imported
from training.importing.source import open_source

__all__ = ["LABELS", "write_tagger"]

KINDS = ("PER", "LOC", "ORG", "DATE", "VERB")
LABELS = ("O", *(f"{place}-{kind}" for kind in KINDS for place in "BI"), "MISC", "x-MISC")
"""More than a model has: with few labels, random weights give all tokens the same one."""


def write_tagger(directory: Path) -> Path:
    """Write `hub`, a directory of transformers, and `models` with the bundle `names`; return the bundle's path."""
    fields = {"id2label": dict(enumerate(LABELS)), "num_hidden_layers": 1}
    source = open_source(str(make_classifier(directory / "hub", "BertForTokenClassification", **fields)))
    settings = BundleSettings(name="names", version=1, description="Finds names.", licence="MIT")
    importer = chosen_importer(source)(source, ImportOptions())
    return write_imported(importer, settings, directory / "models").path
