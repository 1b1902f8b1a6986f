"""Tests of exported causal language models: the bundle is the torch model, whatever its output layer."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from models.store import load_bundle
from models.tasks.causal_language_model import CausalLanguageModel
from models.tasks.causal_results import NextTokens
from tests.training.tasks.causal_language_model.conftest import RECIPE
from training.bundling.verify import TOLERANCE, ExportError
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.session import load_trained, train
from training.tasks.causal_language_model.settings import CausalLanguageModelRecipe
from training.tasks.causal_language_model.task import CausalLanguageModelTask

CPU = torch.device("cpu")
LAYERS: dict[str, dict[str, Any]] = {
    "lin": {"kernels": "lin", "bias": True},
    "pow": {"kernels": [{"name": "pow", "p": 1.5}]},
    "mixture": {"kernels": "lin, pow, log", "untied": 4},
    "sparse": {"kernels": "lin", "sparse_k": 5},
    "entmax": {"kernels": "lin", "alpha": 1.5},
}
TEXTS = ["Null eins zwei", "drei", "Ungesehenes: 🙂 naïve  Größen", "fünf sechs sieben acht"]

Trained = Callable[[str], RunDirectory]


@pytest.fixture(scope="module")
def trained(counting: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return a function that gives the run of an output layer of `LAYERS`, some updates long."""
    runs: dict[str, RunDirectory] = {}

    def of(name: str) -> RunDirectory:
        if name not in runs:
            run = RunDirectory(tmp_path_factory.mktemp("runs") / name)
            content = RECIPE | {
                "output_layer": LAYERS[name],
                "loop": RECIPE["loop"] | {"max_steps": 15},
                "export": {"description": "Counts", "quantization": "int8" if name == "pow" else "none"},
            }
            recipe = parse_recipe(content)
            assert isinstance(recipe, CausalLanguageModelRecipe)
            train(recipe, run, counting, CPU)
            runs[name] = run
        return runs[name]

    return of


@torch.no_grad()
def _log_probabilities(task: CausalLanguageModelTask, tokens: list[int]) -> torch.Tensor:
    """What the trained model gives after the start and after each token, `[T + 1, V]`."""
    hidden = task.model.eval()(torch.tensor([[task.tokenizer.end_id, *tokens]]))[0]
    return task.model.output_layer.log_prob(hidden)


@pytest.mark.parametrize("name", ["lin", "mixture"])
def test_the_bundle_computes_what_the_model_computes(
    name: str, trained: Trained, counting: Path, tmp_path: Path
) -> None:
    run = trained(name)
    written = export_run(run, tmp_path, counting)
    assert written.difference <= TOLERANCE
    task = load_trained(run, counting, "cpu")
    assert isinstance(task, CausalLanguageModelTask)
    model = load_bundle(written.path, threads=1)
    assert isinstance(model, CausalLanguageModel)
    size = task.tokenizer.vocab_size
    for text, score, words in zip(TEXTS, model.score(TEXTS), model.next_words(TEXTS, size, unit="token"), strict=True):
        assert isinstance(words, NextTokens)
        tokens = task.tokenizer.encode(text)
        expected = _log_probabilities(task, tokens)
        values = [each.log_probability for each in score.tokens]
        assert values == pytest.approx(expected[torch.arange(len(tokens)), tokens].tolist(), abs=1e-4)
        found = {each.token: each.log_probability for each in words.words}
        assert [found[token] for token in range(size)] == pytest.approx(expected[-1].tolist(), abs=1e-4)
        assert sum(map(math.exp, found.values())) == pytest.approx(1, abs=1e-4)
    assert [each.sentence_end for each in model.next_words(["acht neun"], size, unit="token")[0].words].count(True) == 1
    measured = {(each.split, each.metric): each.value for each in written.manifest.quality}
    for metric, value in task.measure("test").metrics.items():
        assert measured["test", metric] == pytest.approx(value, abs=2e-4)
    examples, own = (
        CausalLanguageModelTask.bundle_examples(model, task.recipe, "test", counting),
        task.measure("test").examples,
    )
    assert own is not None
    assert examples.statistics == pytest.approx(own.statistics, abs=1e-3)
    assert len(own.statistics) == len((counting / "test.txt").read_text("utf-8").splitlines())


