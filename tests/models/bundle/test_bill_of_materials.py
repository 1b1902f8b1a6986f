"""Bills of materials follow the official schema of CycloneDX and hold the facts of the manifest."""

import json

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from models.bundle.bill_of_materials import bill_of_materials
from models.bundle.manifest import DataSource, ImportSource, Manifest
from models.reading import read_manifest
from models.store import BUNDLED

DIGEST = "ab" * 32
BUNDLES = sorted(path.parent for path in BUNDLED.glob("*/*/manifest.json"))


def valid(bill: dict) -> None:
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill))
    assert error is None, error


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: f"{path.parent.name}:{path.name}")
def test_the_bills_of_the_bundled_models_are_valid(bundle) -> None:
    valid(bill_of_materials(read_manifest(bundle), DIGEST))


@pytest.fixture
def manifest() -> Manifest:
    return read_manifest(BUNDLED / "intents" / "2")


def test_a_bill_has_the_facts_of_the_manifest(manifest: Manifest) -> None:
    bill = bill_of_materials(manifest, DIGEST)
    model = bill["metadata"]["component"]
    assert (model["type"], model["name"], model["version"]) == ("machine-learning-model", "intents", "2")
    assert model["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]
    files = {each["name"]: each["hashes"][0]["content"] for each in model["components"]}
    assert files == {**manifest.files, "manifest.json": DIGEST}
    first, second = bill["components"]
    assert (first["name"], first["licenses"]) == ("clinc150", [{"license": {"name": "CC BY 3.0"}}])
    assert second["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert first["externalReferences"] == [{"type": "website", "url": "https://github.com/clinc/oos-eval"}]
    card = model["modelCard"]
    assert card["modelParameters"]["datasets"] == [{"ref": "data-0"}, {"ref": "data-1"}]
    metrics = card["quantitativeAnalysis"]["performanceMetrics"]
    assert metrics[0] == {"type": "accuracy", "value": "0.971", "slice": "clinc150, dev"}
    assert len(metrics) == len(manifest.quality)


def test_the_same_manifest_has_the_same_bill_and_another_one_another_serial_number(manifest: Manifest) -> None:
    assert bill_of_materials(manifest, DIGEST) == bill_of_materials(manifest, DIGEST)
    other = bill_of_materials(manifest, "cd" * 32)
    assert other["serialNumber"] != bill_of_materials(manifest, DIGEST)["serialNumber"]


def test_an_imported_model_names_its_origin_and_words_are_no_address(manifest: Manifest) -> None:
    source = ImportSource(
        name="owner/name",
        revision="0123abc",
        architecture="BertForSequenceClassification",
        files={"model.safetensors": DIGEST},
        compared_with="transformers 5",
        largest_difference=0.0,
    )
    own = DataSource(name="own", homepage="user's own files", licence="unstated")
    provenance = manifest.provenance.model_copy(update={"source": source, "data": (own,)})
    bill = bill_of_materials(manifest.model_copy(update={"provenance": provenance}), DIGEST)
    valid(bill)
    assert bill["metadata"]["component"]["pedigree"]["ancestors"][0]["version"] == "0123abc"
    assert "externalReferences" not in bill["components"][0]
