"""BERT (Devlin et al. 2019): an encoder of texts, with weights in Hugging Face's layout or from scratch.

Shapes: `B` texts, `T` tokens, `d` hidden size.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, ValidationError, model_validator
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from training.networks.dropout import Dropout
from training.networks.transformer import EncoderLayer, padding_mask
from training.settings import Fraction, PositiveInt, Settings

__all__ = ["CONFIG", "TOKENIZER", "WEIGHTS", "EncoderConfig", "TextEncoder", "load_text_encoder", "read_config"]

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
"""Files of an encoder's directory."""

_STANDARD_DEVIATION = 0.02
"""Standard deviation of fresh weights (BERT's `initializer_range`)."""


class EncoderConfig(Settings):
    """Sizes of an encoder."""

    vocab_size: PositiveInt
    """Tokens."""
    hidden_size: PositiveInt = 256
    """Size of word vectors and context vectors."""
    inner_size: PositiveInt = 1024
    """Width of the feed-forward networks."""
    heads: PositiveInt = 4
    """Attention heads; they divide the hidden size."""
    layers: PositiveInt = 4
    """Transformer layers."""
    positions: PositiveInt = 512
    """Tokens of the longest text."""
    norm_epsilon: Annotated[float, Field(gt=0)] = 1e-12
    """Added to variances in layer normalization."""
    dropout: Fraction = 0.1
    """On word vectors and on what sublayers add to them."""
    attention_dropout: Fraction = 0.0
    """On attention weights."""

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.hidden_size % self.heads:
            raise ValueError(f"hidden_size must be divisible by heads, not {self.hidden_size} and {self.heads}")
        return self


class TextEncoder(nn.Module):
    """Tokens in, a context vector for each out.

    Every text is of one segment, so a vector of the segment would be one more term of every position's vector, and
    `positions` holds the sum.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.words = nn.Embedding(config.vocab_size, size)
        self.positions = nn.Parameter(torch.empty(config.positions, size))
        self.norm = nn.LayerNorm(size, eps=config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                size,
                config.inner_size,
                config.heads,
                config.dropout,
                "post",
                activation=functional.gelu,
                norm_epsilon=config.norm_epsilon,
                attention_dropout=config.attention_dropout,
            )
            for _ in range(config.layers)
        )
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Initialize weights as BERT does."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=_STANDARD_DEVIATION)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.positions, std=_STANDARD_DEVIATION)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens `[B, T]`, lengths `[B]` -> context vectors `[B, T, d]`; those behind a text's length mean nothing."""
        hidden = self.dropout(self.norm(self.words(tokens) + self.positions[: tokens.shape[1]]))
        mask = padding_mask(lengths, tokens.shape[1])
        for layer in self.encoder_layers():
            hidden = layer(hidden, mask)
        return hidden

    def encoder_layers(self) -> list[EncoderLayer]:
        """Return the Transformer layers."""
        return [layer for layer in self.layers if isinstance(layer, EncoderLayer)]


def load_text_encoder(directory: Path) -> TextEncoder:
    """Return the encoder in a directory of Hugging Face's layout: a BERT `config.json` and `model.safetensors`.

    Raises `FileNotFoundError` where a file is missing, `ValueError` where
    the configuration is not one of BERT or the weights are not those it describes.
    """
    config = read_config(directory)
    if not (directory / WEIGHTS).is_file():
        raise FileNotFoundError(f"{directory} has no {WEIGHTS}")
    try:
        tensors = load_file(directory / WEIGHTS)
    except SafetensorError as error:
        raise ValueError(f"{directory / WEIGHTS} is not a safetensors file: {error}") from error
    encoder = TextEncoder(config)
    try:
        encoder.load_state_dict(_translated(tensors, config.layers))
    except KeyError as error:
        raise ValueError(f"{directory / WEIGHTS} has no tensor {error.args[0]!r}") from error
    except RuntimeError as error:
        raise ValueError(f"{directory / WEIGHTS} does not fit {CONFIG}: {error}") from error
    return encoder


class _BertConfig(EncoderConfig):
    """The fields that are read from a `config.json`; others do not change how vectors are computed."""

    model_config = Settings.model_config | {"extra": "ignore"}

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


def read_config(directory: Path) -> EncoderConfig:
    """Return the sizes that `config.json` states; raises the errors of `load_text_encoder`."""
    path = directory / CONFIG
    try:
        found = _BertConfig.model_validate(json.loads(path.read_text(encoding="utf-8")))
        return EncoderConfig(**found.model_dump(include=set(EncoderConfig.model_fields)))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'sizes'}: {each['msg']}" for each in error.errors())
        raise ValueError(f"{path} does not describe a BERT encoder: {wrong}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def _translated(tensors: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Return the state of a `TextEncoder`; raises `KeyError` for a tensor that is not there."""
    prefix = "" if "embeddings.word_embeddings.weight" in tensors else "bert."

    def get(name: str) -> Tensor:
        return tensors[prefix + name].float()

    # All texts are of the first segment, so its vector is part of every position's.
    segment = get("embeddings.token_type_embeddings.weight")[0]
    state = {
        "words.weight": get("embeddings.word_embeddings.weight"),
        "positions": get("embeddings.position_embeddings.weight") + segment,
        "norm.weight": get("embeddings.LayerNorm.weight"),
        "norm.bias": get("embeddings.LayerNorm.bias"),
    }
    for index in range(layers):
        theirs, ours = f"encoder.layer.{index}.", f"layers.{index}."
        for kind in ("weight", "bias"):
            key, value = (get(f"{theirs}attention.self.{part}.{kind}") for part in ("key", "value"))
            state[f"{ours}attention.key_value.{kind}"] = torch.cat([key, value])
            for name, other in _LAYER.items():
                state[f"{ours}{other}.{kind}"] = get(f"{theirs}{name}.{kind}")
    return state


_LAYER: Mapping[str, str] = {
    "attention.self.query": "attention.query",
    "attention.output.dense": "attention.output",
    "attention.output.LayerNorm": "norms.0",
    "intermediate.dense": "feed_forward.inner",
    "output.dense": "feed_forward.outer",
    "output.LayerNorm": "norms.1",
}
"""Names within a layer: Hugging Face's and ours."""
