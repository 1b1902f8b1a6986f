"""Tests of `softserve-train import`."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from models.reading import validate
from tests.training.cli.test_cli import run_cli
from tests.training.importing.conftest import TEXTS, Source, set_config


def test_a_directory_becomes_a_bundle(source: Source, tmp_path: Path) -> None:
    directory, texts = source("ElectraForSequenceClassification", name="My Mails"), tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    result = run_cli("import", directory, "--output", tmp_path / "out", "--quantize", "int8", "--texts", texts)
    assert result.code == 0, result.output
    for line in ("reading My Mails", "exporting graphs", "comparing with transformers 5.", "quantizing to int8"):
        assert line in result.output
    assert "int8: same best class as float32 " in result.output
    assert "largest difference of a log-probability: " in result.output
    assert f"wrote {tmp_path}/out/my-mails/1" in result.output
    assert validate(tmp_path / "out" / "my-mails" / "1") == []


def test_a_licence_must_be_said(source: Source, tmp_path: Path) -> None:
    directory = source()
    (directory / "README.md").unlink()
    result = run_cli("import", directory, "--output", tmp_path / "out")
    assert (
        result.code == "softserve-train: no README.md states the licence of the model; say it by --licence, such as "
        '"unstated"'
    )


def test_another_architecture(source: Source, tmp_path: Path) -> None:
    directory = set_config(source(), architectures=["BertForNextSentencePrediction"])
    result = run_cli("import", directory, "--output", tmp_path / "out")
    assert "'BertForNextSentencePrediction'" in result.code
    assert "*ForSequenceClassification" in result.code, "the known ones are named"


def test_without_the_extra(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, present = source(), importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name.startswith("transformers"):
            raise ImportError(name)
        return present(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    result = run_cli("import", directory, "--output", tmp_path / "out")
    assert result.code == 'softserve-train: imports need transformers: pip install "softserve[import]"'


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--texts", "nowhere.txt"], "nowhere.txt is not a text file"),
        (["--max-tokens", 1], "--max-tokens must be from 3 to 48"),
        (["--name", "../../it"], "softserve-train: name: String should match pattern"),
        (["--version", 0], "softserve-train: version: Input should be greater than or equal to 1"),
    ],
)
def test_wrong_flags(flags: list[object], message: str, source: Source, tmp_path: Path) -> None:
    result = run_cli("import", source(), "--output", tmp_path / "out", *flags)
    assert result.code != 0
    assert message in f"{result.code} {result.output}"
    assert "exporting" not in result.output
    assert not (tmp_path / "out").exists()
