"""Tests of exporting a translator: graphs equal to the model, what the bundle says, int8."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sacrebleu
import torch
import yaml
from torch import Tensor

from models.backend import Backend
from models.backend.onnx import OnnxBackend
from models.backend.torchscript import TorchScriptBackend
from models.bundle.manifest import MANIFEST
from models.reading import read_manifest, validate
from models.store import load_bundle
from models.tasks.translation import Translator
from training.bundling.bundle import WrittenBundle
from training.bundling.verify import ExportError, verify_bundle
from training.networks.translation_model import TranslationModel
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.session import load_trained
from training.tasks.sequence_graphs import example_source, example_step
from training.tasks.translation import TranslationTask
from training.tasks.translation.export import TranslationExport
from training.tasks.translation.graphs import EncoderGraph, translation_graphs
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.settings import TranslationRecipe
from training.tasks.translation.task import bundle_bleu

# torch deprecates TorchScript; it stays a backend because users asked for it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning"),
    pytest.mark.usefixtures("traced_once"),
]
SHAPES = [(1, 1, 1), (1, 4, 9), (2, 5, 40), (5, 1, 3), (4, 3, 12)]
"""Sentences, hypotheses and source lengths; none equals the traced (3, 2, 7)."""
FILES = {"encode.onnx", "step.onnx", "weights.bin", "translation_model.pt", "tokenizer.json", MANIFEST, "MODEL_CARD.md"}


@pytest.fixture(scope="module", params=[OnnxBackend, TorchScriptBackend], ids=["onnx", "torchscript"])
def backend(request: pytest.FixtureRequest, pairs_export: WrittenBundle) -> Backend:
    opened: Backend = request.param(pairs_export.path, pairs_export.manifest, threads=1)
    return opened


@pytest.fixture(scope="module")
def task(pairs_run: RunDirectory, tiny_data_dir: Path) -> TranslationTask:
    loaded = load_trained(pairs_run, tiny_data_dir, "cpu")
    assert isinstance(loaded, TranslationTask)
    return loaded


# ---- equal to the model -----------------------------------------------------------------------------------


def _run(backend: Backend, name: str, model: TranslationModel, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    contract = translation_graphs(model)[name].contract
    names = [spec.name for spec in contract.outputs]
    feed = {spec.name: value.numpy() for spec, value in zip(contract.inputs, inputs, strict=True)}
    return {
        key: torch.from_numpy(np.array(value)) for key, value in zip(names, backend.run(name, feed, names), strict=True)
    }


@pytest.mark.parametrize(("batch_size", "beam", "length"), SHAPES)
def test_encode_equals_the_model(
    batch_size: int, beam: int, length: int, backend: Backend, pairs_model: TranslationModel
) -> None:
    source, lengths = example_source(pairs_model, batch_size=batch_size, length=length, seed=beam)
    got = _run(backend, "encode", pairs_model, (source, lengths))
    memory = pairs_model.encode(source, lengths)
    for layer, (keys, values) in enumerate(memory):
        for row, count in enumerate(lengths):
            ours = got[f"memory_keys_{layer}"][row, :, :count], got[f"memory_values_{layer}"][row, :, :count]
            torch.testing.assert_close(ours, (keys[row, :, :count], values[row, :, :count]), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("batch_size", "beam", "length"), SHAPES)
def test_step_equals_the_module(
    batch_size: int, beam: int, length: int, backend: Backend, pairs_model: TranslationModel
) -> None:
    sizes = {"batch_size": batch_size, "beam": beam, "length": length}
    inputs = example_step(pairs_model, EncoderGraph(pairs_model), **sizes, seed=3)
    graph = translation_graphs(pairs_model)["step"]
    expected = dict(zip([spec.name for spec in graph.contract.outputs], graph.module(*inputs), strict=True))
    got = _run(backend, "step", pairs_model, inputs)
    for name, value in expected.items():
        assert got[name].shape == value.shape
        if name != "candidates":  # equal scores may change places
            torch.testing.assert_close(got[name], value, atol=1e-4, rtol=0)
    assert got["log_probabilities"].shape == (batch_size, beam, 2 * beam)
    vocabulary = torch.tensor(pairs_model.output_layer.weight.shape[0])
    log_probabilities, tokens, *_ = graph.module(*inputs[:5], vocabulary, *inputs[6:])
    of_candidates = log_probabilities.gather(2, tokens.argsort(2)).gather(2, got["candidates"])
    torch.testing.assert_close(got["log_probabilities"], of_candidates, atol=1e-4, rtol=0)


def test_steps_from_an_empty_cache_equal_the_whole_sentence(backend: Backend, pairs_model: TranslationModel) -> None:
    """Two hypotheses of two sentences, kept apart by `visible`, against the decoder that reads whole sentences."""
    source, lengths = example_source(pairs_model, batch_size=2, length=6, seed=8)
    steps, beam, vocabulary = 5, 2, pairs_model.output_layer.weight.shape[0]
    target = torch.randint(vocabulary, (2, beam, steps), generator=torch.Generator().manual_seed(4))
    memory = _run(backend, "encode", pairs_model, (source, lengths))
    heads, size = memory["memory_values_0"].shape[1], memory["memory_values_0"].shape[3]
    layers = len(pairs_model.network.decoder_layers())
    cache = [torch.zeros(2, heads, steps * beam, size) for _ in range(2 * layers)]
    visible = torch.zeros(2, beam, steps * beam, dtype=torch.bool)
    found = []
    for step in range(steps):
        slots = torch.arange(step * beam, (step + 1) * beam).expand(2, beam)
        visible.scatter_(2, slots[:, :, None], True)
        state = (target[:, :, step], torch.full((2,), step), slots, visible, lengths, torch.tensor(vocabulary))
        inputs = (*state, *cache, *memory.values())
        got = _run(backend, "step", pairs_model, inputs)
        cache = [value for name, value in got.items() if name.startswith("new_")]
        found.append(got["log_probabilities"].gather(2, got["candidates"].argsort(2)))
    for hypothesis in range(beam):
        hidden = pairs_model(source, lengths, target[:, hypothesis])
        expected = pairs_model.output_layer.log_prob(hidden.flatten(0, 1)).view(2, steps, vocabulary)
        torch.testing.assert_close(torch.stack(found, 2)[:, hypothesis], expected, atol=1e-4, rtol=0)


def test_a_wrong_weight_is_found(task: TranslationTask, pairs_export: WrittenBundle) -> None:
    backend = OnnxBackend(pairs_export.path, pairs_export.manifest, threads=1)
    assert TranslationExport(task).largest_difference(backend) < 1e-4
    bias = task.model.network.decoder_layers()[0].cross_attention.key_value.bias
    with torch.no_grad():
        bias[0] += 0.01
    try:
        assert TranslationExport(task).largest_difference(backend) > 1e-3
    finally:
        with torch.no_grad():
            bias[0] -= 0.01


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_one_number_that_is_none_is_found(
    wrong: float, task: TranslationTask, pairs_export: WrittenBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = OnnxBackend(pairs_export.path, pairs_export.manifest, threads=1)
    run = backend.run

    def broken(graph: str, feed: object, outputs: list[str]) -> list[object]:
        results = [np.array(result) for result in run(graph, feed, outputs)]  # type: ignore[arg-type]
        if graph == "step":
            results[0].flat[0] = wrong
        return list(results)

    monkeypatch.setattr(backend, "run", broken)
    assert not TranslationExport(task).largest_difference(backend) <= 1e-4


def test_a_graph_with_permuted_tokens_is_refused(
    task: TranslationTask, pairs_export: WrittenBundle, tmp_path: Path
) -> None:
    """All log-probabilities are right, but token 0 has that of the last one, and so on."""
    bundle = Path(shutil.copytree(pairs_export.path, tmp_path / "1"))
    model = onnx.load(bundle / "step.onnx", load_external_data=False)
    (last,) = (node for node in model.graph.node if "candidates" in node.output)
    outputs = ["right" if name == "candidates" else name for name in last.output]
    del last.output[:]
    last.output.extend(outputs)
    largest = np.array(task.model.output_layer.weight.shape[0] - 1)
    model.graph.initializer.append(onnx.numpy_helper.from_array(largest, "largest"))
    model.graph.node.append(onnx.helper.make_node("Sub", ["largest", "right"], ["candidates"]))
    onnx.save(model, bundle / "step.onnx")
    with pytest.raises(ExportError, match="the onnx graphs differ from the model by"):
        verify_bundle(bundle, pairs_export.manifest, TranslationExport(task).largest_difference)


# ---- the bundle -------------------------------------------------------------------------------------------


def test_a_bundle_is_complete_and_sound(pairs_export: WrittenBundle) -> None:
    assert {file.name for file in pairs_export.path.iterdir()} == FILES
    assert validate(pairs_export.path) == []
    assert read_manifest(pairs_export.path) == pairs_export.manifest
    assert list(pairs_export.differences) == ["onnx", "torchscript"]
    for name in ("encode", "step"):
        onnx.checker.check_model(str(pairs_export.path / f"{name}.onnx"))


def test_the_manifest_says_what_a_translator_is(pairs_export: WrittenBundle, pairs_recipe: TranslationRecipe) -> None:
    manifest = pairs_export.manifest
    assert (manifest.name, manifest.version, manifest.task) == ("numerals", 1, "translation")
    assert (manifest.config.languages.source, manifest.config.languages.target) == ("de", "en")
    assert manifest.config.network.model_dump() == {
        "kind": "transformer",
        "hidden_size": 32,
        "inner_size": 64,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "norm": "pre",
        "activation": "relu",
        "positions": 1024,
    }
    assert [(kernel.name, kernel.hyperparameters) for kernel in manifest.softmax.kernels] == [("pow", {"p": 2.0})]
    assert {name: (graph.onnx, graph.torchscript) for name, graph in manifest.graphs.items()} == {
        "encode": ("encode.onnx", "translation_model.pt"),
        "step": ("step.onnx", "translation_model.pt"),
    }
    assert manifest.config.limits.max_tokens == 50
    assert parse_recipe(manifest.provenance.recipe) == pairs_recipe


def test_the_card_says_what_a_translator_is(pairs_export: WrittenBundle) -> None:
    card = (pairs_export.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    lines = card.splitlines()
    assert lines[0] == "# numerals, version 1"
    assert "* Output layer: `pow` (p = 2)" in lines
    network = "Transformer, 1 + 1 layers, 32 hidden units, 2 heads, feed-forward 64, pre-norm"
    assert f"* Network: {network}, word vectors tied" in lines
    assert any(
        line.endswith("tokens of both languages, `<unk>` and the sentence end `</s>` included") for line in lines
    )
    assert "Sentences of up to 50 tokens are accepted" in card.replace("\n", " ")
    assert f"version:{sacrebleu.__version__}" in card
    start = lines.index("| model | data | split | BLEU | chrF |")
    stated = {(each.split, each.metric): each.value for each in pairs_export.manifest.quality}
    assert lines[start + 2 : start + 5] == [
        *(f"| this model | numerals | {split} | {stated[split, 'BLEU']:.2f} | {stated[split, 'chrF']:.2f} |"
          for split in ("dev", "test")),
        "| copy | numerals | test | 1.50 |  |",
    ]  # fmt: skip
    recipe = yaml.safe_load(card.partition("```yaml\n")[2].partition("```")[0])
    assert parse_recipe(recipe).model_dump(mode="json") == pairs_export.manifest.provenance.recipe


def test_quality_is_that_of_what_is_served(
    pairs_export: WrittenBundle, task: TranslationTask, tiny_data_dir: Path
) -> None:
    model = load_bundle(pairs_export.path, threads=1)
    assert isinstance(model, Translator)
    pairs = split_pairs(task.recipe.data, "test", tiny_data_dir)
    translations = [each.translations[0].text for each in model.translate([source for source, _ in pairs], 5)]
    values = bundle_bleu(model, pairs)
    assert values["BLEU"] == sacrebleu.corpus_bleu(translations, [[target for _, target in pairs]]).score > 90
    stated = {each.metric: each.value for each in pairs_export.manifest.quality if each.split == "test"}
    assert stated == pytest.approx(values, abs=1e-3)


def test_greedy_search_of_the_bundle_is_that_of_the_task(
    pairs_export: WrittenBundle, task: TranslationTask, tiny_data_dir: Path
) -> None:
    model = load_bundle(pairs_export.path, threads=1)
    assert isinstance(model, Translator)
    sources = [source for source, _ in split_pairs(task.recipe.data, "test", tiny_data_dir)]
    served = [each.translations[0].text for each in model.translate(sources, 1)]
    assert served == task.evaluate(task.batches("test")).translations


@pytest.mark.parametrize("layer", [{"kernels": "lin, pow", "sparse_k": 10}, {"kernels": "pow", "alpha": 1.5}], ids=str)
def test_layers_with_probabilities_of_zero_are_exported_and_served(
    layer: dict[str, Any], train_pairs: Callable[..., object], tiny_data_dir: Path, tmp_path: Path
) -> None:
    """Hardly trained; what counts is that the graphs pass the comparison and answer."""
    sections = {"data": {"limit": 40}, "loop": {"epochs": 1}, "output_layer": layer, "export": {"torchscript": False}}
    trainer = train_pairs(tmp_path / "run", **sections)
    trainer.fit(lambda line: None)  # type: ignore[attr-defined]
    exported = export_run(RunDirectory(tmp_path / "run"), tmp_path / "models", tiny_data_dir)
    assert validate(exported.path) == []
    assert list(exported.differences) == ["onnx"]
    model = load_bundle(exported.path, threads=1)
    assert isinstance(model, Translator)
    assert len(model.translate(["eins zwei", "drei"], 3)) == 2


def test_int8_says_what_it_cost(
    pairs_run: RunDirectory, pairs_export: WrittenBundle, tiny_data_dir: Path, tmp_path: Path
) -> None:
    run = RunDirectory(Path(shutil.copytree(pairs_run.path, tmp_path / "run")))
    content = run.recipe().model_dump()
    content["export"] |= {"torchscript": False, "quantization": "int8", "version": 2}
    (run.path / "recipe.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    exported = export_run(run, tmp_path / "models", tiny_data_dir)
    lossy = exported.manifest.quantization
    exact = {(each.metric, each.split): each.value for each in pairs_export.manifest.quality}
    assert lossy is not None
    assert (lossy.kind, lossy.metric, lossy.split) == ("int8-static", "BLEU", "test")
    assert lossy.float32_value == pytest.approx(exact["BLEU", "test"], abs=1e-3)
    assert 50 < lossy.value <= lossy.float32_value  # 32 numbers a vector average few rounding errors out
    assert validate(exported.path) == []
    assert [(each.metric, each.split) for each in exported.manifest.quality] == list(exact)
    graph = onnx.load(exported.path / "step.onnx", load_external_data=False).graph
    operators = {node.op_type for node in graph.node}
    assert "MatMulIntegerToFloat" in operators
    assert "DynamicQuantizeLinear" not in operators  # no scale depends on the other rows
    assert json.loads((exported.path / MANIFEST).read_text(encoding="utf-8"))["version"] == 2
