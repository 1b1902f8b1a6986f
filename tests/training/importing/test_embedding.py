"""Tests of imported embeddings: vectors are what transformers and the stated modules compute."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from safetensors.torch import load_file

from models.errors import QueryError, TextTooLongError
from models.reading import read_manifest
from models.store import load_bundle
from models.tasks.text_embedding import Embedder
from tests.support.random_encoders import make_encoder, make_sentence_transformer
from tests.training.cli.test_cli import run_cli
from tests.training.importing.conftest import import_directory
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions
from training.importing.samples import Samples
from training.importing.sentence_modules import POOLINGS, read_modules
from training.importing.source import open_source

TEXTS = ("Where is my parcel?", "I want to cancel my order; please call me.", "one two", "naïve Straße 🙂")


def loaded(bundle: Path) -> Embedder:
    model = load_bundle(bundle)
    assert isinstance(model, Embedder)
    return model


def hidden_states(directory: Path, texts: Any) -> list[NDArray[np.float64]]:
    """Return the hidden states of each text, computed alone by transformers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model: Any = transformers.AutoModel.from_pretrained(directory).eval()
    found = []
    for text in texts:
        tokens = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            found.append(model(**tokens).last_hidden_state[0].numpy().astype(np.float64))
    return found


def pooled(hidden: NDArray[np.float64], pooling: str) -> NDArray[np.float64]:
    steps = np.arange(1, len(hidden) + 1)[:, None]
    values: dict[str, NDArray[np.float64]] = {
        "cls": hidden[0],
        "max": hidden.max(0),
        "mean": hidden.mean(0),
        "mean_sqrt_len_tokens": hidden.sum(0) / np.sqrt(len(hidden)),
        "weightedmean": (hidden * steps).sum(0) / steps.sum(),
        "lasttoken": hidden[-1],
    }
    return values[pooling]


def unit(vectors: Any) -> NDArray[np.float64]:
    stacked = np.stack(vectors)
    found: NDArray[np.float64] = stacked / np.linalg.norm(stacked, axis=1, keepdims=True)
    return found


@pytest.mark.parametrize(
    "architecture",
    ["AlbertModel", "BertModel", "DebertaV2Model", "DistilBertModel", "MPNetModel", "ModernBertModel", "RobertaModel"],
)
def test_vectors_are_those_of_transformers(architecture: str, tmp_path: Path) -> None:
    directory = make_sentence_transformer(tmp_path / "it", architecture)
    bundle = import_directory(directory, tmp_path / "out", Samples(TEXTS, ""))
    assert bundle.difference < 1e-4
    model = loaded(bundle.path)
    expected = unit([hidden.mean(0) for hidden in hidden_states(directory, TEXTS)])
    np.testing.assert_allclose(model.embed(TEXTS), expected, atol=1e-4)
    np.testing.assert_allclose(np.concatenate([model.embed([text]) for text in TEXTS]), expected, atol=1e-4)
    assert model.config.limits.max_tokens == 40


def test_poolings_are_joined(tmp_path: Path) -> None:
    """All of them, as older configurations name them."""
    former = {
        "pooling_mode_cls_token": True,
        "pooling_mode_max_tokens": True,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_mean_sqrt_len_tokens": True,
        "pooling_mode_weightedmean_tokens": True,
        "pooling_mode_lasttoken": True,
    }
    directory = make_sentence_transformer(tmp_path / "it", pooling=former, normalized=False, num_hidden_layers=1)
    model = loaded(import_directory(directory, tmp_path / "out", Samples(TEXTS, "")).path)
    for vector, hidden in zip(model.embed(TEXTS), hidden_states(directory, TEXTS), strict=True):
        expected = np.concatenate([pooled(hidden, pooling) for pooling in POOLINGS])
        np.testing.assert_allclose(vector, expected, atol=2e-4)
    assert model.config.normalized is False


@pytest.mark.parametrize(
    ("fields", "poolings"),
    [
        *(({"pooling_mode": pooling}, (pooling,)) for pooling in POOLINGS),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
    ],
)
def test_poolings_are_read(fields: dict[str, object], poolings: tuple[str, ...], tmp_path: Path) -> None:
    directory = make_sentence_transformer(tmp_path / "it", pooling=fields)
    assert tuple(read_modules(open_source(str(directory)), None).poolings) == poolings


def test_dense_layers_follow(tmp_path: Path) -> None:
    directory = make_sentence_transformer(tmp_path / "dense", dense=[32, 8], num_hidden_layers=1)
    model = loaded(import_directory(directory, tmp_path / "out", Samples(TEXTS, ""), name="dense").path)
    expected = np.stack([hidden.mean(0) for hidden in hidden_states(directory, TEXTS)])
    for name in ("2_Dense", "3_Dense"):
        weights = load_file(directory / name / "model.safetensors")
        expected = np.tanh(expected @ weights["linear.weight"].numpy().T + weights["linear.bias"].numpy())
    np.testing.assert_allclose(model.embed(TEXTS), unit(expected), atol=1e-4)
    cut = model.embed(TEXTS, dimensions=3)
    np.testing.assert_allclose(cut, unit(expected[:, :3]), atol=1e-4)
    raw = model.embed(TEXTS, dimensions=3, normalize=False)
    np.testing.assert_allclose(raw, expected[:, :3], atol=1e-4)


