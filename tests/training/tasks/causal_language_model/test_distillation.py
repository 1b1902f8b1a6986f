"""Tests of causal language models that learn from another one: the divergence by hand, and refused teachers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.support.causal_directory import write_causal
from tests.training.tasks.causal_language_model.conftest import RECIPE
from training.data.batching import IGNORED
from training.networks.pretrained_causal import read_pretrained
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.session import load_trained, open_task, start_run, train
from training.tasks.causal_language_model.task import CausalLanguageModelTask

CPU = torch.device("cpu")
SMALL = {"hidden_size": 16, "layers": 1, "heads": 2, "positions": 48, "dropout": 0.0}


@pytest.fixture(scope="module")
def teacher(counting: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a kernel, trained for two epochs."""
    run = RunDirectory(tmp_path_factory.mktemp("teacher") / "large")
    layer = {"kernels": "2*lin", "untied": "full"}
    recipe = parse_recipe(RECIPE | {"output_layer": layer, "loop": RECIPE["loop"] | {"epochs": 2}})
    train(recipe, run, counting, CPU)
    return run.path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_causal(tmp_path_factory.mktemp("hub") / "gpt2", "GPT2LMHeadModel")


def _started(recipe: dict[str, Any], run: Path, data_dir: Path) -> CausalLanguageModelTask:
    """Return the task of a run that has begun, with its first parameters."""
    parsed = parse_recipe(RECIPE | recipe)
    start_run(parsed, RunDirectory(run), data_dir)
    task = open_task(parsed, RunDirectory(run), data_dir, CPU)
    assert isinstance(task, CausalLanguageModelTask)
    task.initialize()
    return task


def _pretrained(directory: Path, **sections: Any) -> dict[str, Any]:
    data = {name: each for name, each in RECIPE["data"].items() if name != "vocab_size"}
    return {"data": data, "network": {"pretrained": str(directory), "positions": 48}} | sections


@pytest.mark.parametrize(("weight", "temperature"), [(0.25, 1.0), (1.0, 3.0)])
def test_the_loss_is_that_of_the_formula(
    teacher: Path, counting: Path, tmp_path: Path, weight: float, temperature: float
) -> None:
    """`(1 - w) * cross entropy + w * T^2 * KL`, in float64 from the distributions of both models."""
    given = {"teacher": str(teacher), "weight": weight, "temperature": temperature}
    task = _started({"network": SMALL, "distillation": given}, tmp_path / "run", counting)
    other = load_trained(RunDirectory(teacher), counting)
    assert isinstance(other, CausalLanguageModelTask)
    batch = next(iter(task.batches("train").epoch(0)))
    task.model.eval()
    loss, count = task.loss(batch)

    hidden, targets = task.context_vectors(batch)
    wanted, _ = other.context_vectors(batch)
    assert count == int((batch.targets != IGNORED).sum()) == len(targets)
    own, theirs = (
        each.model.output_layer.log_prob(vectors, temperature=temperature).double()
        for each, vectors in ((task, hidden), (other, wanted))
    )
    divergence = (theirs.exp() * (theirs - own)).sum()
    entropy = functional.nll_loss(task.model.output_layer.log_prob(hidden).double(), targets, reduction="sum")
    expected = (1 - weight) * entropy + weight * temperature**2 * divergence
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    loss.backward()
    assert all(each.grad is None for each in task._taught().layer.parameters())
    assert not any("teacher" in name for name in task.model.state_dict())


def test_a_small_model_gets_nearer_to_its_teacher(teacher: Path, counting: Path, tmp_path: Path) -> None:
    """It takes over the teacher's vocabulary; the data of both are in its provenance."""
    given = {"teacher": str(teacher), "weight": 1.0}
    loop = RECIPE["loop"] | {"epochs": 2, "warmup_steps": 3}
    recipe = parse_recipe(RECIPE | {"network": SMALL, "distillation": given, "loop": loop})
    progress = train(recipe, RunDirectory(tmp_path / "run"), counting, CPU)
    first, last = progress.history[0].train_loss, progress.history[-1].train_loss
    assert last < 0.7 * first
    assert RunDirectory(tmp_path / "run").tokenizer.read_text() == RunDirectory(teacher).tokenizer.read_text()
    assert recipe.sources() == parse_recipe(RECIPE).sources()


def test_the_old_output_layer_teaches_the_new_one(directory: Path, counting: Path, tmp_path: Path) -> None:
    """A plain softmax starts at its teacher: the divergence is 0. Another kernel does not, and learns."""
    body = {"pretrained": str(directory), "positions": 48, "tied": False}
    given = {"teacher": "pretrained", "weight": 1.0}
    same = _started(_pretrained(directory, network=body, distillation=given), tmp_path / "same", counting)
    batch = next(iter(same.batches("train").epoch(0)))
    same.model.eval()
    loss, count = same.loss(batch)
    assert float(loss.detach()) / count == pytest.approx(0.0, abs=1e-5)

    layer = {"kernels": [{"name": "pow", "p": 1.5}]}
    frozen = body | {"body": "frozen"}
    loop = RECIPE["loop"] | {"epochs": 2, "warmup_steps": 3, "max_steps": 80, "evaluate_steps": 20}
    settings = _pretrained(directory, network=frozen, distillation=given, output_layer=layer, loop=loop)
    run = RunDirectory(tmp_path / "other")
    history = train(parse_recipe(RECIPE | settings), run, counting, CPU).history
    assert history[-1].train_loss < 0.85 * history[0].train_loss


def test_a_pretrained_directory_teaches_one_of_its_vocabulary(directory: Path, counting: Path, tmp_path: Path) -> None:
    given = {"teacher": str(directory), "weight": 0.5}
    task = _started(_pretrained(directory, distillation=given), tmp_path / "run", counting)
    batch = next(iter(task.batches("train").epoch(0)))
    loss, _ = task.loss(batch)
    assert float(loss.detach()) > 0
    assert torch.equal(task._taught().layer.weight, read_pretrained(str(directory)).head.linear.weight)


def test_teachers_that_cannot_teach_are_refused(teacher: Path, directory: Path, counting: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"distillation\.teacher has another vocabulary"):
        _started(_pretrained(directory, distillation={"teacher": str(teacher)}), tmp_path / "a", counting)
    with pytest.raises(ValueError, match=r"distillation\.teacher reads 48 tokens at most"):
        _started({"network": SMALL | {"positions": 64}, "distillation": {"teacher": str(teacher)}}, tmp_path, counting)
    for settings, said in (
        ({"distillation": {"teacher": "pretrained"}}, "pretrained needs network.pretrained"),
        ({"distillation": {"teacher": "x"}, "output_layer": {"alpha": 1.5}}, "infinite where a probability is 0"),
        ({"distillation": {"teacher": "x"}, "output_layer": {"sparse_k": 5}}, "infinite where a probability is 0"),
        ({"distillation": {"teacher": "x", "weight": 0}}, "distillation.weight"),
    ):
        with pytest.raises(ValueError, match=said):
            parse_recipe(RECIPE | settings)
    with pytest.raises((ValueError, FileNotFoundError), match="nowhere"):
        _started({"distillation": {"teacher": "nowhere"}}, tmp_path / "b", counting)
