"""Tests of writing imported bundles."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from models.bundle.manifest import MANIFEST
from models.reading import validate
from models.store import load_bundle
from models.tasks.text_classification import Classifier
from tests.training.importing.conftest import TEXTS, Import, Source, import_directory
from training.bundling.bundle import BundleGraph, WrittenBundle
from training.bundling.verify import ExportError
from training.bundling.weight_file import WeightFile
from training.importing.classification import SequenceClassifierImporter
from training.importing.classifier import ClassifierImporter
from training.importing.errors import ImportRefused
from training.importing.importer import Agreement, ImportOptions
from training.importing.samples import Samples
from training.importing.source import open_source

SAMPLES = Samples(tuple(text for text in TEXTS if text) * 3, "texts.txt")


@pytest.fixture(scope="module", autouse=True)
def _traced_once(_made: Source, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trace the graphs of the model that all of these tests import once: that takes most of an import."""
    source = open_source(str(_made("BertForSequenceClassification")))
    weights = WeightFile(tmp_path_factory.mktemp("traced") / "weights")
    graphs = SequenceClassifierImporter(source, ImportOptions()).graphs(weights)

    def traced(importer: SequenceClassifierImporter, weights: WeightFile) -> Mapping[str, BundleGraph]:
        del weights
        assert importer.source.architecture == "BertForSequenceClassification"
        return copy.deepcopy(graphs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SequenceClassifierImporter, "graphs", traced)
        yield


@pytest.fixture(scope="module")
def int8(_made: Source, tmp_path_factory: pytest.TempPathFactory) -> WrittenBundle:
    return import_directory(
        _made("BertForSequenceClassification"), tmp_path_factory.mktemp("int8"), SAMPLES, version=3, quantization="int8"
    )


def test_a_bundle_is_complete(imported: Import) -> None:
    found = imported()
    assert validate(found.path) == []
    names = {file.name for file in found.path.iterdir()}
    assert names == {"manifest.json", "MODEL_CARD.md", "classify.onnx", "weights.bin", "tokenizer.json", "labels.txt"}
    source = found.manifest.provenance.source
    assert source is not None
    assert sorted(source.files) == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert source.compared_with.startswith("transformers 5.")
    assert source.largest_difference == found.difference
    assert found.manifest.provenance.recipe == {}
    assert (found.manifest.output_layer.bias, found.manifest.quality, found.cost) == (True, (), None)


def test_the_card_says_what_was_compared(imported: Import) -> None:
    found = imported()
    card = (found.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    source = found.manifest.provenance.source
    assert source is not None
    for name, checksum in source.files.items():
        assert f"| `{name}` | `{checksum}` |" in card
    assert "on 16 sample texts" in card
    assert f"float32: {found.difference:.1e}." in card
    assert "* Licence of the model: MIT" in card
    assert "The import measures no quality" in card


def test_int8(int8: WrittenBundle, imported: Import) -> None:
    assert validate(int8.path) == []
    sizes = [(each.path / "weights.bin").stat().st_size for each in (int8, imported())]
    assert sizes[0] < sizes[1]
    graph = int8.manifest.graphs["classify"]
    assert graph.devices == {"cuda": "classify.cuda.onnx"}
    lossy = int8.manifest.quantization
    assert lossy is not None
    assert (lossy.kind, lossy.metric, lossy.float32_value) == ("int8-static", "same best class as float32", 1.0)
    assert lossy.dataset == f"{len(SAMPLES.held_out())} texts of texts.txt"
    assert int8.cost is not None
    assert int8.cost.value == lossy.value
    assert 0 < int8.cost.difference < 0.2
    card = (int8.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert f"* largest difference of a probability: {round(int8.cost.difference, 6):.4f}" in card
    one, other = load_bundle(int8.path), load_bundle(imported().path)
    assert isinstance(one, Classifier)
    assert isinstance(other, Classifier)
    results = [model.classify([TEXTS[0]], 3)[0].labels for model in (one, other)]
    assert results[0] != results[1], "products are not float32 any more"


def test_wrong_graphs_for_gpus_are_refused(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    differences = iter([0.1, 0.25])  # of the int8 graphs, then of those for GPUs
    monkeypatch.setattr(
        ClassifierImporter,
        "agreement",
        lambda *ignored: Agreement(metric="same best class as float32", value=1.0, difference=next(differences)),
    )
    with pytest.raises(ExportError, match=r"the graphs for GPUs differ .* 2.50e-01, above 2.00e-01"):
        import_directory(source(), tmp_path / "out", SAMPLES, quantization="int8")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_version_is_replaced_only_on_request(source: Source, tmp_path: Path) -> None:
    directory, output = source(), tmp_path / "out"
    (output / "it" / "1").mkdir(parents=True)
    (output / "it" / "1" / MANIFEST).touch()
    with pytest.raises(FileExistsError, match="--name or --version for another bundle, or --force"):
        import_directory(directory, output)
    import_directory(directory, output, force=True)
    assert validate(output / "it" / "1") == []
    assert [file.name for file in output.iterdir()] == ["it"]


def test_a_failed_import_leaves_what_was_there(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, output = source(), tmp_path / "out"
    (output / "it" / "1").mkdir(parents=True)
    (output / "it" / "1" / MANIFEST).touch()
    monkeypatch.setattr("training.importing.importer.TOLERANCE", -1.0)
    with pytest.raises(ImportRefused, match="a log-probability differs"):
        import_directory(directory, output, force=True)
    assert [file.name for file in output.rglob("*")] == ["it", "1", MANIFEST]
