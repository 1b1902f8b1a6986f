"""Small directories in Hugging Face's layout, and the bundles imported from them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers.modeling_utils import PreTrainedModel

from tests.support.random_classifiers import make_classifier
from training.bundling.bundle import BundleSettings, WrittenBundle
from training.importing.importer import ImportOptions, chosen_importer, write_imported
from training.importing.samples import Samples, read_samples
from training.importing.source import open_source

__all__ = ["TEXTS", "Import", "Source", "import_directory", "set_config"]

TEXTS = (
    "Where is my parcel?",
    "",
    "I want to cancel my order; please call me.",
    "[SEP] </s> <s> [CLS] 🙂 naïve Straße",
    "one two three " * 40,
)
"""Their lengths go from no token to more than the models can read."""

BERT = "BertForSequenceClassification"
Source = Callable[..., Path]
Import = Callable[..., WrittenBundle]


def set_config(directory: Path, **fields: object) -> Path:
    """Replace fields of `config.json`; those that are None are removed."""
    path = directory / "config.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) | fields
    kept = {name: value for name, value in config.items() if value is not None}
    path.write_text(json.dumps(kept), encoding="utf-8")
    return directory


def import_directory(
    directory: Path, output: Path, samples: Samples | None = None, options: ImportOptions | None = None, **changes: Any
) -> WrittenBundle:
    source = open_source(str(directory))
    options = replace(options or ImportOptions(), samples=samples or read_samples(None))
    settings: dict[str, Any] = {"name": "it", "version": 1, "description": "A model.", "licence": "MIT", **changes}
    return write_imported(chosen_importer(source)(source, options), BundleSettings(**settings), output)


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Return a directory that is not to be changed."""
    made: dict[str, Path] = {}

    def make(architecture: str, name: str = "", **config: Any) -> Path:
        key = name or architecture
        if key not in made:
            directory = tmp_path_factory.mktemp("hub") / key
            made[key] = make_classifier(directory, architecture, **{"num_hidden_layers": 1, **config})
        return made[key]

    return make


@pytest.fixture
def source(_made: Source, tmp_path: Path) -> Source:
    """Return a copy of a small model's directory."""

    def copied(architecture: str = BERT, name: str = "", **config: Any) -> Path:
        made = _made(architecture, name, **config)
        return Path(shutil.copytree(made, tmp_path / made.name))

    return copied


@pytest.fixture(scope="session")
def imported(_made: Source, tmp_path_factory: pytest.TempPathFactory) -> Import:
    """Return the float32 bundle of a small model, which is not to be changed."""
    done: dict[str, WrittenBundle] = {}

    def bundle(architecture: str = BERT, name: str = "", **config: Any) -> WrittenBundle:
        key = name or architecture
        if key not in done:
            done[key] = import_directory(_made(architecture, name, **config), tmp_path_factory.mktemp("imported"))
        return done[key]

    return bundle


@pytest.fixture
def original(_made: Source) -> Callable[[str], PreTrainedModel]:
    """Return the model that transformers reads from the directory of `imported`."""

    def load(architecture: str = BERT, name: str = "") -> PreTrainedModel:
        import transformers

        model: PreTrainedModel = getattr(transformers, architecture).from_pretrained(_made(architecture, name))
        return model.eval()

    return load
