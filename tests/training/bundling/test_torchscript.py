"""Tests of the TorchScript file: one module, a method a graph, weights stored once, sizes not frozen."""

from pathlib import Path

import pytest
import torch

from training.bundling.bundle import WrittenBundle
from training.bundling.graphs import ExportGraph
from training.bundling.torchscript import save_torchscript
from training.networks.language_model import RecurrentLanguageModel
from training.tasks.language_model.graphs import example_inputs, language_model_graphs

# torch deprecates TorchScript; it stays a backend because users asked for it.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")


@pytest.fixture
def module(tiny_export: WrittenBundle) -> torch.jit.ScriptModule:
    loaded: torch.jit.ScriptModule = torch.jit.load(tiny_export.path / "language_model.pt")
    return loaded


@pytest.mark.parametrize(("batch_size", "steps"), [(1, 1), (1, 40), (6, 1), (5, 11)])
@pytest.mark.parametrize("k", [1, 3, "V"])
def test_next_words_equals_the_module(
    batch_size: int, steps: int, k: int | str, module: torch.jit.ScriptModule, tiny_model: RecurrentLanguageModel
) -> None:
    count = torch.tensor(tiny_model.output_layer.weight.shape[0] if k == "V" else int(k))
    inputs = (*example_inputs(tiny_model, batch_size=batch_size, steps=steps, seed=30), count)
    expected = language_model_graphs(tiny_model)["next_words"].module(*inputs)
    torch.testing.assert_close(module.next_words(*inputs), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("batch_size", "steps"), [(1, 1), (1, 40), (6, 1), (5, 11)])
def test_score_equals_the_module(
    batch_size: int, steps: int, module: torch.jit.ScriptModule, tiny_model: RecurrentLanguageModel
) -> None:
    inputs = example_inputs(tiny_model, batch_size=batch_size, steps=steps, seed=31)
    inputs = (*inputs, inputs[0].flip(1))
    expected = language_model_graphs(tiny_model)["score"].module(*inputs)
    torch.testing.assert_close(module.score(*inputs), expected, rtol=0, atol=1e-5)


def test_weights_are_stored_once(tiny_export: WrittenBundle, tiny_model: RecurrentLanguageModel) -> None:
    size = sum(parameter.numel() * parameter.element_size() for parameter in tiny_model.parameters())
    # Code, its debug information and zip entries take some 60 KB; a second copy of these weights would be 80 KB.
    assert size < (tiny_export.path / "language_model.pt").stat().st_size < size + 70_000 < 2 * size


def test_dropout_is_off(tiny_model: RecurrentLanguageModel, tmp_path: Path) -> None:
    """Even where the module to save is in training mode."""
    graphs: dict[str, ExportGraph] = dict(language_model_graphs(tiny_model))
    tiny_model.train()
    try:
        save_torchscript(graphs, tmp_path / "model.pt")
    finally:
        tiny_model.eval()
    inputs = graphs["score"].examples
    scores = torch.jit.load(tmp_path / "model.pt").score(*inputs)
    torch.testing.assert_close(scores, graphs["score"].module(*inputs))
