"""Training on a device is training on the processor: on a GPU with `make test-gpu`, and on the processor itself, which
drives the same code."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from tests.fixtures.optional_tools import missing
from tests.training.run.test_distributed import CPU, ROOT, _history, _recipe
from training.data.corpus import Corpus
from training.device import choose_device
from training.networks.lstm import LSTM
from training.recipe import LoopSettings
from training.run.directory import RunDirectory
from training.run.loop import Trainer
from training.run.optimization import Optimization
from training.run.session import open_task, start_run
from training.softmax import GeneralizedSoftmax

_GPUS = torch.cuda.device_count() if "SOFTSERVE_REQUIRE_GPU" not in os.environ else max(1, torch.cuda.device_count())
_NEEDS_GPU, _NEEDS_TWO = (pytest.mark.skipif(n > _GPUS, reason=missing("onnxruntime-gpu")) for n in (1, 2))
LAYERS = [
    {"kernels": "lin"},
    {"kernels": "log"},
    {"kernels": "pow"},
    {"kernels": "rbf"},
    {"kernels": "lin,hpb"},
    {"kernels": "lin,pow", "untied": 2, "sparse_k": 20},
    {"kernels": "mix2", "label_smoothing": 0.1},
]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=_NEEDS_GPU)])
def device(request: pytest.FixtureRequest) -> torch.device:
    return choose_device(request.param)


def _loss(
    options: dict[str, object], device: torch.device, dtype: torch.dtype, *, mixed: bool = False
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the loss of an output layer and its gradients, of the same numbers on every device."""
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(200, 32, **options).double()  # type: ignore[arg-type]
    hidden, target = torch.randn(64, 32, dtype=torch.float64), torch.randint(200, (64,))
    layer.to(device, dtype)
    inputs = hidden.to(device, dtype).requires_grad_()
    with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
        loss = layer.loss(inputs, target.to(device))
    loss.backward()
    gradients = [p.grad for p in (inputs, *layer.parameters()) if p.grad is not None]
    return loss.detach().cpu(), [gradient.detach().cpu() for gradient in gradients]


@pytest.mark.parametrize("mixed", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_loss_and_gradients_are_those_in_float64_on_the_processor(
    options: dict[str, object], mixed: bool, device: torch.device
) -> None:
    exact, exact_gradients = _loss(options, CPU, torch.float64)
    loss, gradients = _loss(options, device, torch.float32, mixed=mixed)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=2e-2 if mixed else 1e-4)
    assert len(gradients) == len(exact_gradients)
    for found, wanted in zip(gradients, exact_gradients, strict=True):
        error, size = (found.double() - wanted).norm(), wanted.norm()
        assert error <= (0.1 if mixed else 2e-3) * size + 1e-9


@_NEEDS_GPU
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_a_loss_never_waits_for_the_gpu(options: dict[str, object], reduction: Any) -> None:
    layer = GeneralizedSoftmax(200, 32, **options, device="cuda")  # type: ignore[arg-type]
    hidden, target = torch.randn(64, 32, device="cuda", requires_grad=True), torch.arange(64, device="cuda")
    torch.autograd.grad(layer.loss(hidden, target), hidden)  # what libraries do once
    torch.cuda.set_sync_debug_mode("error")
    try:
        layer.loss(hidden, target, reduction=reduction, ignore_index=3).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_an_lstm_with_dropped_weights_is_that_of_the_processor(device: torch.device) -> None:
    """All weights between steps are dropped, which is the same on every device."""
    inputs, outputs = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1)), []
    for place in (CPU, device):
        torch.manual_seed(0)
        network = LSTM(8, weight_dropout=1.0, locked_dropout=True).to(place).train()
        outputs.append(network(inputs.to(place), network.initial_state(3))[0].detach().cpu())
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["sentences", "pairs"])
def test_an_epoch_has_the_loss_curve_of_the_processor(
    name: str, device: torch.device, tiny_corpus: Corpus, pairs_corpus: Corpus, tiny_data_dir: Path, tmp_path: Path
) -> None:
    recipe = _recipe(name)
    recipe = recipe.model_copy(update={"loop": recipe.loop.model_copy(update={"epochs": 1})})
    curves = []
    for place in (CPU, device):
        run = RunDirectory(tmp_path / str(len(curves)))
        start_run(recipe, run, tiny_data_dir)
        torch.manual_seed(recipe.seed)
        task = open_task(recipe, run, tiny_data_dir, place)
        Trainer(task, run, recipe.loop).fit(lambda line: None)
        assert {parameter.device.type for parameter in task.model.parameters()} == {place.type}
        curves.append(_history(run.path))
    ((step, loss, metric),), ((other_step, other_loss, other_metric),) = curves
    assert (other_step, other_loss) == (step, pytest.approx(loss, rel=5e-3))
    assert other_metric == pytest.approx(metric, rel=0.02, abs=1.0)


@_NEEDS_GPU
def test_float16_skips_updates_whose_gradients_overflow() -> None:
    model, device = nn.Linear(4, 1).cuda(), torch.device("cuda")
    optimization = Optimization(model, LoopSettings(precision="float16", warmup_steps=0), device, epoch_updates=9)
    before = model.weight.detach().clone()
    for size, moved in ((1e38, False), (1.0, True)):
        optimization.zero_grad()
        optimization.backward(model(torch.ones(1, 4, device=device)).sum() * size)
        optimization.step()
        assert (not torch.equal(model.weight, before)) == moved
    state = optimization.state_dict()["scaler"]
    assert state["scale"] == 2.0**15
    again = Optimization(model, LoopSettings(precision="float16"), device, epoch_updates=9)
    again.load_state_dict(optimization.state_dict())
    assert again.state_dict()["scaler"] == state


@_NEEDS_TWO
def test_two_gpus_have_the_loss_curve_of_one(tmp_path: Path) -> None:
    """`torchrun` with NCCL; `test_two_machines.py` is that with gloo on processors."""
    lines = [f"{' '.join('abcdefgh'[n % 7 :])} {n} .\n" for n in range(200)]
    (tmp_path / "text.txt").write_text("".join(lines), encoding="utf-8")
    content = _recipe("sentences").model_dump()
    content["data"] = {"files": {"train": "text.txt"}, "min_count": 1, "batch_tokens": 200}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    for count in ("1", "2"):
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
        command = [*start, "-m", "training.cli", "run", str(tmp_path / "recipe.yaml"), "--device", "cuda"]
        command += ["--data-dir", str(tmp_path), "--runs", str(tmp_path / count)]
        subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, check=True, timeout=300
        )
    alone, together = (_history(tmp_path / count / "sentences") for count in ("1", "2"))
    assert [loss for _, loss, _ in together] == pytest.approx([loss for _, loss, _ in alone], rel=1e-3)
