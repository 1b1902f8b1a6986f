"""Tests of the model card: it says what the manifest knows."""

from typing import Any

import pytest
import yaml

from models.manifest import Kernel, Manifest, Quality, Quantization, SoftmaxLayer
from training.export.bundle import Exported
from training.export.model_card import model_card


@pytest.fixture
def manifest(tiny_export: Exported) -> Manifest:
    """With two numbers of quality that are easy to find."""
    quality = tuple(
        Quality(metric="perplexity", value=value, dataset="toy", split=split)
        for split, value in (("dev", 12.345), ("test", 23.456))
    )
    return tiny_export.manifest.model_copy(update={"quality": quality})


def _card(manifest: Manifest, **changes: Any) -> list[str]:
    differences, references = changes.pop("differences", {"onnx": 1.25e-5}), changes.pop("references", {})
    return model_card(manifest.model_copy(update=changes), differences=differences, references=references).splitlines()


def test_the_head_says_what_the_model_is(manifest: Manifest) -> None:
    lines = _card(manifest)
    assert lines[0] == "# toy, version 1"
    assert "Says what animals do" in lines
    assert "* Output layer: mixture of `lin`, `pow` (p = 2)" in lines
    assert "* Network: 2-layer LSTM, 32 hidden units, word vectors tied" in lines
    assert f"* Vocabulary: {manifest.vocab_size} words, `<unk>` and the sentence end `</s>` included" in lines
    assert "* Licence of the model: Apache-2.0" in lines
    assert "* Weights: float32" in lines


def test_a_single_kernel_is_no_mixture(manifest: Manifest) -> None:
    layer = SoftmaxLayer(kernels=(Kernel(name="pow", hyperparameters={"p": 1.5}),))
    assert "* Output layer: `pow` (p = 1.5)" in _card(manifest, softmax=layer)


def test_data_are_named_with_their_licence(manifest: Manifest) -> None:
    assert "* toy: CC0, <https://example.org/toy>" in _card(manifest)


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
        kind="int8-dynamic", metric="perplexity", value=30.5, float32_value=30.0, dataset="toy", split="test"
    )
    assert "* Weights: int8 (perplexity 30.50 against 30.00 in float32)" in _card(manifest, quantization=lossy)


def test_limits_and_provenance_are_there(manifest: Manifest) -> None:
    text = "\n".join(_card(manifest))
    assert "up to 200 tokens" in text
    assert f"Exported on {manifest.provenance.date} after " in text
    assert f"code {manifest.provenance.git_revision}." in text


def test_the_recipe_can_be_copied_out(manifest: Manifest) -> None:
    text = "\n".join(_card(manifest))
    block = text.partition("```yaml\n")[2].partition("```")[0]
    assert yaml.safe_load(block) == manifest.provenance.recipe
