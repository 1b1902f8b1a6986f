"""Tests of directories whose `config.json` names code, and of which transformers has the model itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from safetensors.torch import load_file, save_file

from models.store import load_bundle
from models.tasks.text_embedding import Embedder
from tests.support.random_classifiers import make_classifier
from tests.support.random_encoders import make_sentence_transformer
from tests.training.importing.conftest import TEXTS, import_directory, set_config
from tests.training.importing.test_embedding import hidden_states, unit
from training.importing.errors import ImportRefused
from training.importing.samples import Samples

_CODE = {"AutoConfig": "someone/other--configuration.NomicBertConfig", "AutoModel": "modeling.NomicBertModel"}
_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "layer_norm_eps": "layer_norm_epsilon",
    "max_position_embeddings": "max_trained_positions",
}
_OF_NOMIC = {
    "activation_function": "swiglu",
    "n_positions": 8192,
    "prenorm": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "use_flash_attn": True,
}


def _nomic(directory: Path, **config: Any) -> Path:
    make_sentence_transformer(directory, "NomicBertModel", **config)
    return set_config(directory, auto_map=_CODE)


@pytest.mark.parametrize("former", [False, True])
def test_the_class_of_transformers_stands_for_the_code(former: bool, tmp_path: Path) -> None:
    """Sizes have the names of transformers or, with two heads instead of the default twelve, those of GPT-2."""
    directory = _nomic(tmp_path / "it", num_attention_heads=2)
    texts = [text for text in TEXTS if text and "[SEP]" not in text and len(text) < 100]
    expected = unit([hidden.mean(0) for hidden in hidden_states(directory, texts)])
    if former:
        stated = json.loads((directory / "config.json").read_text())
        fields: dict[str, object] = {name: stated[before] for before, name in _NAMES.items()}
        set_config(directory, **dict.fromkeys(_NAMES), **fields, **_OF_NOMIC, rope_parameters=None, hidden_act=None)
    bundle = import_directory(directory, tmp_path / "out", Samples(TEXTS, ""))
    model = load_bundle(bundle.path)
    assert isinstance(model, Embedder)
    np.testing.assert_allclose(model.embed(texts), expected, atol=1e-4)


@pytest.mark.parametrize("architecture", ["GteForSequenceClassification", "NomicBertForTokenClassification"])
def test_heads_of_such_models(architecture: str, tmp_path: Path) -> None:
    directory = make_classifier(tmp_path / "it", architecture)
    name = getattr(transformers, architecture).config_class.__name__
    set_config(directory, auto_map={"AutoConfig": f"configuration.{name}"})
    assert import_directory(directory, tmp_path / "out", Samples(TEXTS, "")).difference < 1e-4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"auto_map": {"AutoConfig": "configuration.JinaBertConfig"}}, "code for configuration.JinaBertConfig, which"),
        ({"auto_map": {"AutoModel": "modeling.OtherModel"}}, "code for modeling.OtherModel, which"),
        ({"auto_map": "configuration"}, "names code for None"),
        ({"prenorm": True}, "NomicBertConfig of transformers lacks its fields prenorm"),
        ({"rotary_emb_fraction": 0.5}, "lacks its fields rotary_emb_fraction"),
        ({"model_type": "new"}, "does not have the model type 'new', and code for it is not run"),
    ],
)
def test_other_code_is_refused(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    directory = set_config(_nomic(tmp_path / "it"), **fields)
    with pytest.raises(ImportRefused, match=f"{message}.*; import its ONNX file .* optimum-cli export onnx"):
        import_directory(directory, tmp_path / "out")


def test_weights_of_other_layers_are_refused(tmp_path: Path) -> None:
    directory = _nomic(tmp_path / "it")
    file = directory / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("layers.0.mlp.fc11.weight"))
    save_file({**tensors, name.replace("weight", "bias"): tensors[name][:, 0].clone()}, file, {"format": "pt"})
    with pytest.raises(ImportRefused, match=r"NomicBertModel of transformers lacks .*layers.0.mlp.up_proj.bias"):
        import_directory(directory, tmp_path / "out")
