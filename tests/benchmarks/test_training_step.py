"""The benchmark of float32 and bfloat16 updates."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.training_step import Options, main
from training.recipe import Recipe
from training.run.optimization import Optimization


def test_both_precisions_train_the_same_model(
    tiny_recipe: Recipe,
    tiny_data_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    autocast, narrow = Optimization.autocast, []

    def noting(self: Optimization) -> Any:
        with autocast(self):
            narrow.append(torch.is_autocast_enabled("cpu"))
        return autocast(self)

    monkeypatch.setattr(Optimization, "autocast", noting)
    path = tmp_path / "recipe.yaml"
    path.write_text(tiny_recipe.model_dump_json(), encoding="utf-8")
    main(Options(recipe=path, data_dir=tiny_data_dir, updates=4))
    printed = capsys.readouterr().out
    losses = {name: float(loss) for name, loss in re.findall(r"^(\w+) .* mean loss ([\d.]+)$", printed, re.MULTILINE)}
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.02)
    assert narrow == [False, True] * 5  # the first update warms up
