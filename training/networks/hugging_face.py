"""Pretrained text encoders in Hugging Face's layout: `config.json`, weights and a tokenizer.

BERT, RoBERTa (Liu et al. 2019) and DistilBERT (Sanh et al. 2019) have the same layers. They differ in the names of
their tensors, in the number of the first position, and in whether tokens have a segment. DeBERTa-v3 (He et al. 2023)
has vectors of distances in place of those of positions.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator
from torch import Tensor

from models.text.tokenization import EncoderTokenizer
from training.data.sentence_pieces import unigram_tokenizer
from training.data.tokenization import read_encoder_tokenizer
from training.networks.text_encoder import EncoderConfig, TextEncoder
from training.networks.weight_files import read_weights
from training.settings import Fraction, PositiveInt, Settings

__all__ = ["CONFIG", "TOKENIZER", "WEIGHTS", "load_text_encoder", "load_tokenizer", "read_config"]

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
"""Files of an encoder's directory."""
_PICKLED, _PIECES = "pytorch_model.bin", "spm.model"
"""Files that are read where there are no others: weights of older directories, and a SentencePiece model."""

_Get = Callable[[str], Tensor]


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

    def position_state(self, get: _Get) -> dict[str, Tensor]:
        """Return the part of a `TextEncoder`'s state that depends on positions."""
        positions = get("embeddings.position_embeddings.weight")[self.first_position :]
        if self.segments:  # all texts are of the first segment, so its vector is part of every position's
            positions = positions + get("embeddings.token_type_embeddings.weight")[0]
        return {"positions": positions}


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


def _split(kinds: object) -> object:
    return kinds.split("|") if isinstance(kinds, str) else kinds


class _Deberta(_Bert):
    """DeBERTa-v3; version 2 has a convolution and is refused."""

    prefix: ClassVar[str] = "deberta."
    names: ClassVar[Mapping[str, str]] = {
        **_Bert.names,
        "attention.query": "attention.self.query_proj",
        "attention.key": "attention.self.key_proj",
        "attention.value": "attention.self.value_proj",
    }

    model_type: Literal["deberta-v2"]  # type: ignore[assignment]
    norm_epsilon: Annotated[float, Field(gt=0)] = Field(1e-7, alias="layer_norm_eps")
    position_buckets: Annotated[int, Field(ge=2)]
    max_relative_positions: int = -1
    relative_attention: Literal[True]
    position_biased_input: Literal[False]
    share_att_key: Literal[True]
    norm_rel_ebd: Literal["layer_norm"]
    pos_att_type: Annotated[frozenset[Literal["c2p", "p2c"]], Field(min_length=2), BeforeValidator(_split)]
    type_vocab_size: Literal[0] = 0
    conv_kernel_size: Literal[0] = 0
    embedding_size: int | None = None
    attention_head_size: int | None = None

    @model_validator(mode="after")
    def _usual_sizes(self) -> Self:
        usual = {
            "max_relative_positions": (-1, self.positions),
            "embedding_size": (None, self.hidden_size),
            "attention_head_size": (None, self.hidden_size // self.heads),
        }
        for name, allowed in usual.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be {allowed[1]}, not {getattr(self, name)}")
        return self

    def position_state(self, get: _Get) -> dict[str, Tensor]:
        return {
            "distances.vectors": get("encoder.rel_embeddings.weight"),
            "distances.norm.weight": get("encoder.LayerNorm.weight"),
            "distances.norm.bias": get("encoder.LayerNorm.bias"),
        }


_Checkpoint = _Bert | _Roberta | _DistilBert | _Deberta
_CHECKPOINT: TypeAdapter[_Checkpoint] = TypeAdapter(Annotated[_Checkpoint, Field(discriminator="model_type")])


def read_config(directory: Path) -> EncoderConfig:
    """Return the sizes that `config.json` states; raises the errors of `load_text_encoder`."""
    return _sizes(_read_checkpoint(directory))


def load_text_encoder(directory: Path) -> TextEncoder:
    """Return the encoder in a directory with `config.json` and `model.safetensors`, or else `pytorch_model.bin`.

    Raises `FileNotFoundError` where a file is missing, `ValueError` where the configuration is of another architecture
    or the weights are not those it describes.
    """
    checkpoint = _read_checkpoint(directory)
    path = _first_file(directory, WEIGHTS, _PICKLED)
    tensors = read_weights(path)
    encoder = TextEncoder(_sizes(checkpoint))
    try:
        encoder.load_state_dict(_translated(tensors, checkpoint))
    except KeyError as error:
        raise ValueError(f"{path} has no tensor {error.args[0]!r}") from error
    except RuntimeError as error:
        raise ValueError(f"{path} does not fit {CONFIG}: {error}") from error
    return encoder


def load_tokenizer(directory: Path) -> EncoderTokenizer:
    """Return the tokenizer in `tokenizer.json`, or else that of the SentencePiece model `spm.model`.

    Raises `FileNotFoundError` where both are missing, and the errors of `read_encoder_tokenizer` and
    `unigram_tokenizer`.
    """
    path = _first_file(directory, TOKENIZER, _PIECES)
    return read_encoder_tokenizer(path) if path.name == TOKENIZER else EncoderTokenizer(unigram_tokenizer(path))


def _first_file(directory: Path, *names: str) -> Path:
    for name in names:
        if (directory / name).is_file():
            return directory / name
    raise FileNotFoundError(f"{directory} has no {names[0]}, and no {names[1]}")


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
    others = {"attention_dropout"} | (set() if isinstance(checkpoint, _Deberta) else {"position_buckets"})
    found = checkpoint.model_dump(include=set(EncoderConfig.model_fields) - others)
    return EncoderConfig(**found | {"positions": checkpoint.positions - checkpoint.first_position})


def _translated(tensors: Mapping[str, Tensor], checkpoint: _Checkpoint) -> dict[str, Tensor]:
    """Return the state of a `TextEncoder`; raises `KeyError` for a tensor that is not there."""
    prefix = "" if "embeddings.word_embeddings.weight" in tensors else checkpoint.prefix

    def get(name: str) -> Tensor:
        return tensors[prefix + name].float()

    state = {
        **checkpoint.position_state(get),
        "words.weight": get("embeddings.word_embeddings.weight"),
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
