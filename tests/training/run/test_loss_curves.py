"""Loss curves of each task from a fixed seed: a change of the updates changes them.

Where a change is meant to, such as another initialization, the test's message has the values to record.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fixtures.classification import ERRANDS_RECIPE
from tests.fixtures.generation import NOTES_RECIPE
from tests.fixtures.images import SHAPES_RECIPE
from tests.training.conftest import PAIRS_RECIPE
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.loop import Trainer
from training.run.session import open_task, start_run

LOOP = {
    "epochs": 4,
    "learning_rate": 3e-2,
    "warmup_steps": 3,
    "patience": 4,
    "precision": "float32",
    "clip_norm": 1e3,
}
"""Nothing is clipped, since that would hide how gradients are scaled."""
WORDS = {
    "name": "toy",
    "task": "language-model",
    "data": {"corpus": "toy", "min_count": 2},
    "network": {"hidden_size": 32, "num_layers": 1, "dropout": 0.0},
    "output_layer": {"kernels": "lin, pow", "variance_penalty": 0.1},
}
RECIPES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "language-model": (WORDS, {"limit": 12, "batch_tokens": 14}),
    "translation": (PAIRS_RECIPE, {"limit": 12, "batch_tokens": 14}),
    "text-classification": (ERRANDS_RECIPE, {"limit": 12, "batch_tokens": 14}),
    "text-generation": (NOTES_RECIPE, {"limit": 12, "batch_tokens": 14}),
    "image-classification": (SHAPES_RECIPE, {"limit": 10, "batch_images": 4}),
}
"""Each task's recipe, and data of which an epoch is a few batches of different numbers of targets."""
CURVES: Mapping[str, list[float]] = {
    "language-model": [2.321492, 1.62565, 1.110128, 0.875741],
    "translation": [5.086722, 2.672645, 2.361667, 2.290101],
    "text-classification": [2.187754, 1.599878, 1.598013, 1.062397],
    "text-generation": [1.93011, 1.271036, 0.71669, 0.589045],
    "image-classification": [0.932354, 0.58073, 0.497311, 0.78607],
}
"""The mean training loss of a target in each epoch."""


@pytest.mark.parametrize(
    ("task", "workers"), [*((task, 0) for task in RECIPES), ("text-classification", 1), ("image-classification", 1)]
)
@pytest.mark.usefixtures("tiny_corpus", "pairs_corpus", "errands_corpus", "shapes_corpus")
def test_the_loss_curve_is_as_recorded(
    task: str, workers: int, tiny_data_dir: Path, notes_dir: Path, tmp_path: Path
) -> None:
    content, data = RECIPES[task]
    loop = {**LOOP, "workers": workers}
    recipe = parse_recipe({**content, "data": {**content["data"], **data}, "loop": loop})
    data_dir, run = notes_dir if task == "text-generation" else tiny_data_dir, RunDirectory(tmp_path)
    start_run(recipe, run, data_dir)
    torch.manual_seed(recipe.seed)
    progress = Trainer(open_task(recipe, run, data_dir, torch.device("cpu")), run, recipe.loop).fit(lambda line: None)
    assert progress.step >= 8
    assert [each.train_loss for each in progress.history] == pytest.approx(CURVES[task], rel=5e-4)
