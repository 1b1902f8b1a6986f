"""Text encoders of recipes: pretrained, or from scratch."""

from collections.abc import Iterable, Iterator
from typing import Self

from pydantic import model_validator

from models.text.tokenization import EncoderTokenizer
from training.data.tokenization import build_encoder_tokenizer, read_encoder_tokenizer
from training.networks.hugging_face import load_text_encoder, load_tokenizer, read_config
from training.networks.pretrained import encoder_directory
from training.networks.text_encoder import EncoderConfig, TextEncoder
from training.run.paths import RunPaths
from training.settings import Fraction, PositiveInt, Settings
from training.tasks.task import RunFiles

__all__ = ["EncoderSettings", "chosen_encoder", "encoder_files", "load_pretrained", "read_encoder"]


class EncoderSettings(Settings):
    """The encoder of texts: a pretrained one, or one of these sizes from scratch."""

    pretrained: str | None = None
    """A name that `training.networks.pretrained` knows, or a directory in Hugging Face's layout of a BERT, RoBERTa,
    XLM-RoBERTa, DistilBERT or DeBERTa-v3 model; DeBERTa-v3 classifies texts and cannot generate them."""
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
    """On word vectors, on the outputs of sublayers and on the inputs of the output layer."""
    attention_dropout: Fraction = 0.0
    """On attention weights; BERT was trained with 0.1."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self.config(self.vocab_size)
        return self

    def _ineffective(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if self.pretrained is not None:
            yield ("vocab_size", "hidden_size", "inner_size", "heads", "layers"), "with pretrained"

    def config(self, vocab_size: int, positions: int = 512) -> EncoderConfig:
        """Return the sizes of an encoder from scratch."""
        sizes = self.model_dump(include={"hidden_size", "inner_size", "heads", "layers"})
        return self.with_dropout(EncoderConfig(vocab_size=vocab_size, positions=positions, **sizes))

    def with_dropout(self, config: EncoderConfig) -> EncoderConfig:
        """Return an encoder's sizes with the dropout of these settings."""
        return config.model_copy(update={"dropout": self.dropout, "attention_dropout": self.attention_dropout})


def chosen_encoder(
    settings: EncoderSettings, texts: Iterable[str], positions: int, needed_by: str, *, mask: bool = False
) -> tuple[EncoderTokenizer, EncoderConfig]:
    """Return tokenizer and sizes of the pretrained encoder, or new ones for these texts.

    `needed_by` names what needs so many positions; new tokenizers have a mask token with `mask`.

    Raises `ValueError` for an encoder that does not have the tokens of its tokenizer or that many positions, and what
    `encoder_directory`, `read_config` and `load_tokenizer` raise.
    """
    if settings.pretrained is None:
        tokenizer = build_encoder_tokenizer(texts, vocab_size=settings.vocab_size, mask=mask)
        config = settings.config(tokenizer.vocab_size, positions)
    else:
        directory = encoder_directory(settings.pretrained)
        tokenizer, config = load_tokenizer(directory), read_config(directory)
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(f"the encoder has {config.vocab_size} tokens, its tokenizer {tokenizer.vocab_size}")
    if positions > config.positions:
        raise ValueError(f"{needed_by}: {positions} tokens are too many for an encoder of {config.positions} positions")
    return tokenizer, config


def load_pretrained(encoder: TextEncoder, settings: EncoderSettings) -> None:
    """Load the weights of the pretrained encoder, if the settings name one."""
    if settings.pretrained is not None:
        encoder.load_state_dict(load_text_encoder(encoder_directory(settings.pretrained)).state_dict())


def encoder_files(run: RunPaths, tokenizer: EncoderTokenizer, config: EncoderConfig) -> RunFiles:
    """Return the files of a run directory that hold an encoder's tokenizer and sizes, and how each is written."""
    sizes = config.model_dump_json(indent=2)
    return {run.tokenizer: tokenizer.save, run.encoder: lambda path: path.write_text(sizes, encoding="utf-8")}


def read_encoder(run: RunPaths) -> tuple[EncoderTokenizer, EncoderConfig]:
    """Return the encoder's tokenizer and sizes that a run directory holds."""
    return read_encoder_tokenizer(run.tokenizer), EncoderConfig.model_validate_json(run.encoder.read_bytes())
