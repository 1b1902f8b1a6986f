"""Bundles of small encoders with random weights: vectors of texts, ranks of texts for a query, pairs of texts."""

from pathlib import Path

from tests.support.random_classifiers import make_classifier
from tests.support.random_encoders import make_sentence_transformer
from training.bundling.bundle import BundleSettings
from training.importing.importer import ImportOptions, chosen_importer, write_imported
from training.importing.source import open_source

__all__ = ["make_bundles"]


def make_bundles(where: Path) -> Path:
    """Return a model directory with the embedder `vectors`, the reranker `ranks`, and `follows`, which reads pairs
    of premise and hypothesis."""
    vectors = make_sentence_transformer(
        where / "vectors", "BertModel", prompts={"prompts": {"query": "one "}}, dense=[16], num_hidden_layers=1
    )
    ranks = make_classifier(where / "ranks", "BertForSequenceClassification", labels=1, num_hidden_layers=1)
    classes = ["contradiction", "neutral", "entailment"]
    follows = make_classifier(
        where / "follows",
        "RobertaForSequenceClassification",
        max_position_embeddings=130,
        num_hidden_layers=1,
        id2label=dict(enumerate(classes)),
        label2id={label: number for number, label in enumerate(classes)},
    )
    for directory in (vectors, ranks, follows):
        source = open_source(str(directory))
        settings = BundleSettings(name=directory.name, version=1, description="A model.", licence="mit")
        write_imported(chosen_importer(source)(source, ImportOptions()), settings, where / "bundles")
    return where / "bundles"
