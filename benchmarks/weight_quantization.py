"""The cost of quantized weights in quality: a trained causal model with its weights rounded in several ways.

    .venv/bin/python -m benchmarks.weight_quantization models/bundled/next-word/5 --data-dir DIR

The weights of a bundle, dequantized where they have a scale a row, are rounded again, and each bundle is measured as
`softserve-train evaluate` does it. Rows are: the weights as they are; int8 with a scale a row and activations in
float32, as in bundles of earlier versions; int8 (`--quantize int8`), the same with blocks of 32, and with activations
of 8 bits; int4 (`--quantize int4`), the same with activations in float32, and with 4 bits in the output layer too. The
last column compares the log-probabilities of the tokens of some sentences, each scored alone, with those in one batch:
the largest difference and the mean.
"""

import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import tyro
from numpy.typing import NDArray
from onnx import numpy_helper

from models.bundle.manifest import MANIFEST, Manifest
from models.reading import load_manifest, sha256_of
from models.store import load_bundle
from models.tasks.causal_language_model import CausalLanguageModel
from training.bundling.block_quantization import quantize_blocks
from training.bundling.bundle import save_manifest
from training.bundling.onnx_tools import keep_used_weights
from training.bundling.quantize import quantize_int8_weights
from training.bundling.weight_file import WEIGHTS, save_graphs
from training.recipe.loading import parse_recipe
from training.run.session import use_threads
from training.tasks.causal_language_model.quantization import INT8_LARGEST_BLOCK, int4_graphs, int8_graphs
from training.tasks.causal_language_model.reading import text_parts
from training.tasks.causal_language_model.settings import CausalLanguageModelRecipe
from training.tasks.causal_language_model.task import CausalLanguageModelTask

_BATCH = 256
"""Texts that are scored alone and in a batch."""

Models = Mapping[str, onnx.ModelProto]


def dequantized(bundle: Path, manifest: Manifest) -> dict[str, onnx.ModelProto]:
    """Return the graphs of a bundle with float32 weights."""
    return {name: _dequantized(onnx.load(bundle / str(graph.onnx))) for name, graph in manifest.graphs.items()}


def _dequantized(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace int8 weights of a graph, with a scale a row each, by their products; raise `ValueError` for blocks."""
    if any(node.op_type == "MatMulNBits" for node in model.graph.node):
        raise ValueError("the bundle has weights in blocks; export it with export.quantization: none")
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    plain = [name.removesuffix("_int8") for name in stored if name.endswith("_int8")]
    made = {*plain, *(f"{name}_float" for name in plain)}
    kept = [node for node in model.graph.node if node.output[0] not in made]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    arrays = {name: stored[f"{name}_int8"].astype(np.float32) * stored[f"{name}_scales"] for name in plain}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    keep_used_weights(model)
    return model


def _with_float32_activations(models: Models) -> Models:
    for model in models.values():
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "accuracy_level":
                    attribute.i = 1
    return models


def variants(models: Models) -> Iterator[tuple[str, Models]]:
    """Yield each way of rounding, and the graphs."""
    yield "float32", models
    yield "int8, a scale a row", {name: quantize_int8_weights(model) for name, model in models.items()}
    yield "int8", int8_graphs(models)
    small = {name: quantize_blocks(model, 8, split_activations=True) for name, model in models.items()}
    yield "int8, blocks of 32", small
    rounded = {name: quantize_blocks(model, 8, largest_block=INT8_LARGEST_BLOCK) for name, model in models.items()}
    yield "int8, activations of 8 bits", rounded
    yield "int4", int4_graphs(models)
    yield "int4, activations in float32", _with_float32_activations(int4_graphs(models))
    yield "int4, 4 bits in the output layer too", {name: quantize_blocks(model, 4) for name, model in models.items()}


def batch_difference(model: CausalLanguageModel, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return how much the log-probability of each token differs between a text alone and all texts in one batch."""
    together, alone = (
        np.array([each.log_probability for score in scores for each in score.tokens if each.scored], np.float64)
        for scores in (model.score(texts), [model.score([text])[0] for text in texts])
    )
    found: NDArray[np.float64] = np.abs(together - alone)
    return found


def main(bundle: Path, /, data_dir: Path, splits: tuple[str, ...] = ("dev", "test"), threads: int = 1) -> None:
    """Print a row for each way of rounding.

    Args:
        bundle: A bundle of a causal language model that was trained by Softserve.
        data_dir: Directory that holds the corpora.
        splits: Splits to measure on.
        threads: Threads of the models.
    """
    use_threads(threads)
    manifest = load_manifest(bundle)
    recipe = parse_recipe(manifest.provenance.recipe)
    if not isinstance(recipe, CausalLanguageModelRecipe):
        raise ValueError(f"{bundle} is no causal language model")
    columns = ["weights", "weights.bin (MB)", *(f"bits per byte, perplexity, {split}" for split in splits)]
    columns.append("alone and in a batch")
    texts = list(itertools.islice(text_parts(recipe.data, splits[-1], data_dir), _BATCH))
    print("|", " | ".join(columns), "|")
    print("|", " | ".join("---" for _ in columns), "|")
    for name, models in variants(dequantized(bundle, manifest)):
        with tempfile.TemporaryDirectory() as folder:
            written = _written(bundle, Path(folder) / manifest.name / str(manifest.version), models)
            model = load_bundle(written, threads=threads)
            measured = [CausalLanguageModelTask.measure_bundle(model, recipe, split, data_dir) for split in splits]
            assert isinstance(model, CausalLanguageModel)
            changes = batch_difference(model, texts)
            size = (written / WEIGHTS).stat().st_size / 1e6
        cells = [f"{values['bits_per_byte']:.4f}, {values['perplexity']:.3f}" for values in measured]
        cells.append(f"{changes.max():.1e}, {changes.mean():.1e}")
        print(f"| {name} | {size:.2f} | {' | '.join(cells)} |", flush=True)


def _written(bundle: Path, target: Path, models: Models) -> Path:
    """Return a copy of a bundle with other graphs."""
    shutil.copytree(bundle, target)
    save_graphs(models, target)
    content = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    save_manifest(target, {**content, "files": {name: sha256_of(target / name) for name in content["files"]}})
    return target


if __name__ == "__main__":
    tyro.cli(main)
