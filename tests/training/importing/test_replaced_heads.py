"""Language models of transformers whose head `replace_head` has replaced: their import, and `export_bundle`."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from models.store import load_bundle
from models.tasks.causal_language_model import CausalLanguageModel
from tests.support.causal_directory import FAMILIES, write_causal
from tests.support.marian_directory import SENTENCES
from tests.training.importing.conftest import import_directory, set_config
from training.importing.errors import ImportRefused
from training.importing.module import export_bundle
from training.importing.samples import Samples
from training.softmax import GeneralizedSoftmax
from training.softmax.huggingface import replace_head

GPT2, SAMPLES = "GPT2LMHeadModel", Samples(SENTENCES, "")
TEXTS = ["Where is the station?", "naïve 🙂 Straße"]
MINE = {"name": "mine", "licence": "MIT", "description": "My own."}


def replaced(directory: Path, **options: Any) -> Any:
    """Return the model of a directory with another head, no parameter of which is as it begins."""
    torch.manual_seed(1)
    model = replace_head(transformers.AutoModelForCausalLM.from_pretrained(directory), **options)
    (head,) = [each for each in model.modules() if isinstance(each, GeneralizedSoftmax)]
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            if name != "weight":
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def saved(model: Any, original: Path, directory: Path) -> Path:
    """Write a model and the tokenizer of another directory; return the path."""
    tokenizer = shutil.ignore_patterns("*.safetensors", "config.json")
    model.save_pretrained(shutil.copytree(original, directory, ignore=tokenizer))
    return directory


@torch.no_grad()
def log_probabilities(model: Any, tokenizer: Any, text: str) -> list[float]:
    """Return the log-probability of each token of a text after the start token."""
    ids = [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]
    rows = model.eval()(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [float(rows[place, token]) for place, token in enumerate(ids[1:])]


@pytest.mark.parametrize("architecture", [name for name in FAMILIES if name != "Gemma2ForCausalLM"])
def test_each_family_computes_what_the_model_does(architecture: str, tmp_path: Path) -> None:
    one_layer = {"n_layer": 1} if architecture == GPT2 else {"num_hidden_layers": 1}
    directory = write_causal(tmp_path / "hub", architecture, **({} if "Gemma" in architecture else one_layer))
    model = replaced(directory, kernels=["lin", {"name": "rbf", "learnable": True}], bias=True)
    written = import_directory(saved(model, directory, tmp_path / "replaced"), tmp_path, SAMPLES, **MINE)
    bundle = load_bundle(written.path, threads=1)
    assert isinstance(bundle, CausalLanguageModel)
    assert [kernel.name for kernel in bundle.manifest.softmax.kernels] == ["lin", "rbf"]
    assert bundle.manifest.softmax.bias
    assert bundle.config.network.architecture == architecture
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    for text, score in zip(TEXTS, bundle.score(TEXTS), strict=True):
        found = [token.log_probability for token in score.tokens]
        np.testing.assert_allclose(found, log_probabilities(model, tokenizer, text), atol=1e-4)


@pytest.mark.parametrize(
    "options", [{"kernels": "pow", "weight": "copy"}, {"kernels": "2*log", "untied": 2}, {"kernels": "lin"}], ids=str
)
def test_a_model_in_memory_becomes_a_bundle(options: dict[str, Any], tmp_path: Path) -> None:
    directory = write_causal(tmp_path / "hub", GPT2, n_layer=1)
    model, tokenizer = replaced(directory, **options), transformers.AutoTokenizer.from_pretrained(directory)
    model.train()
    written = export_bundle(model, tokenizer, output=tmp_path, report=lambda line: None, **MINE)
    assert model.training
    (score,) = load_bundle(written.path, threads=1).score(TEXTS[:1])
    found = [token.log_probability for token in score.tokens]
    np.testing.assert_allclose(found, log_probabilities(model, tokenizer, TEXTS[0]), atol=1e-4)


def test_weights_in_half_precision_are_exported_in_float32(tmp_path: Path) -> None:
    directory = write_causal(tmp_path / "hub", GPT2)
    model = replaced(directory, kernels="lin, log").to(torch.bfloat16)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    written = export_bundle(model, tokenizer, output=tmp_path, report=lambda line: None, **MINE)
    (score,) = load_bundle(written.path, threads=1).score(TEXTS[:1])
    found = [token.log_probability for token in score.tokens]
    np.testing.assert_allclose(found, log_probabilities(model.float(), tokenizer, TEXTS[0]), atol=1e-4)


def test_what_is_refused(tmp_path: Path) -> None:
    directory = write_causal(tmp_path / "hub", GPT2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    options: dict[str, Any] = {"output": tmp_path / "models", "report": lambda line: None, **MINE}
    with pytest.raises(ImportRefused, match="probability 0"):
        export_bundle(replaced(directory, sparse_k=3), tokenizer, **options)
    with pytest.raises(ImportRefused, match="a classifier needs labels"):
        export_bundle(torch.nn.Linear(2, 2), tokenizer, **options)
    with pytest.raises(ImportRefused, match="Tokenizer is none of transformers"):
        export_bundle(replaced(directory), tokenizer.backend_tokenizer, **options)
    encoder = transformers.BertModel(
        transformers.BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    )
    with pytest.raises(ImportRefused, match="BertModel is no causal language model"):
        export_bundle(encoder, tokenizer, **options)
    assert not (tmp_path / "models").exists() or not any((tmp_path / "models").iterdir())


def test_heads_that_do_not_fit_their_weights_are_refused(tmp_path: Path) -> None:
    directory = write_causal(tmp_path / "hub", GPT2)
    path = saved(replaced(directory, kernels="lin, log"), directory, tmp_path / "replaced")
    described = json.loads((path / "config.json").read_text())["softmax_head"]
    for changed, message in (
        ({**described, "kernels": [{"name": "lin"}]}, "do not fit softmax_head in config.json: prior, projections"),
        ({**described, "kernels": [{"name": "none"}]}, "softmax_head in config.json: .*none"),
        ({"heads": 2}, "softmax_head in config.json"),
        ([], "softmax_head in config.json"),
    ):
        set_config(path, softmax_head=changed)
        with pytest.raises(ImportRefused, match=message):
            import_directory(path, tmp_path, SAMPLES, **MINE)
