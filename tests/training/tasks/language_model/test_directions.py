"""A language model with a mixture of kernels of directions, from the recipe to `next-word`."""

import math
from pathlib import Path

import pytest
import torch

from models.store import load_bundle
from models.tasks.language_model import LanguageModel
from training.recipe.loading import parse_recipe
from training.recipe.recipe import Recipe
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.loop import Trainer
from training.run.session import load_trained, open_task, start_run
from training.softmax.directional import scale_of_classes
from training.tasks.language_model import LanguageModelTask


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")
def test_angles_are_learnt_exported_and_explained(tiny_recipe: Recipe, tiny_data_dir: Path, tmp_path: Path) -> None:
    content = tiny_recipe.model_dump()
    content["output_layer"] |= {"kernels": [{"name": "cos", "learnable": True}, {"name": "vmf", "scale": 4.0}]}
    content["loop"] |= {"epochs": 4}
    run = RunDirectory(tmp_path / "run")
    recipe = parse_recipe(content)
    start_run(recipe, run, tiny_data_dir)
    task = open_task(recipe, run, tiny_data_dir, torch.device("cpu"))
    Trainer(task, run, recipe.loop).fit(lambda line: None)
    trained = load_trained(run, tiny_data_dir, device="cpu")
    assert isinstance(trained, LanguageModelTask)
    layer = trained.model.output_layer
    scale = layer.components()[0].hyperparameters["scale"]
    assert abs(scale - scale_of_classes(layer.weight.shape[0])) > 0.01
    assert trained.measure("test").metrics["perplexity"] < 0.7 * layer.weight.shape[0]

    exported = export_run(run, tmp_path / "bundles", tiny_data_dir)
    assert set(exported.differences) == {"onnx", "torchscript"}
    model = load_bundle(exported.path, threads=1)
    assert isinstance(model, LanguageModel)
    (result,) = model.next_words(["one cow"], 3)
    assert [each.kernel for each in result.components] == ["cos", "vmf"]
    assert [each.hyperparameters["scale"] for each in result.components] == pytest.approx([scale, 4.0], rel=1e-6)
    assert math.fsum(each.weight for each in result.components) == pytest.approx(1, abs=1e-5)
