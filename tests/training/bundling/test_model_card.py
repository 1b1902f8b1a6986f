"""Tests of the model card: it says what the manifest knows."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from models import ModelStore
from models.bundle.manifest import DataSource, Kernel, Manifest, Quality, Quantization, SoftmaxLayer
from models.reading import read_manifest
from training.bundling.bundle import WrittenBundle
from training.bundling.model_card import model_card, with_device_line
from training.recipe.loading import parse_recipe
from training.tasks.registry import TASKS

BUNDLED = Path(__file__).parents[3] / "models" / "bundled"


@pytest.fixture
def manifest(tiny_export: WrittenBundle) -> Manifest:
    """Return a manifest with two easily recognized metrics."""
    quality = tuple(
        Quality(metric="perplexity", value=value, dataset="toy", split=split)
        for split, value in (("dev", 12.345), ("test", 23.456))
    )
    return tiny_export.manifest.model_copy(update={"quality": quality})


def _card(manifest: Manifest, **changes: Any) -> list[str]:
    differences, references = changes.pop("differences", {"onnx": 1.25e-5}), changes.pop("references", {})
    return _model_card(manifest.model_copy(update=changes), differences=differences, references=references).splitlines()


def _model_card(manifest: Manifest, **values: Any) -> str:
    given = parse_recipe(manifest.provenance.recipe).model_dump(mode="json", exclude_defaults=True)
    return model_card(manifest, TASKS[manifest.task].exporter.card(manifest), given, **values)


def test_the_head_says_what_the_model_is(manifest: Manifest) -> None:
    lines = _card(manifest)
    assert lines[0] == "# toy, version 1"
    assert "Says what animals do" in lines
    assert "* Output layer: mixture of `lin`, `pow` (p = 2)" in lines
    assert "* Network: 2-layer LSTM, 32 hidden units, word vectors tied" in lines
    assert f"* Vocabulary: {manifest.config.vocab_size} words, `<unk>` and the sentence end `</s>` included" in lines
    assert "* Licence of the model: Apache-2.0" in lines
    assert "* Weights: float32" in lines


def test_graphs_for_gpus_are_named(manifest: Manifest) -> None:
    assert not any("GPU" in line for line in _card(manifest))
    graphs = {
        name: graph.model_copy(update={"devices": {"cuda": f"{name}.cuda.onnx"}})
        for name, graph in manifest.graphs.items()
    }
    lines = _card(manifest, graphs=graphs)
    at = lines.index("* Weights: float32")
    names = ", ".join(f"`{name}.cuda.onnx`" for name in graphs)
    assert lines[at + 1] == f"* Graphs for GPUs: {names}, with the same weights; activations are not int8"


def test_a_line_about_graphs_for_gpus_is_replaced() -> None:
    manifest = read_manifest(BUNDLED / "intents" / "2")
    card = (BUNDLED / "intents" / "2" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert with_device_line(card, manifest) == card
    assert with_device_line(card.replace("`classify.cuda.onnx`", "`old.onnx`"), manifest) == card


def test_a_single_kernel_is_no_mixture(manifest: Manifest) -> None:
    layer = SoftmaxLayer(kernels=(Kernel(name="pow", hyperparameters={"p": 1.5}),))
    assert "* Output layer: `pow` (p = 1.5)" in _card(manifest, softmax=layer)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ({"sparse_k": 20}, "`lin`; sparse-softmax over the 20 best words"),
        ({"kernels": 2, "sparse_k": 20}, "mixture of `lin`, `lin`; sparse-softmax over the 20 best words of each"),
        ({"kernels": 2, "untied": "full"}, "mixture of `lin`, `lin`; projection matrices untied in full"),
        ({"kernels": 2, "untied": 8}, "mixture of `lin`, `lin`; projection matrices untied by corrections of rank 8"),
    ],
    ids=str,
)
def test_what_is_special_about_a_layer_is_said(manifest: Manifest, layer: dict[str, Any], said: str) -> None:
    softmax = SoftmaxLayer(**{**layer, "kernels": (Kernel(name="lin"),) * layer.get("kernels", 1)})
    assert f"* Output layer: {said}" in _card(manifest, softmax=softmax)


def test_a_sparse_layer_has_coverage_beside_the_perplexity_of_what_it_covers(manifest: Manifest) -> None:
    quality = [
        Quality(metric=metric, value=value, dataset="toy", split=split)
        for split, values in (("dev", (0.5, 4.25)), ("test", (0.75, 8.5)))
        for metric, value in zip(("coverage", "perplexity_of_covered"), values, strict=True)
    ]
    softmax = manifest.softmax.model_copy(update={"sparse_k": 4})
    lines = _card(manifest, softmax=softmax, quality=tuple(quality), references={"unigrams": 21.5})
    start = lines.index("| model | data | split | coverage | perplexity of covered tokens |")
    assert lines[start + 1 : start + 5] == [
        "| --- | --- | --- | --- | --- |",
        "| this model | toy | dev | 0.50 | 4.25 |",
        "| this model | toy | test | 0.75 | 8.50 |",
        "| unigrams | toy | test | 1.00 | 21.50 |",
    ]
    assert "over all tokens it is infinite where coverage is below 1" in "\n".join(lines)


def test_data_are_named_with_their_licence(manifest: Manifest) -> None:
    assert "* toy: CC0, <https://example.org/toy>" in _card(manifest)


def test_own_files_have_no_address(manifest: Manifest) -> None:
    own = DataSource(name="pairs.tsv", homepage="user's own files", licence="user's own files")
    provenance = manifest.provenance.model_copy(update={"data": (own,)})
    assert "* pairs.tsv: user's own files" in _card(manifest, provenance=provenance)


def test_quality_stands_beside_its_references(manifest: Manifest) -> None:
    lines = _card(manifest, references={"Kneser-Ney 5-gram": 45.2})
    start = lines.index("| model | data | split | perplexity |")
    assert lines[start + 2 : start + 5] == [
        "| this model | toy | dev | 12.35 |",
        "| this model | toy | test | 23.46 |",
        "| Kneser-Ney 5-gram | toy | test | 45.20 |",
    ]


def test_differences_of_all_backends_are_there(manifest: Manifest) -> None:
    text = "\n".join(_card(manifest, differences={"onnx": 1.5e-5, "torchscript": 0.0}))
    assert "largest difference of any output, float32: onnx 1.5e-05, torchscript 0.0e+00." in text


def test_the_cost_of_quantization_is_said(manifest: Manifest) -> None:
    lossy = Quantization(
        kind="int8-weights", metric="perplexity", value=30.5, float32_value=30.0, dataset="toy", split="test"
    )
    assert "* Weights: int8 (perplexity 30.50 against 30.00 in float32)" in _card(manifest, quantization=lossy)
    lossy = lossy.model_copy(update={"kind": "int4-weights"})
    assert "* Weights: int4 (perplexity 30.50 against 30.00 in float32)" in _card(manifest, quantization=lossy)


def test_limits_and_provenance_are_there(manifest: Manifest) -> None:
    text = "\n".join(_card(manifest))
    assert "up to 200 tokens" in text
    assert f"Exported on {manifest.provenance.date} after " in text
    assert f"code {manifest.provenance.git_revision}." in text


def test_the_recipe_can_be_copied_out(manifest: Manifest) -> None:
    text = "\n".join(_card(manifest))
    block = text.partition("```yaml\n")[2].partition("```")[0]
    assert parse_recipe(yaml.safe_load(block)).model_dump(mode="json") == manifest.provenance.recipe


@pytest.mark.parametrize("name", ["next-word", "next-word:4", "de-en", "intents"])
def test_the_cards_of_bundled_models_are_written_alike(name: str) -> None:
    bundle = ModelStore(BUNDLED).path(name)
    card = (bundle / "MODEL_CARD.md").read_text(encoding="utf-8")
    (measured,) = re.findall("largest difference of any output, float32: (.*)[.]", card)
    differences = {backend: float(value) for backend, value in (pair.split() for pair in measured.split(", "))}
    others = re.findall(r"^[|] (?!this model|model|---)(.*) [|] .* [|] test [|] ([0-9.]+) ", card, re.MULTILINE)
    references = {other: float(value) for other, value in others}
    assert _model_card(read_manifest(bundle), differences=differences, references=references) == card
