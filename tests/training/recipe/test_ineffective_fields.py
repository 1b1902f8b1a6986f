"""Tests of `ineffective_fields`: a field that is set and has no effect is named, its default is not."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.cli.test_cli import RECIPE, run_cli
from training.recipe.loading import parse_recipe

TEXTS = {"name": "toy", "task": "text-classification", "data": {"corpus": "clinc150"}}
IMAGES = {"name": "toy", "task": "image-classification", "data": {"corpus": "cifar100"}}


@pytest.mark.parametrize(
    ("recipe", "changes", "lines"),
    [
        (RECIPE, {"loop.average": 2}, []),
        (RECIPE, {"loop.snapshot_steps": 100}, ["loop.snapshot_steps has no effect with average: 1"]),
        (RECIPE, {"loop.snapshot_steps": 100, "loop.average": 2}, []),
        (RECIPE, {"loop.schedule": "inverse-sqrt"}, []),
        (
            RECIPE,
            {"loop.schedule": "inverse-sqrt", "loop.final_learning_rate": 0.5, "loop.schedule_epochs": 3},
            [
                "loop.final_learning_rate has no effect with schedule: inverse-sqrt",
                "loop.schedule_epochs has no effect with schedule: inverse-sqrt",
            ],
        ),
        (RECIPE, {"data.stream_steps": 10}, ["data.stream_steps has no effect with context: sentence"]),
        (RECIPE, {"data.stream_steps": 10, "data.context": "stream"}, []),
        (
            RECIPE,
            {"output_layer.kernels": "lin", "output_layer.variance_penalty": 0.5},
            ["output_layer.variance_penalty has no effect on a single kernel"],
        ),
        (RECIPE, {"output_layer.kernels": "lin, log", "output_layer.variance_penalty": 0.5}, []),
        (
            RECIPE,
            {"output_layer.kernels": "lin", "output_layer.component_dropout": 0.5, "loop.equal_weights_steps": 5},
            [
                "output_layer.component_dropout has no effect on a single kernel",
                "loop.equal_weights_steps has no effect on a single kernel",
            ],
        ),
        (TEXTS, {"network.layers": 12}, []),
        (
            TEXTS,
            {"network.layers": 12, "network.pretrained": "minilm-l6"},
            ["network.layers has no effect with pretrained"],
        ),
        (IMAGES, {"network.drop_path": 0.1}, ["network.drop_path has no effect with encoder: densenet"]),
        (
            IMAGES,
            {"network.growth": 5, "network.encoder": "efficientnet-lite0"},
            ["network.growth has no effect with encoder: efficientnet-lite0"],
        ),
    ],
    ids=str,
)
def test_fields_without_an_effect_are_named(recipe: dict[str, Any], changes: dict[str, Any], lines: list[str]) -> None:
    content = {**recipe, **{section: dict(recipe.get(section, {})) for section in ("network", "output_layer", "loop")}}
    content["data"] = {**recipe["data"]}
    content.pop("tune", None)
    for path, value in changes.items():
        section, _, field = path.partition(".")
        content[section][field] = value
    assert list(parse_recipe(content).ineffective_fields()) == lines


@pytest.mark.usefixtures("tiny_corpus")
def test_training_says_so(tmp_path: Path, tiny_data_dir: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    output = run_cli(
        "run", file, "--data-dir", tiny_data_dir, "--runs", tmp_path / "runs", "--set", "loop.snapshot_steps=9"
    ).output
    assert "loop.snapshot_steps has no effect with average: 1" in output
