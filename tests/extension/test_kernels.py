"""Tests of kernels from outside the package: losses, gradients, recipes, and bundles served without the class."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from models.store import load_bundle
from training.bundling.folding import FoldedSoftmax
from training.recipe import Recipe, RecipeError
from training.recipe.loading import load_recipe, parse_recipe
from training.recipe.output_layer import OutputLayerSettings
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.loop import Trainer
from training.run.session import open_task, start_run
from training.softmax import GeneralizedSoftmax, build_kernel, reference
from training.softmax.mixture import KernelSpec, parse_kernels

HERE = "tests.extension.kernels"
N, V, D = 6, 7, 4
OWN = [f"{HERE}:{name}" for name in ("Bilinear", "Cosine", "Exponential", "Centred")]
LAYERS: list[list[KernelSpec]] = [
    *([name] for name in OWN),
    [{"name": f"{HERE}:Cosine", "tau": 0.5}],
    *([{"name": f"{HERE}:{name}", "learnable": True}] for name in ("Cosine", "Exponential", "Centred")),
    ["lin", f"2*{HERE}:Exponential", {"name": f"{HERE}:Centred", "learnable": True}],
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"sparse_k": 3},
    {"untied": "full"},
    {"untied": 2, "variance_penalty": 0.2},
    {"label_smoothing": 0.2},
]


def _layer(kernels: list[KernelSpec], **options: Any) -> GeneralizedSoftmax:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, kernels, **options).double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "raw" not in name:
                parameter.normal_()
    return layer


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(N, D, generator=generator, dtype=torch.float64, requires_grad=True)
    return hidden, torch.randint(V, (N,), generator=generator)


# ---- the layer --------------------------------------------------------------------------------------------


def test_scores_by_hand() -> None:
    """W = (3, 4), (0, 2), h = (4, 3): products 24 and 6, norms 5, 2 and 5."""
    weight, hidden = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[4.0, 3.0]])
    torch.testing.assert_close(build_kernel(OWN[0])(weight, hidden), torch.tensor([[24 / 25, 6 / 7]]))
    torch.testing.assert_close(build_kernel(OWN[1], tau=0.5)(weight, hidden), torch.tensor([[48 / 25, 12 / 10]]))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kernels", LAYERS, ids=str)
def test_loss_and_all_gradients_equal_the_reference(
    kernels: list[KernelSpec], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where positions and classes are gone through a few at a time; hyperparameters have gradients too."""
    monkeypatch.setattr("training.softmax.passes.CHUNK_SCORES", 2 * V)
    monkeypatch.setattr("training.softmax.passes._CHUNK_WEIGHTS", 3 * D)
    layer, (hidden, target) = _layer(kernels, **options), _batch()
    inputs = (hidden, *layer.parameters())
    ours, expected = layer.loss(hidden, target), reference.losses(layer, hidden, target).sum()
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    gradients = (torch.autograd.grad(loss, inputs) for loss in (ours, expected))
    for gradient, expected_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(layer.log_prob(hidden), reference.log_prob(layer, hidden), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kernels", LAYERS, ids=str)
def test_gradients_equal_finite_differences(kernels: list[KernelSpec]) -> None:
    layer, (hidden, target) = _layer(kernels), _batch()
    torch.autograd.gradcheck(lambda *_: layer.loss(hidden, target), (hidden, *layer.parameters()))


@pytest.mark.parametrize("kernels", LAYERS, ids=str)
def test_autocast_gives_a_float32_loss_and_gradients(kernels: list[KernelSpec]) -> None:
    layer, (hidden, target) = _layer(kernels).float(), _batch()
    narrow = hidden.detach().float().requires_grad_()
    exact = layer.loss(narrow, target)
    with torch.autocast("cpu", torch.bfloat16):
        loss = layer.loss(narrow, target)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=0.03)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in (*layer.parameters(), narrow))


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, {"untied": "full"}, {"untied": 2}, {"sparse_k": 4}], ids=str)
@pytest.mark.parametrize("kernels", LAYERS, ids=str)
def test_folded_log_probabilities_equal_the_layers(kernels: list[KernelSpec], options: dict[str, Any]) -> None:
    layer, (hidden, _) = _layer(kernels, **options), _batch()
    torch.testing.assert_close(FoldedSoftmax(layer).log_prob(hidden), layer.log_prob(hidden), rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_subclass_of_a_kernel_is_not_exported_as_its_parent() -> None:
    """`pow` with p = 2 is exported as an affine layer; a kernel derived from it must not be."""
    layer = _layer([{"name": f"{HERE}:Shrunk", "p": 2.0}])
    hidden, _ = _batch()
    torch.testing.assert_close(FoldedSoftmax(layer).log_prob(hidden), layer.log_prob(hidden))
    assert layer.components()[0].name == f"{HERE}:Shrunk"
    loss = layer.loss(hidden, torch.arange(N))
    torch.testing.assert_close(loss, -layer.log_prob(hidden).diagonal().sum())


# ---- recipes ----------------------------------------------------------------------------------------------


def test_kernels_are_parsed() -> None:
    expected = [{"name": OWN[0]}, {"name": OWN[0]}, {"name": "lin"}, {"name": OWN[1], "tau": 2}]
    assert parse_kernels([f" 2 * {OWN[0]}, lin", {"name": OWN[1], "tau": 2}]) == expected


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        (
            "nowhere.at_all:Kernel",
            "No module named 'nowhere'; modules of the current",
        ),
        (f"{HERE}:Missing", f"module '{HERE}' has no attribute 'Missing'"),
        (f"lin, {HERE}:NOT_A_CLASS", "is not a subclass of training.softmax.Kernel"),
        ("training.run.loop:Trainer", "is not a subclass of training.softmax.Kernel"),
        (f"{HERE}:Scoreless", "that overrides score"),
        (f"{HERE}:Copied", "has the name of another kernel, 'lin'"),
        ([{"name": OWN[1], "sharpness": 2}], f"unknown hyperparameter 'sharpness' of kernel '{OWN[1]}'; it has: tau"),
        ([{"name": OWN[0], "tau": 2}], f"unknown hyperparameter 'tau' of kernel '{OWN[0]}'; it has: none"),
        ([{"name": OWN[1], "tau": -1}], "tau of kernel 'cosine' must be a positive finite number"),
    ],
)
def test_errors_name_the_field_and_what_is_wrong(kernels: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError) as caught:
        OutputLayerSettings(kernels=kernels)
    ((place, message),) = [(error["loc"], error["msg"]) for error in caught.value.errors()]
    assert place == ("kernels",)
    assert said in message
    content = {"name": "own", "task": "language-model", "data": {"corpus": "toy"}, "output_layer": {"kernels": kernels}}
    (tmp_path / "own.yaml").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"output_layer\.kernels: "):
        load_recipe(tmp_path / "own.yaml")


