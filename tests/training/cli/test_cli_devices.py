"""Tests of the commands with graphs for GPUs."""

import re
from pathlib import Path

import pytest

from models.reading import read_manifest, validate
from tests.training.cli import test_cli
from tests.training.cli.test_cli import Result, run_cli
from training.run.directory import RunDirectory

trained, exported = test_cli.trained, test_cli.exported  # fixtures

# torch deprecates TorchScript; it stays a backend because users asked for it.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")


def test_graphs_for_gpus_are_added_and_measured(errands_run: RunDirectory, tiny_data_dir: Path, tmp_path: Path) -> None:
    int8 = ("--set", "export.quantization=int8")
    assert run_cli("export", errands_run.path, "--output", tmp_path, "--data-dir", tiny_data_dir, *int8).code == 0
    (manifest,) = tmp_path.glob("*/*/manifest.json")
    bundle = manifest.parent
    result = run_cli("device-graphs", bundle, "--float16")
    assert (result.code, result.output) == (0, "wrote classify.cuda.onnx")
    assert validate(bundle) == []
    stated = {each.metric: each.value for each in read_manifest(bundle).quality if each.split == "test"}
    measured = run_cli("evaluate", bundle, "--data-dir", tiny_data_dir, "--graphs", "cuda")
    found = re.search(r"accuracy (\d\.\d+)", measured.output)
    assert found is not None, measured
    assert float(found[1]) == pytest.approx(stated["accuracy"], abs=0.05)


def test_a_bundle_that_needs_no_graphs_for_gpus_gets_none(exported: tuple[Path, Result]) -> None:
    assert run_cli("device-graphs", exported[0]).output == "GPUs run the graphs as they are"
