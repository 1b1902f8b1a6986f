"""Export a run at a chosen precision, for benchmarks that compare float32 with int8."""

import shutil
from pathlib import Path
from typing import Literal

import yaml

from training.checkpoint import RunDirectory
from training.export.bundle import export_run

__all__ = ["Precision", "export_at"]

Precision = Literal["float32", "int8"]


def export_at(precision: Precision, run: RunDirectory, directory: Path, data_dir: Path) -> Path:
    """Write a copy of the run and its bundle below `directory`; return the directory of the bundle."""
    copy = RunDirectory(Path(shutil.copytree(run.path, directory / "run", ignore=shutil.ignore_patterns("last.pt"))))
    recipe = run.recipe().model_dump()
    recipe["export"] |= {"quantization": "int8" if precision == "int8" else "none", "torchscript": False}
    (copy.path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return export_run(copy, directory / "models", data_dir).path
