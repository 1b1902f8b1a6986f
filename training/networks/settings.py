"""What recipes say about networks."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from training.networks.text_classifier import Pooling
from training.networks.text_encoder import EncoderConfig
from training.settings import Fraction, PositiveInt, Settings

__all__ = ["EncoderSettings", "ImageEncoderSettings", "NetworkSettings", "TextEncoderSettings", "TransformerSettings"]


class NetworkSettings(Settings):
    """The LSTM that computes the context vectors."""

    hidden_size: PositiveInt = 512
    """Size of word vectors, states and context vectors."""
    num_layers: PositiveInt = 2
    """Stacked LSTM layers."""
    dropout: Fraction = 0.1
    """On the word vectors, between layers and on the context vectors."""


_PRESETS: Mapping[str, Mapping[str, int]] = {
    "tiny": {"hidden_size": 128, "inner_size": 256, "heads": 4, "encoder_layers": 4, "decoder_layers": 4},
    "small": {"hidden_size": 256, "inner_size": 1024, "heads": 4, "encoder_layers": 3, "decoder_layers": 3},
    "base": {"hidden_size": 512, "inner_size": 1024, "heads": 4, "encoder_layers": 6, "decoder_layers": 6},
}


class TransformerSettings(Settings):
    """The Transformer that computes the context vectors; fields that are given go before the preset's."""

    preset: Literal["tiny", "small", "base"] = "small"
    """Sizes to start from: `tiny` 128/256, 4+4 layers; `small` 256/1024, 3+3; `base` (the paper's) 512/1024, 6+6."""
    hidden_size: PositiveInt
    """Size of word vectors and context vectors."""
    inner_size: PositiveInt
    """Width of the feed-forward networks."""
    heads: PositiveInt
    """Attention heads; they divide the hidden size."""
    encoder_layers: PositiveInt
    """Layers that read the source."""
    decoder_layers: PositiveInt
    """Layers that write the target."""
    norm: Literal["pre", "post"] = "pre"
    """Where layer normalization stands: before each sublayer, or after it as in the original."""
    dropout: Fraction = 0.1
    """On word vectors and on what sublayers add to them."""

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, given: object) -> object:
        if isinstance(given, dict) and (preset := given.get("preset", "small")) in _PRESETS:
            return {**_PRESETS[preset], **given}
        return given

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.hidden_size % self.heads or self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even and divisible by heads, not {self.hidden_size}, {self.heads}")
        return self


class EncoderSettings(Settings):
    """The encoder of texts: a pretrained one, or one of these sizes from scratch."""

    pretrained: str | None = None
    """A name that `training.networks.pretrained` knows, or a directory in Hugging Face's layout of a BERT model."""
    vocab_size: PositiveInt = 8000
    """Word pieces, from scratch."""
    hidden_size: PositiveInt = 256
    """Size of word vectors and context vectors, from scratch."""
    inner_size: PositiveInt = 1024
    """Width of the feed-forward networks, from scratch."""
    heads: PositiveInt = 4
    """Attention heads, which divide the hidden size, from scratch."""
    layers: PositiveInt = 4
    """Transformer layers, from scratch."""
    dropout: Fraction = 0.1
    """On word vectors, on what sublayers add to them and on what the output layer sees."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self.config(self.vocab_size)
        return self

    def config(self, vocab_size: int, positions: int = 512) -> EncoderConfig:
        """Sizes of an encoder from scratch."""
        sizes = self.model_dump(include={"hidden_size", "inner_size", "heads", "layers", "dropout"})
        return EncoderConfig(vocab_size=vocab_size, positions=positions, **sizes)


class TextEncoderSettings(EncoderSettings):
    """An encoder that computes a text's vector."""

    pooling: Pooling = "mean"
    """The text's vector: the `mean` of its tokens', or that of `[CLS]`, `cls`."""


class ImageEncoderSettings(Settings):
    """The encoder that computes an image's vector."""

    encoder: Literal["efficientnet-lite0", "densenet"] = "densenet"
    """`efficientnet-lite0`, for which there are ImageNet weights, or `densenet` for small images."""
    pretrained: str | None = None
    """Weights of EfficientNet-Lite0: a name that `training.networks.pretrained` knows, or a file."""
    scale: PositiveInt = 1
    """How many times images are enlarged first."""
    growth: PositiveInt = 12
    """Channels that each layer of a DenseNet adds."""
    layers: Annotated[list[PositiveInt], Field(min_length=1, max_length=5)] = Field(default_factory=lambda: [6, 6, 6])
    """Layers of each of a DenseNet's blocks."""
    dropout: Fraction = 0.0
    """On the image's vector."""
    drop_path: Fraction = 0.0
    """How often an EfficientNet's residual blocks are left out in training: from 0 for the first up to nearly this."""

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        if self.pretrained is not None and self.encoder != "efficientnet-lite0":
            raise ValueError(f"pretrained: there are no weights of {self.encoder}")
        return self
