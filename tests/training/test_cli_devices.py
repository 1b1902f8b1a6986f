"""Tests of the commands with graphs for GPUs."""

from pathlib import Path

import pytest

from models.reading import read_manifest, validate
from tests.training import test_cli
from tests.training.test_cli import Result, _perplexity, run_cli

trained, exported = test_cli.trained, test_cli.exported  # fixtures

# torch deprecates TorchScript; it stays a backend because users asked for it.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")


def test_graphs_for_gpus_are_added_and_measured(
    trained: tuple[Path, Result], tiny_data_dir: Path, tmp_path: Path
) -> None:
    int8 = ("--set", "export.quantization=int8")
    assert run_cli("export", trained[0], "--output", tmp_path, "--data-dir", tiny_data_dir, *int8).code == 0
    bundle = tmp_path / "little" / "1"
    result = run_cli("device-graphs", bundle, "--float16")
    assert (result.code, result.output) == (0, "wrote next_words.cuda.onnx, score.cuda.onnx")
    assert validate(bundle) == []
    (stated,) = (quality.value for quality in read_manifest(bundle).quality if quality.split == "test")
    measured = run_cli("evaluate", bundle, "--data-dir", tiny_data_dir, "--graphs", "cuda")
    assert _perplexity(measured) == pytest.approx(stated, rel=0.05)
    assert _perplexity(measured) != pytest.approx(stated, rel=1e-6)


def test_a_bundle_that_needs_no_graphs_for_gpus_gets_none(exported: tuple[Path, Result]) -> None:
    assert run_cli("device-graphs", exported[0]).output == "GPUs run the graphs as they are"
