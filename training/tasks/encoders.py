"""Which encoder of texts a recipe means."""

from collections.abc import Iterable

from models.text.tokenization import EncoderTokenizer
from training.data.tokenization import build_encoder_tokenizer
from training.networks.pretrained import encoder_directory
from training.networks.settings import EncoderSettings
from training.networks.text_encoder import TOKENIZER, EncoderConfig, TextEncoder, load_text_encoder, read_config

__all__ = ["chosen_encoder", "load_pretrained"]


def chosen_encoder(
    settings: EncoderSettings, texts: Iterable[str], positions: int, needed_by: str
) -> tuple[EncoderTokenizer, EncoderConfig]:
    """Tokenizer and sizes of the pretrained encoder, or new ones for these texts.

    `needed_by` names what needs so many positions.

    Raises `ValueError` for an encoder that does not have the tokens of its tokenizer or that many positions, and what
    `encoder_directory` and `read_config` raise.
    """
    if settings.pretrained is None:
        tokenizer = build_encoder_tokenizer(texts, vocab_size=settings.vocab_size)
        config = settings.config(tokenizer.vocab_size, positions)
    else:
        directory = encoder_directory(settings.pretrained)
        tokenizer, config = EncoderTokenizer.from_file(directory / TOKENIZER), read_config(directory)
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(f"the encoder has {config.vocab_size} tokens, its tokenizer {tokenizer.vocab_size}")
    if positions > config.positions:
        raise ValueError(f"{needed_by}: {positions} tokens are too many for an encoder of {config.positions} positions")
    return tokenizer, config


def load_pretrained(encoder: TextEncoder, settings: EncoderSettings) -> None:
    """Gives an encoder the weights of the pretrained one, where there is one."""
    if settings.pretrained is not None:
        encoder.load_state_dict(load_text_encoder(encoder_directory(settings.pretrained)).state_dict())
