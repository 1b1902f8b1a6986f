"""Pretrained text encoders in Hugging Face's layout: `config.json`, `model.safetensors` and `tokenizer.json`.

BERT, RoBERTa (Liu et al. 2019) and DistilBERT (Sanh et al. 2019) have the same layers. They differ in the names of
their tensors, in the number of the first position, and in whether tokens have a segment.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from training.networks.text_encoder import EncoderConfig, TextEncoder
from training.settings import Fraction, PositiveInt, Settings

__all__ = ["CONFIG", "TOKENIZER", "WEIGHTS", "load_text_encoder", "read_config"]

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
"""Files of an encoder's directory."""


class _Bert(EncoderConfig):
    """The fields that are read from a `config.json`; others do not change how vectors are computed."""

    model_config = Settings.model_config | {"extra": "ignore"}

    prefix: ClassVar[str] = "bert."
    layer: ClassVar[str] = "encoder.layer."
    segments: ClassVar[bool] = True
    names: ClassVar[Mapping[str, str]] = {
        "attention.query": "attention.self.query",
        "attention.key": "attention.self.key",
        "attention.value": "attention.self.value",
        "attention.output": "attention.output.dense",
        "norms.0": "attention.output.LayerNorm",
        "feed_forward.inner": "intermediate.dense",
        "feed_forward.outer": "output.dense",
        "norms.1": "output.LayerNorm",
    }
    """Names within a layer: ours and Hugging Face's."""

    model_type: Literal["bert"]
    hidden_act: Literal["gelu"] = "gelu"
    position_embedding_type: Literal["absolute"] = "absolute"
    hidden_size: PositiveInt
    inner_size: PositiveInt = Field(alias="intermediate_size")
    heads: PositiveInt = Field(alias="num_attention_heads")
    layers: PositiveInt = Field(alias="num_hidden_layers")
    positions: PositiveInt = Field(alias="max_position_embeddings")
    norm_epsilon: Annotated[float, Field(gt=0)] = Field(1e-12, alias="layer_norm_eps")
    dropout: Fraction = Field(0.1, alias="hidden_dropout_prob")

    @property
    def first_position(self) -> int:
        """Row of the table of positions for the first token."""
        return 0


class _Roberta(_Bert):
    prefix: ClassVar[str] = "roberta."

    model_type: Literal["roberta", "xlm-roberta"]  # type: ignore[assignment]
    pad_token_id: Annotated[int, Field(ge=0)] = 1

    @property
    def first_position(self) -> int:
        return self.pad_token_id + 1


class _DistilBert(_Bert):
    prefix: ClassVar[str] = "distilbert."
    layer: ClassVar[str] = "transformer.layer."
    segments: ClassVar[bool] = False
    names: ClassVar[Mapping[str, str]] = {
        "attention.query": "attention.q_lin",
        "attention.key": "attention.k_lin",
        "attention.value": "attention.v_lin",
        "attention.output": "attention.out_lin",
        "norms.0": "sa_layer_norm",
        "feed_forward.inner": "ffn.lin1",
        "feed_forward.outer": "ffn.lin2",
        "norms.1": "output_layer_norm",
    }

    model_type: Literal["distilbert"]  # type: ignore[assignment]
    hidden_act: Literal["gelu"] = Field("gelu", alias="activation")
    hidden_size: PositiveInt = Field(alias="dim")
    inner_size: PositiveInt = Field(alias="hidden_dim")
    heads: PositiveInt = Field(alias="n_heads")
    layers: PositiveInt = Field(alias="n_layers")
    dropout: Fraction = 0.1


_Checkpoint = _Bert | _Roberta | _DistilBert
_CHECKPOINT: TypeAdapter[_Checkpoint] = TypeAdapter(Annotated[_Checkpoint, Field(discriminator="model_type")])


def read_config(directory: Path) -> EncoderConfig:
    """Return the sizes that `config.json` states; raises the errors of `load_text_encoder`."""
    return _sizes(_read_checkpoint(directory))


def load_text_encoder(directory: Path) -> TextEncoder:
    """Return the encoder in a directory with `config.json` and `model.safetensors`.

    Raises `FileNotFoundError` where a file is missing, `ValueError` where the configuration is of another architecture
    or the weights are not those it describes.
    """
    checkpoint = _read_checkpoint(directory)
    if not (directory / WEIGHTS).is_file():
        raise FileNotFoundError(f"{directory} has no {WEIGHTS}")
    try:
        tensors = load_file(directory / WEIGHTS)
    except SafetensorError as error:
        raise ValueError(f"{directory / WEIGHTS} is not a safetensors file: {error}") from error
    encoder = TextEncoder(_sizes(checkpoint))
    try:
        encoder.load_state_dict(_translated(tensors, checkpoint))
    except KeyError as error:
        raise ValueError(f"{directory / WEIGHTS} has no tensor {error.args[0]!r}") from error
    except RuntimeError as error:
        raise ValueError(f"{directory / WEIGHTS} does not fit {CONFIG}: {error}") from error
    return encoder


def _read_checkpoint(directory: Path) -> _Checkpoint:
    path = directory / CONFIG
    try:
        checkpoint = _CHECKPOINT.validate_python(json.loads(path.read_text(encoding="utf-8")))
        _sizes(checkpoint)
        return checkpoint
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'model_type'}: {each['msg']}" for each in error.errors()
        )
        raise ValueError(f"{path} does not describe a text encoder that can be read: {wrong}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def _sizes(checkpoint: _Checkpoint) -> EncoderConfig:
    found = checkpoint.model_dump(include=set(EncoderConfig.model_fields) - {"attention_dropout"})
    return EncoderConfig(**found | {"positions": checkpoint.positions - checkpoint.first_position})


def _translated(tensors: Mapping[str, Tensor], checkpoint: _Checkpoint) -> dict[str, Tensor]:
    """Return the state of a `TextEncoder`; raises `KeyError` for a tensor that is not there."""
    prefix = "" if "embeddings.word_embeddings.weight" in tensors else checkpoint.prefix

    def get(name: str) -> Tensor:
        return tensors[prefix + name].float()

    positions = get("embeddings.position_embeddings.weight")[checkpoint.first_position :]
    if checkpoint.segments:  # all texts are of the first segment, so its vector is part of every position's
        positions = positions + get("embeddings.token_type_embeddings.weight")[0]
    state = {
        "words.weight": get("embeddings.word_embeddings.weight"),
        "positions": positions,
        "norm.weight": get("embeddings.LayerNorm.weight"),
        "norm.bias": get("embeddings.LayerNorm.bias"),
    }
    for index in range(checkpoint.layers):
        for kind in ("weight", "bias"):
            found = {
                name: get(f"{checkpoint.layer}{index}.{theirs}.{kind}") for name, theirs in checkpoint.names.items()
            }
            found["attention.key_value"] = torch.cat([found.pop("attention.key"), found.pop("attention.value")])
            state |= {f"layers.{index}.{name}.{kind}": tensor for name, tensor in found.items()}
    return state