def test_prompts_case_and_limits(tmp_path: Path) -> None:
    directory = make_sentence_transformer(
        tmp_path / "it",
        "RobertaModel",
        settings={"max_seq_length": 16, "do_lower_case": True},
        prompts={"prompts": {"query": "one two ", "plain": ""}, "default_prompt_name": "query"},
    )
    model = loaded(import_directory(directory, tmp_path / "out", Samples(TEXTS, "")).path)
    texts = ["Order", "ORDER"]
    (expected,) = unit([hidden.mean(0) for hidden in hidden_states(directory, ["one two order"])])
    np.testing.assert_allclose(model.embed(texts), [expected] * 2, atol=1e-4)
    np.testing.assert_allclose(model.embed(["one two order"], prompt=""), [expected], atol=1e-4)
    np.testing.assert_allclose(model.embed(["one two order"], prompt="plain"), [expected], atol=1e-4)
    with pytest.raises(QueryError, match="no prompt 'passage'; its prompts: 'query', 'plain'"):
        model.embed(texts, prompt="passage")
    with pytest.raises(QueryError, match="dimensions must be from 1 to 64, not 65"):
        model.embed(texts, dimensions=65)
    long = "one two three " * 20
    with pytest.raises(TextTooLongError, match="the model's limit is 16"):
        model.embed([long])
    (query,) = model.queries([long], truncate=True)
    assert query.length == 16
    assert query.encoded.truncated is not None


def test_a_bare_encoder_needs_a_pooling(tmp_path: Path) -> None:
    directory = make_encoder(tmp_path / "it", "BertForMaskedLM")
    with pytest.raises(ImportRefused, match=r"no modules\.json, .*: give --pooling mean or cls"):
        import_directory(directory, tmp_path / "out")
    found = run_cli("import", directory, "--output", tmp_path / "out", "--pooling", "mean")
    assert found.code == 0, found
    model = loaded(tmp_path / "out" / "it" / "1")
    expected = [hidden.mean(0) for hidden in hidden_states(directory, TEXTS)]
    np.testing.assert_allclose(model.embed(TEXTS), expected, atol=2e-4)
    manifest = read_manifest(tmp_path / "out" / "it" / "1")
    assert manifest.softmax is None
    assert manifest.provenance.source is not None
    assert manifest.provenance.source.architecture == "BertForMaskedLM"


def test_int8_states_the_correlation_of_similarities(tmp_path: Path) -> None:
    directory = make_sentence_transformer(tmp_path / "it", "BertModel")
    found = import_directory(directory, tmp_path / "out", quantization="int8")
    assert found.cost is not None
    assert found.cost.metric == "correlation of similarities with float32"
    assert 0.9 < found.cost.value < 1
    assert read_manifest(found.path).quality[0].value == pytest.approx(found.cost.value, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modules.json": {}}, "holds no JSON list"),
        ({"modules.json": []}, "names no module"),
        ({"modules.json": [{"type": "x.CLIPModel", "path": ""}]}, "must be a Transformer in the directory itself"),
        ({"modules.json": [{"type": "x.Transformer", "path": "../../x"}]}, "a list of modules with type and path"),
        (
            {"modules.json": [{"type": "x.Transformer", "path": ""}]},
            "the second module of .* must be Pooling",
        ),
        ({"1_Pooling/config.json": {"pooling_mode": "attention"}}, "pooling_mode must be one of cls, max, mean"),
        ({"1_Pooling/config.json": {"include_prompt": False}}, "include_prompt is false"),
        ({"config_sentence_transformers.json": {"prompts": [1]}}, "must be texts by name"),
        ({"config_sentence_transformers.json": {"default_prompt_name": "no"}}, "default_prompt 'no' is not among"),
    ],
)
def test_what_cannot_be_imported(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    directory = make_sentence_transformer(tmp_path / "it")
    for name, content in changes.items():
        (directory / name).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises((ImportRefused, ValueError), match=message):
        import_directory(directory, tmp_path / "out")
    assert not (tmp_path / "out" / "it").exists()


def test_a_pooling_in_addition_to_modules_and_code_are_refused(tmp_path: Path) -> None:
    directory = make_sentence_transformer(tmp_path / "it")
    with pytest.raises(ImportRefused, match=r"--pooling is for encoders without modules\.json"):
        import_directory(directory, tmp_path / "out", options=ImportOptions(pooling="mean"))
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {"AutoModel": "code.Model"}}))
    with pytest.raises(ImportRefused, match=r"names code for code\.Model, which is not run"):
        import_directory(directory, tmp_path / "out")
