"""Two models on one test set: runs and bundles of a classifier, a translator and a language model."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.training.cli.test_cli import run_cli
from training.bundling.bundle import WrittenBundle
from training.run.directory import RunDirectory
from training.search.comparison import Measured, class_rows, difference, measured
from training.tasks.examples import Examples, mean


def _measured(name: str, right: list[int], labels: str = "aabb") -> Measured:
    records = [((label,), f"text {n}") for n, label in enumerate(labels)]
    examples = Examples(np.array([(value, 1.0) for value in right]), mean)
    return Measured(name=name, metric="accuracy", examples=examples, records=records)


def test_the_lead_of_the_second_and_each_class() -> None:
    one, other = _measured("one", [1, 0, 0, 0]), _measured("other", [1, 0, 1, 1])
    line = difference(one, other)
    assert line.startswith(
        "accuracy 0.2500 of one, 0.7500 of other: +0.5000, 95 % interval over examples [+0.0000, +1."
    )
    rows = class_rows(one, other)
    assert rows is not None
    assert rows.rows == [("b", 2, 0.0, 1.0, 1.0), ("a", 2, 0.5, 0.5, 0.0)]
    assert difference(one, one).endswith("+0.0000, 95 % interval over examples [+0.0000, +0.0000]")


def test_other_records_are_refused() -> None:
    with pytest.raises(ValueError, match="one and other were measured on other records"):
        difference(_measured("one", [1, 0, 0, 0]), _measured("other", [1, 0, 1, 1], "abab"))


def test_a_run_is_as_good_as_its_bundle(
    errands_run: RunDirectory, errands_export: WrittenBundle, tiny_data_dir: Path, tmp_path: Path
) -> None:
    paths, table = [str(errands_run.path), str(errands_export.path)], tmp_path / "classes.csv"
    options = ["--data-dir", str(tiny_data_dir), "--output", str(table), "--device", "cpu"]
    found = run_cli("analyze", "compare", *paths, *options)
    assert found.code == 0, found.output
    assert "+0.0000, 95 % interval over examples [+0.0000, +0.0000]" in found.output
    assert len(table.read_text().splitlines()) == 9


@pytest.mark.parametrize("fixture", ["pairs_export", "tiny_export"])
def test_bundles_of_other_tasks(fixture: str, tiny_data_dir: Path, request: pytest.FixtureRequest) -> None:
    exported: WrittenBundle = request.getfixturevalue(fixture)
    found = measured(exported.path, "test", tiny_data_dir)
    (first, *_) = (each for each in exported.manifest.quality if each.split == "test")
    assert found.examples.value == pytest.approx(first.value, rel=1e-3)
    assert difference(found, found).endswith("[+0.0000, +0.0000]")


def test_an_imported_bundle_has_no_data(errands_export: WrittenBundle, tiny_data_dir: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(errands_export.path, tmp_path / "errands" / "1"))
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["provenance"]["recipe"] = {}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="no recipe says what to measure it on"):
        measured(copy, "test", tiny_data_dir)
