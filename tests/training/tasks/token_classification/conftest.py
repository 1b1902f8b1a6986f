"""Fixtures of token classification: tagged sentences, and a model that was trained on them."""

from pathlib import Path

import pytest

from tests.fixtures.shared import shared_directory, shared_export, shared_run
from tests.fixtures.tagged_names import names_recipe, train_tagger, write_sentences
from training.bundling.bundle import WrittenBundle
from training.run.directory import RunDirectory
from training.run.session import load_trained
from training.tasks.token_classification import TokenClassificationTask


@pytest.fixture(scope="package")
def names_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files of `names_recipe`."""

    def write(path: Path) -> None:
        for split, count in (("train", 400), ("dev", 40), ("test", 40)):
            write_sentences(path / f"{split}.tsv", split, count)

    return shared_directory(tmp_path_factory, "tagged-names", write)


@pytest.fixture(scope="package")
def names_run(names_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The run directory of `names_recipe`, trained to the end."""
    return shared_run(tmp_path_factory, "tagger", lambda run: train_tagger(names_recipe(), names_dir, run))


@pytest.fixture(scope="package")
def names_task(names_run: RunDirectory, names_dir: Path) -> TokenClassificationTask:
    """The best checkpoint of `names_run`; not to be changed."""
    task = load_trained(names_run, names_dir, "cpu")
    assert isinstance(task, TokenClassificationTask)
    return task


@pytest.fixture(scope="package")
def names_export(names_run: RunDirectory, names_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> WrittenBundle:
    """The bundle of `names_run`, ONNX and TorchScript."""
    return shared_export(tmp_path_factory, "tagger-export", names_run, names_dir)
