"""Tests of classifiers of transformers without an importer of their own, and of refusals from `config.json`."""

from pathlib import Path
from typing import Any

import pytest

from models.reading import read_manifest
from tests.training.cli.test_cli import run_cli
from tests.training.importing.conftest import TEXTS, Source, import_directory, set_config
from training.importing.errors import ImportRefused
from training.importing.samples import Samples


@pytest.mark.parametrize(
    "architecture",
    ["AlbertForSequenceClassification", "CamembertForSequenceClassification", "MPNetForSequenceClassification"],
)
def test_other_encoders_are_exported_by_torch(architecture: str, source: Source, tmp_path: Path) -> None:
    found = import_directory(source(architecture), tmp_path / "out", Samples(TEXTS, ""))
    assert found.difference < 1e-4
    manifest = read_manifest(found.path)
    assert manifest.provenance.source is not None
    assert manifest.provenance.source.architecture == architecture
    assert manifest.provenance.source.compared_with.startswith("transformers ")


@pytest.mark.parametrize(
    ("architecture", "fields", "message"),
    [
        ("MambaForCausalLM", {}, "MambaForCausalLM cannot be imported: of causal language models GPT2LMHeadModel, and"),
        ("PegasusForConditionalGeneration", {}, "of such models MarianMTModel, and M2M100"),
        ("BertForMaskedLM", {}, "has no modules.json, .*: give --pooling mean or cls to import it"),
        ("GPT2ForSequenceClassification", {}, "GPT2ForSequenceClassification is a causal model"),
        ("BartForSequenceClassification", {"is_encoder_decoder": True}, "classifies by a decoder"),
        (
            "NewForSequenceClassification",
            {"auto_map": {"AutoModel": "code.Model"}},
            "names code for it, which is not run",
        ),
        ("NewForSequenceClassification", {}, "has no class NewForSequenceClassification; import its ONNX file"),
        ("BertForQuestionAnswering", {}, "it marks answers in a text, which no operation does"),
    ],
)
def test_the_configuration_alone_refuses(
    architecture: str, fields: dict[str, Any], message: str, source: Source, tmp_path: Path
) -> None:
    """The directory has no weights, which are not read."""
    directory = set_config(source(), architectures=[architecture], **fields)
    (directory / "model.safetensors").unlink()
    with pytest.raises(ImportRefused, match=message):
        import_directory(directory, tmp_path / "out")


def test_an_existing_bundle_suggests_a_name_first(source: Source, tmp_path: Path) -> None:
    directory = source()
    assert run_cli("import", directory, "--output", tmp_path / "out").code == 0
    again = run_cli("import", directory, "--output", tmp_path / "out")
    assert again.code.endswith("exists; use --name or --version for another bundle, or --force to replace it")
