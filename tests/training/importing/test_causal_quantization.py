"""The import of causal language models with int8 and int4 weights, against the network with the rounded weights."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from models.backend.footprint import weight_bytes
from models.reading import read_manifest, sha256_of, validate
from models.store import load_bundle
from models.tasks.causal_language_model import CausalLanguageModel
from tests.support.blocks import rounded
from tests.support.causal_directory import write_causal
from tests.support.marian_directory import SENTENCES
from tests.training.cli.test_cli import run_cli
from tests.training.importing.conftest import Source, import_directory
from training.bundling.block_quantization import BLOCK, Bits, block_of
from training.bundling.bundle import WrittenBundle, save_manifest
from training.importing.causal import CausalImporter
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions
from training.importing.samples import Samples
from training.importing.source import open_source
from training.tasks.causal_language_model.quantization import INT8_LARGEST_BLOCK

SAMPLES = Samples(SENTENCES, "")
SIZES = {
    "GPT2LMHeadModel": {"n_embd": 96, "n_layer": 2},
    # An inner size and a size of all heads that are no multiples of a block.
    "LlamaForCausalLM": {"hidden_size": 80, "intermediate_size": 144, "tie_word_embeddings": False},
}

BITS: Mapping[str, Bits] = {"int8": 8, "int4": 4}


@dataclass(frozen=True)
class Imported:
    """A directory, and the bundle that was imported from it."""

    directory: Path
    written: WrittenBundle
    precision: str


@pytest.fixture(scope="module", params=[(name, precision) for name in SIZES for precision in BITS], ids="-".join)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    architecture, precision = request.param
    folder = tmp_path_factory.mktemp(precision)
    directory = write_causal(folder / "it", architecture, **SIZES[architecture])
    written = import_directory(directory, folder, SAMPLES, quantization=precision)
    return Imported(directory, written, precision)


@torch.no_grad()
def _rounded_network(imported: Imported) -> CausalImporter:
    """Return the network of a directory in float64, its weights rounded as those of its bundle."""
    found = CausalImporter(open_source(str(imported.directory)), ImportOptions(samples=SAMPLES))
    bits = BITS[imported.precision]
    eight = {id(found.head.linear.weight), id(found.network.embedding.weight)}
    if found.network.positions is not None:
        eight.add(id(found.network.positions.weight))
    parameters = {id(each): each for module in (found.network, found.head) for each in module.parameters()}
    for key, parameter in parameters.items():
        if parameter.dim() == 2 and parameter.numel() >= 4096:
            block = block_of(parameter.shape[1], INT8_LARGEST_BLOCK if bits == 8 else BLOCK)
            parameter.copy_(torch.from_numpy(rounded(parameter.numpy(), 8 if key in eight else bits, block)))
    found.network.double()
    found.head.double()
    return found


@torch.no_grad()
def _expected(network: CausalImporter, tokens: list[int]) -> Tensor:
    start = [] if network.special_tokens.start is None else [network.special_tokens.start]
    hidden = network.network(torch.tensor([[*start, *tokens]]))[0]
    found: Tensor = network.head.log_prob(hidden)[len(start) - 1 : -1].gather(1, torch.tensor(tokens)[:, None])[:, 0]
    return found


def _largest_difference(bundle: Path, imported: Imported) -> float:
    """Return the largest difference of a token's log-probability from the network with rounded weights."""
    model, network = load_bundle(bundle, threads=1), _rounded_network(imported)
    assert isinstance(model, CausalLanguageModel)
    largest = 0.0
    for text, score in zip(SENTENCES[:8], model.score(SENTENCES[:8]), strict=True):
        expected = _expected(network, network.tokenizer.encode(text)).numpy()
        found = np.array([each.log_probability for each in score.tokens])
        largest = max(largest, float(np.abs(found - expected).max()))
    return largest


def _without_rounded_activations(bundle: Path) -> None:
    for file in bundle.glob("*.onnx"):
        model = onnx.load(file, load_external_data=False)
        levels = [each for node in model.graph.node for each in node.attribute if each.name == "accuracy_level"]
        assert levels
        for level in levels:
            assert level.i == 4
            level.i = 1
        onnx.save_model(model, file)
    content = json.loads((bundle / "manifest.json").read_text("utf-8"))
    save_manifest(bundle, {**content, "files": {name: sha256_of(bundle / name) for name in content["files"]}})