def test_int8_weights_are_measured(trained: Trained, counting: Path, tmp_path: Path) -> None:
    run = trained("pow")
    written = export_run(run, tmp_path, counting)
    manifest = json.loads((written.path / "manifest.json").read_text("utf-8"))
    assert manifest["softmax"]["kernels"] == [{"name": "pow", "hyperparameters": {"p": 1.5}}]
    quantization = manifest["quantization"]
    assert (quantization["kind"], quantization["metric"]) == ("int8-weights", "bits_per_byte")
    assert quantization["value"] == pytest.approx(quantization["float32_value"], abs=0.05)
    assert {(each["split"], each["metric"]) for each in manifest["quality"]} == {
        (split, metric) for split in ("dev", "test") for metric in ("bits_per_byte", "perplexity")
    }
    card = (written.path / "MODEL_CARD.md").read_text("utf-8")
    assert "causal Transformer, 2 layers, 32 hidden units, 2 heads (1 of keys and values)" in card
    assert "`pow` (p = 1.5)" in card
    task = load_trained(run, counting, "cpu")
    assert isinstance(task, CausalLanguageModelTask)
    expected = _log_probabilities(task, tokens := task.tokenizer.encode(TEXTS[0]))
    found = [each.log_probability for each in load_bundle(written.path, threads=1).score(TEXTS[:1])[0].tokens]
    assert found == pytest.approx(expected[torch.arange(len(tokens)), tokens].tolist(), abs=0.3)


@pytest.mark.parametrize("name", ["pow", "mixture"])
def test_int4_weights_are_measured(name: str, trained: Trained, counting: Path, tmp_path: Path) -> None:
    run = trained(name)
    written = export_run(run, tmp_path, counting, overrides=["export.quantization=int4"])
    quantization = written.manifest.quantization
    assert quantization is not None
    assert (quantization.kind, quantization.metric) == ("int4-weights", "bits_per_byte")
    assert quantization.value == pytest.approx(quantization.float32_value, abs=0.05)
    assert "* Weights: int4 (bits_per_byte " in (written.path / "MODEL_CARD.md").read_text("utf-8")
    task = load_trained(run, counting, "cpu")
    assert isinstance(task, CausalLanguageModelTask)
    expected = _log_probabilities(task, tokens := task.tokenizer.encode(TEXTS[0]))
    found = [each.log_probability for each in load_bundle(written.path, threads=1).score(TEXTS[:1])[0].tokens]
    assert found == pytest.approx(expected[torch.arange(len(tokens)), tokens].tolist(), abs=0.3)


@pytest.mark.parametrize(("name", "said"), [("sparse", "sparse_k: 5"), ("entmax", "alpha: 1.5")])
def test_probabilities_of_zero_are_not_exported(
    name: str, said: str, trained: Trained, counting: Path, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=f"output_layer.{said}.*probability 0"):
        export_run(trained(name), tmp_path, counting)
    assert not list(tmp_path.iterdir())


def test_documents_are_measured_in_pieces_as_they_are_trained(counting: Path, tmp_path: Path) -> None:
    """The lines are one document, longer than the network reads."""
    content = RECIPE | {
        "data": RECIPE["data"] | {"context": "stream"},
        "loop": RECIPE["loop"] | {"max_steps": 2},
        "export": {"description": "Counts", "torchscript": True},
    }
    run = RunDirectory(tmp_path / "run")
    train(parse_recipe(content), run, counting, CPU)
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        written = export_run(run, tmp_path / "models", counting)
    assert set(written.differences) == {"onnx", "torchscript"}
    task = load_trained(run, counting, "cpu")
    assert isinstance(task, CausalLanguageModelTask)
    assert len(task._encoded("dev").pieces) > len(task._encoded("dev").sizes) == 1
    measured = {(each.split, each.metric): each.value for each in written.manifest.quality}
    assert measured["dev", "bits_per_byte"] == pytest.approx(task.measure("dev").metrics["bits_per_byte"], abs=2e-4)
    assert written.manifest.config.limits.max_tokens == task.recipe.longest_piece == 47