# ---- from a recipe to answers -----------------------------------------------------------------------------

SERVE = """
import json, sys
from pathlib import Path
from models.store import load_bundle

class NoTraining:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("training", "tests"):
            raise ModuleNotFoundError(f"{name} is not to be imported", name=name)

sys.meta_path.insert(0, NoTraining())
scores = [load_bundle(Path(sys.argv[1]), backend=each, threads=1).score(["Two cats draw one fox."])[0]
          for each in ("onnx", "torchscript")]
print(json.dumps([[token.log_probability for token in score.tokens] for score in scores]))
"""


# torch deprecates TorchScript; it stays a backend because users asked for it.
@pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")
def test_a_model_is_trained_exported_and_served_without_the_class(
    tiny_recipe: Recipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    content = {**tiny_recipe.model_dump(), "name": "own"}
    kernels = [OWN[0], {"name": OWN[1], "learnable": True, "tau": 0.1}]
    content["output_layer"] |= {"kernels": kernels, "untied": 2}
    content["loop"]["epochs"] = 2
    content["tune"] = {"sampler": "grid", "parameters": {"output_layer.kernels.1.tau": [0.05, 0.2]}}
    recipe, run = parse_recipe(content), RunDirectory(tmp_path / "run")
    assert parse_recipe(recipe.model_dump()) == recipe
    layer = recipe.with_values({"output_layer.kernels.1.tau": 0.2}).output_layer.build(9, 4)
    assert layer.components()[1].hyperparameters == pytest.approx({"tau": 0.2})
    start_run(recipe, run, tiny_data_dir)
    torch.manual_seed(recipe.seed)
    progress = Trainer(open_task(recipe, run, tiny_data_dir, torch.device("cpu")), run, recipe.loop).fit(
        lambda line: None
    )
    assert progress.history[1].train_loss < progress.history[0].train_loss
    exported = export_run(run, tmp_path / "models", tiny_data_dir)
    assert max(exported.differences.values()) < 1e-4
    plain, cosine = exported.manifest.softmax.kernels
    assert (plain.name, plain.hyperparameters, cosine.name) == (OWN[0], {}, "cosine")
    assert cosine.hyperparameters["tau"] != 0.1
    card = (exported.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert f"mixture of `{OWN[0]}`, `cosine` (tau = {cosine.hyperparameters['tau']:g})" in card
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVE, str(exported.path)], capture_output=True, text=True, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
    (expected,) = load_bundle(exported.path, threads=1).score(["Two cats draw one fox."])
    for answers in json.loads(finished.stdout):
        assert answers == pytest.approx([token.log_probability for token in expected.tokens], abs=1e-4)