def test_the_manifest_says_what_it_cost(imported: Imported) -> None:
    written, name = imported.written, imported.precision
    assert validate(written.path) == []
    manifest = read_manifest(written.path)
    assert manifest.quantization is not None
    assert manifest.quantization.kind == f"{name}-weights"
    assert manifest.quantization.metric == "same most probable next token as float32"
    quality = {each.metric: each.value for each in manifest.quality}
    least = {"int8": 0.9, "int4": 0.2}[name]  # of 400; weights are random
    assert quality["same most probable next token as float32"] == manifest.quantization.value > least
    assert quality["perplexity"] == pytest.approx(quality["perplexity in float32"], rel=0.3)
    assert quality["perplexity"] != quality["perplexity in float32"]
    card = (written.path / "MODEL_CARD.md").read_text("utf-8")
    assert f"* Weights: {name} (same most probable next token as float32 " in card
    assert f"Agreement of {name} with float32 on" in card
    assert not any(graph.devices for graph in manifest.graphs.values()), "GPUs run the same graphs"


def test_only_weights_and_activations_are_rounded(imported: Imported, tmp_path: Path) -> None:
    """Without rounded activations, the bundle computes what the network computes with rounded weights."""
    written = imported.written
    with_activations = _largest_difference(written.path, imported)
    exact = shutil.copytree(written.path, tmp_path / written.manifest.name / "1")
    _without_rounded_activations(exact)
    assert _largest_difference(exact, imported) < 1e-4
    if imported.precision == "int8":
        assert with_activations < 2e-3
    else:
        assert 1e-4 < with_activations < 0.5


def test_results_hardly_depend_on_the_batch(imported: Imported) -> None:
    """Other operators round differently in a batch, which may change the integers of activations by one.

    How often that happens depends on the processor.
    """
    model = load_bundle(imported.written.path, threads=1)
    assert isinstance(model, CausalLanguageModel)
    together = model.score(SENTENCES[:8])
    for text, score in zip(SENTENCES[:8], together, strict=True):
        alone = model.score([text])[0]
        tolerance = 1e-3 if imported.precision == "int8" else 5e-3 * len(score.tokens)
        assert score.log_probability == pytest.approx(alone.log_probability, abs=tolerance)


@pytest.mark.parametrize("graph", ["read", "predict"])
def test_no_matrix_is_dequantized_when_a_graph_is_loaded(graph: str, imported: Imported, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    file = imported.written.path / f"{graph}.onnx"
    onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    stored = onnx.load(tmp_path / "loaded.onnx", load_external_data=False).graph.initializer
    sizes = {tensor.name: np.prod(tensor.dims) for tensor in stored if tensor.data_type == onnx.TensorProto.FLOAT}
    assert sizes
    assert max(sizes.values()) < 4096


def test_the_file_is_small(tmp_path: Path) -> None:
    directory = write_causal(tmp_path / "it", "GPT2LMHeadModel", n_embd=256, n_layer=1)
    int8, int4 = (
        import_directory(directory, tmp_path, SAMPLES, quantization=name, name=name).path for name in ("int8", "int4")
    )
    sizes = [(bundle / "weights.bin").stat().st_size for bundle in (int8, int4)]
    whole = (directory / "model.safetensors").stat().st_size
    assert sizes[1] < 0.75 * sizes[0]
    assert sizes[0] < 0.28 * whole
    assert sizes[1] < 0.22 * whole
    assert max(weight_bytes(int4, read_manifest(int4)).values()) < 1.1 * whole


def test_the_command_prints_the_cost(tmp_path: Path) -> None:
    directory = write_causal(tmp_path / "it", "GPT2LMHeadModel", n_embd=96, n_layer=1)
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(SENTENCES), encoding="utf-8")
    options = ("--quantize", "int4", "--texts", texts, "--licence", "MIT")
    result = run_cli("import", directory, "--output", tmp_path / "out", *options)
    assert result.code == 0, result.output
    assert "quantizing to int4" in result.output
    assert "int4: same most probable next token as float32 0." in result.output
    assert ", perplexity in float32 " in result.output


def test_other_architectures_are_refused(source: Source, tmp_path: Path) -> None:
    message = (
        "--quantize int4 is for causal language models, which BertForSequenceClassification is not; leave it out, or"
    )
    with pytest.raises(ImportRefused, match=message):
        import_directory(source(), tmp_path, quantization="int4")
    assert not (tmp_path / "it").exists()
