"""A translation bundle with random weights."""

from pathlib import Path

import pytest

from benchmarks.translation_bundle import make_bundle
from tests.fixtures.shared import shared_directory

_SMALLEST = ["network.encoder_layers=1", "network.decoder_layers=1", "network.hidden_size=64"]


@pytest.fixture(scope="session")
def random_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An int8 bundle of one layer on each side; not to be changed."""
    shared = shared_directory(
        tmp_path_factory, "random-bundle", lambda directory: make_bundle(directory, "tiny", 300, _SMALLEST)
    )
    return shared / "random-tiny" / "1"
