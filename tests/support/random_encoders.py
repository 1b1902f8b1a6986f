"""Directories of sentence-transformers with random weights: an encoder, pooling, dense layers, normalization."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from tests.support.random_classifiers import SIZES, TOKENIZERS, randomize, save_tokenizer
from training.bundling.onnx_tools import quiet
from training.importing.importer import need

__all__ = ["make_encoder", "make_sentence_transformer"]

_CLASSIFIER_OF = {
    "AlbertModel": "AlbertForSequenceClassification",
    "BertForMaskedLM": "BertForSequenceClassification",
    "BertModel": "BertForSequenceClassification",
    "CamembertModel": "CamembertForSequenceClassification",
    "DebertaV2Model": "DebertaV2ForSequenceClassification",
    "DistilBertModel": "DistilBertForSequenceClassification",
    "GteModel": "GteForSequenceClassification",
    "MPNetModel": "MPNetForSequenceClassification",
    "ModernBertModel": "BertForSequenceClassification",
    "NomicBertModel": "NomicBertForSequenceClassification",
    "RobertaModel": "RobertaForSequenceClassification",
    "XLMRobertaModel": "XLMRobertaForSequenceClassification",
}
"""The classifier whose sizes and tokenizer an encoder has."""
_MODERN = {
    "intermediate_size": 64,
    "global_attn_every_n_layers": 2,
    "local_attention": 8,
    "cls_token_id": 2,
    "sep_token_id": 3,
    "bos_token_id": 2,
    "eos_token_id": 3,
}


def make_encoder(directory: Path, architecture: str = "MPNetModel", *, deviation: float = 0.2, **config: Any) -> Path:
    """Write an encoder without a head and return the directory; `config` replaces fields."""
    classifier = _CLASSIFIER_OF[architecture]
    build, names = TOKENIZERS[classifier]
    tokenizer, model_class = build(), getattr(transformers, architecture)
    settings = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 48,
        "pad_token_id": tokenizer.token_to_id(names["pad_token"]),
        **(_MODERN if architecture.startswith("Modern") else SIZES[classifier]),
        **config,
    }
    need("transformers").utils.logging.disable_progress_bar()
    with quiet():
        torch.manual_seed(0)
        model = model_class(model_class.config_class(**settings))
        randomize(model, deviation)
        model.save_pretrained(directory)
        types = architecture.startswith(("Albert", "Bert", "DebertaV2", "Electra", "NomicBert"))
        save_tokenizer(directory, tokenizer, names, types=types)
    (directory / "README.md").write_text("---\nlicense: mit\n---\n# A model\n", encoding="utf-8")
    return directory


def make_sentence_transformer(
    directory: Path,
    architecture: str = "MPNetModel",
    *,
    pooling: Mapping[str, object] | None = None,
    dense: Sequence[int] = (),
    normalized: bool = True,
    settings: Mapping[str, object] | None = None,
    prompts: Mapping[str, object] | None = None,
    **config: Any,
) -> Path:
    """Write a directory of sentence-transformers; `dense` are the sizes after dense layers, other fields as its files.

    `pooling` is the configuration of that module, by default the mean; `settings` that of the encoder, `prompts` that
    of prompts.
    """
    make_encoder(directory, architecture, **config)
    kinds = [("", "models.Transformer"), ("1_Pooling", "models.Pooling")]
    generator, size = torch.Generator().manual_seed(1), config.get("hidden_size", 64)
    chosen = pooling or {"pooling_mode_mean_tokens": True}
    _write(directory / "1_Pooling" / "config.json", {"word_embedding_dimension": size, **chosen})
    for place, outputs in enumerate(dense, 2):
        path = directory / f"{place}_Dense"
        sizes = {"in_features": size, "out_features": outputs, "bias": True}
        _write(path / "config.json", {**sizes, "activation_function": "torch.nn.modules.activation.Tanh"})
        weights = {
            "linear.weight": 0.2 * torch.randn(outputs, size, generator=generator),
            "linear.bias": torch.randn(outputs, generator=generator),
        }
        save_file(weights, path / "model.safetensors")
        kinds.append((path.name, "models.Dense"))
        size = outputs
    if normalized:
        kinds.append((f"{len(kinds)}_Normalize", "models.Normalize"))
    _write(
        directory / "modules.json",
        [
            {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.{kind}"}
            for place, (path, kind) in enumerate(kinds)
        ],
    )
    _write(directory / "sentence_bert_config.json", settings or {"max_seq_length": 40, "do_lower_case": False})
    _write(directory / "config_sentence_transformers.json", prompts or {})
    return directory


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
